"""The last steps in the process that becomes a command. Runs after ``fork`` and never returns."""

from __future__ import annotations

import errno
import os
import resource
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.confinement import confine_files
from flink_skills.execution.launcher.protocol import Order
from flink_skills.execution.launcher.restrictions import Restrictions

__all__ = ["become_command", "report_failure"]

_OPEN_FILES = "RLIMIT_NOFILE"
# What says that a file is no program, or none for this user; anything else is a failed set-up.
_NO_PROGRAM = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.ELOOP),
        *(errno.ENAMETOOLONG, errno.ELIBBAD),
    }
)


def become_command(
    order: Order, stdio: tuple[int, int, int], ruleset: int, failure: int, restrictions: Restrictions
) -> NoReturn:
    """Set limits, confine this process for good and replace it by the program of ``order``.

    ``ruleset`` is the result of :func:`~flink_skills.execution.launcher.confinement.prepare_rules`. An error is
    written to ``failure``, which closes itself when the program starts: the
    exit code of a command is never mistaken for a failed set-up. Only a program that is not there or cannot be run
    is the command's own failure, told as shells tell it.
    """
    step = "set limits"
    try:
        # That of open files comes last: what follows opens some itself.
        _set_limits({name: value for name, value in order.rlimits.items() if name != _OPEN_FILES})
        step = f"enter the working directory {order.cwd!r}"
        os.chdir(order.cwd)
        step = "connect standard input and output"
        for target, descriptor in enumerate(stdio):
            os.dup2(descriptor, target, inheritable=True)
        if order.tty:
            step = "take the terminal"
            linux.take_terminal(0)
        step = "confine files (Landlock)"
        confine_files(order, ruleset, restrictions)
        linux.close_from(failure + 1)
        step = "limit open files"
        _set_limits({name: value for name, value in order.rlimits.items() if name == _OPEN_FILES})
        step = f"start {order.argv[0]!r}"
        _execute(order)
    except BaseException as error:
        report_failure(failure, step, error)
    finally:
        os._exit(127)


def report_failure(descriptor: int, step: str, error: BaseException) -> None:
    """Write to ``descriptor`` that ``step`` was not possible."""
    os.write(descriptor, f"cannot {step}: {error}".encode("utf-8", "replace")[:4096])


def _execute(order: Order) -> None:
    """Become the program. One that is not there or cannot be run ends as in a shell, with 127 or 126."""
    program = order.argv[0]
    folders = [""] if "/" in program else order.env.get("PATH", os.defpath).split(os.pathsep)
    code, reason = 127, "not found"
    for folder in folders:
        path = f"{folder or '.'}/{program}" if "/" not in program else program
        try:
            os.execve(path, order.argv, order.env)  # noqa: S606 - the point of this module
        except OSError as error:
            if error.errno not in _NO_PROGRAM:
                raise
            # A folder of the path that this user may not enter says nothing about the program.
            if os.path.lexists(path) and code == 127:
                code, reason = 126, error.strerror or "exec failed"
    os.write(2, f"{program}: {reason}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)


def _set_limits(rlimits: dict[str, int]) -> None:
    for name, wanted in rlimits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # At the hard limit of processor time the kernel sends SIGKILL, which would not tell why.
        spare = 1 if name == "RLIMIT_CPU" and value != hard else 0
        resource.setrlimit(which, (value, value + spare))
