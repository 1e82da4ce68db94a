"""Prepares the restrictions of commands, before the zygote forks anything else."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

from flink_skills.execution.launcher.restrictions import Restrictions, Rights, is_mediated

__all__ = ["prepare"]


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
        from flink_skills.execution.launcher import rights, syscall_filter

        # First, because filters deny what asks the kernel for its rights.
        found_rights = rights.rights_of_kernel()
        programs = {name: syscall_filter.filter_program(name) for name in names}
        calls: dict[str, int] = {}
        refusal = ""
        mediated = [name for name in names if is_mediated(name)]
        if mediated:
            try:
                _try(programs[mediated[0]])
                calls = syscall_filter.call_numbers()
            except OSError as error:
                refusal = error.strerror or str(error)
                programs = {name: program for name, program in programs.items() if name not in mediated}
        found = {
            "filters": {name: program.hex() for name, program in programs.items()},
            "rights": found_rights,
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


def _try(program: bytes) -> None:
    """Use a mediated filter in this process. Raises :class:`OSError` if that is refused."""
    from flink_skills.execution.launcher import linux, listener

    linux.forbid_new_privileges()
    descriptor, _ = listener.load_filter_and_listen(program)
    os.close(descriptor)
