"""Restrictions of commands, as plain data that the zygote prepares for all its forks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from flink_skills.execution.launcher.linux import forbid_new_privileges, load_filter_and_listen
from flink_skills.execution.launcher.protocol import is_mediated

__all__ = ["Restrictions", "Rights", "prepare"]


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
        calls: Numbers of the calls that signal processes by name. Empty without mediated filters.
        refusal: Why mediated filters cannot be used. Empty if they can, or if none was requested.
    """

    filters: Mapping[str, bytes]
    rights: Rights | None
    calls: Mapping[str, int] = {}
    refusal: str = ""


def prepare(libraries: str, filters: tuple[str, ...]) -> Restrictions:
    """Prepare the restrictions with the libraries in the folders ``libraries``, separated by colons.

    ``filters`` are the names of the filters that orders may use. If this process may not use mediated ones,
    ``refusal`` of the result is the reason.

    A forked process imports the libraries: every command is a fork of this process, and each page of memory and each
    library that acts at a fork would delay it.

    Raises :class:`RuntimeError` if that process fails. Its standard error says why.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _prepare_and_exit(libraries, filters, writer)
    os.close(writer)
    with open(reader, "rb") as file:
        body = file.read()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise RuntimeError(f"the restrictions of commands cannot be prepared: wait status {status}")
    fields = json.loads(body)
    programs = {name: bytes.fromhex(program) for name, program in fields["filters"].items()}
    rights = Rights(*fields["rights"]) if fields["rights"] else None
    return Restrictions(programs, rights, fields["calls"], fields["refusal"])


def _prepare_and_exit(libraries: str, names: tuple[str, ...], writer: int) -> NoReturn:
    code = 1
    try:
        sys.path += [folder for folder in libraries.split(":") if folder not in sys.path]
        from flink_skills.execution.launcher import kernel_policy

        # First, because filters deny the calls that query the kernel's rights.
        rights = kernel_policy.kernel_rights()
        programs = {name: kernel_policy.filter_program(name) for name in names}
        calls: dict[str, int] = {}
        refusal = ""
        mediated = [name for name in names if is_mediated(name)]
        if mediated:
            try:
                forbid_new_privileges()
                descriptor, _ = load_filter_and_listen(programs[mediated[0]])
                os.close(descriptor)
                calls = kernel_policy.signal_call_numbers()
            except OSError as error:
                refusal = error.strerror or str(error)
                programs = {name: program for name, program in programs.items() if name not in mediated}
        found = {
            "filters": {name: program.hex() for name, program in programs.items()},
            "rights": rights,
            "calls": calls,
            "refusal": refusal,
        }
        with open(writer, "wb") as file:
            file.write(json.dumps(found).encode("ascii"))
        code = 0
    except BaseException:
        import traceback  # only now, because each module delays every fork

        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)
