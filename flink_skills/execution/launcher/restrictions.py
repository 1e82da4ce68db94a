"""Restrictions of commands, as plain data for all forks of the zygote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["PARTS", "SIGNALS", "SIGNAL_CALLS", "TRUNCATION", "Restrictions", "Rights", "is_mediated"]

SIGNALS = "signals"
"""Part of a mediated filter: the supervisor answers the calls that signal processes."""

TRUNCATION = "truncation"
"""Part of a filter: calls that truncate files without the right to write are denied."""

PARTS = "+"
"""Separator of the mode and the parts in the name of a filter, such as ``offline+signals``."""

SIGNAL_CALLS = ("kill", "tkill", "tgkill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Calls that signal processes."""


def is_mediated(name: str) -> bool:
    """Return True if the supervisor answers calls for the filter ``name``."""
    return SIGNALS in name.split(PARTS)


class Rights(NamedTuple):
    """Landlock rights that this kernel supports, as numbers.

    Attributes:
        every: All rights on files.
        read, write: Rights on a folder that a command reads or writes.
        growth: Rights that make a workspace larger.
        of_files: Rights that a rule on a file can have.
        device, terminal: Rights on a device and on the command's terminal.
        write_file: Right to write to an existing file.
        domain: Rights that are handled and granted everywhere. They make a process one that Landlock restricts.
        scopes: Confinement of signals and abstract sockets. 0 where the kernel cannot confine these.
    """

    every: int
    read: int
    write: int
    growth: int
    of_files: int
    device: int
    terminal: int
    write_file: int
    domain: int
    scopes: int


class Restrictions(NamedTuple):
    """Prepared restrictions of commands.

    Attributes:
        filters: Filters of system calls by name, as programs for the kernel.
        rights: Rights of Landlock. None without Landlock.
        calls: Numbers of the calls :data:`SIGNAL_CALLS` by name. Empty without mediated filters.
        refusal: Why mediated filters cannot be used. Empty if they can, or if none was requested.
    """

    filters: Mapping[str, bytes]
    rights: Rights | None
    calls: Mapping[str, int] = {}
    refusal: str = ""
