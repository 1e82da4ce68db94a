"""Restrictions of commands, as plain data for all forks of the zygote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Restrictions", "Rights"]


class Rights(NamedTuple):
    """Landlock rights that this kernel supports, as numbers.

    Attributes:
        every: All rights on files.
        read, write: Rights on a folder that a command reads or writes.
        growth: Rights that make a workspace larger.
        of_files: Rights that a rule on a file can have.
        device, terminal: Rights on a device and on the command's terminal.
        write_file: Right to write to an existing file.
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
    scopes: int


class Restrictions(NamedTuple):
    """Filters of system calls by mode, as programs for the kernel, and the rights of Landlock (None without it)."""

    filters: Mapping[str, bytes]
    rights: Rights | None
