"""Prepares the restrictions of commands, before the zygote forks anything else."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

from flink_skills.execution.launcher.restrictions import Restrictions, Rights

__all__ = ["prepare"]


def prepare(libraries: str) -> Restrictions:
    """Prepare the restrictions with the libraries in the folders ``libraries``, separated by colons.

    A forked process imports the libraries: every command is a fork of this process, and each page of memory and each
    library that acts at a fork would delay it.

    Raises :class:`RuntimeError` if that process fails. Its standard error says why.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _prepare_and_exit(libraries, writer)
    os.close(writer)
    with open(reader, "rb") as file:
        body = file.read()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise RuntimeError(f"the restrictions of commands cannot be prepared: wait status {status}")
    fields = json.loads(body)
    filters = {mode: bytes.fromhex(program) for mode, program in fields["filters"].items()}
    return Restrictions(filters, Rights(*fields["rights"]) if fields["rights"] else None)


def _prepare_and_exit(libraries: str, writer: int) -> NoReturn:
    code = 1
    try:
        sys.path += [folder for folder in libraries.split(":") if folder not in sys.path]
        from flink_skills.execution.launcher import rights, syscall_filter

        modes = (syscall_filter.OFFLINE, syscall_filter.INET)
        filters = {mode: syscall_filter.filter_program(mode).hex() for mode in modes}
        with open(writer, "wb") as file:
            file.write(json.dumps({"filters": filters, "rights": rights.rights_of_kernel()}).encode("ascii"))
        code = 0
    except BaseException:
        import traceback  # only now, because each module delays every fork

        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)
