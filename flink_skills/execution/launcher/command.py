"""The last steps in the process that becomes a command. Runs after ``fork`` and never returns."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Mapping
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.namespaces import continue_inside
from flink_skills.execution.launcher.protocol import Order

__all__ = ["Filters", "become_command"]

# By mode, as programs for the kernel.
Filters = Mapping[str, bytes]

_OPEN_FILES = "RLIMIT_NOFILE"
# A program inherits ignored signals. Python ignores two, and the parent of the worker may ignore any other.
_RESET = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})

# What says that a file is no program, or none for this user; anything else is a failed set-up.
_NO_PROGRAM = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.ELOOP),
        *(errno.ENAMETOOLONG, errno.ELIBBAD),
    }
)


def become_command(order: Order, stdio: tuple[int, int, int], failure: int, parent: int, filters: Filters) -> NoReturn:
    """Set limits, confine this process and replace it by the program of ``order``.

    What goes wrong is written to the descriptor ``failure``, which closes itself when the program starts: the
    exit code of a command is never mistaken for a failed set-up. Only a program that is not there or cannot be run
    is the command's own failure, told as shells tell it.
    """
    step = "start"
    confinement = order.confinement
    try:
        step = "detach"
        os.setsid()
        os.umask(0o077)
        _die_first_when_memory_is_short()
        step = "drop privileges"
        if confinement.user is not None:
            step = f"become the user {confinement.user[0]}:{confinement.user[1]}"
            linux.switch_user(confinement.user)
        linux.forbid_new_privileges()
        # After the user, because the kernel forgets it when the user changes.
        linux.die_with_parent(parent)
        if confinement.namespaces:
            step = "set up namespaces (bubblewrap)"
            continue_inside(confinement.namespaces, parent)
        step = "set limits"
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
        _close_all_but(failure)
        _reset_signals()
        # Without a filter nothing is confined, and there are no libraries to do it with.
        if confinement.files or confinement.scope or (order.full and confinement.filter):
            step = "confine files (Landlock)"
            _confine_files(order)
        if confinement.filter:
            step = "filter system calls (seccomp)"
            linux.load_filter(filters[confinement.filter])
        step = "limit open files"
        _set_limits({name: value for name, value in order.rlimits.items() if name == _OPEN_FILES})
        step = f"start {order.argv[0]!r}"
        _execute(order)
    except BaseException as error:
        text = f"cannot {step}: {error}"
        os.write(failure, text.encode("utf-8", "replace")[:4096])
    finally:
        os._exit(127)


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
                code, reason = 126, error.strerror or "cannot be run"
    os.write(2, f"{program}: {reason}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)


def _confine_files(order: Order) -> None:
    # Only where there are libraries to do it with.
    from flink_skills.execution.launcher.confinement import confine_files

    confine_files(order.confinement, full=bool(order.full), terminal=order.tty)


def _die_first_when_memory_is_short() -> None:
    """Offer the command to the kernel's memory killer before the worker and the TaskManager."""
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(b"1000")
    except OSError:
        # A read-only /proc: the command then competes with everybody else, which is no reason not to run it.
        return


def _close_all_but(kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor != kept:
            try:
                os.close(descriptor)
            except OSError:
                continue  # the one that listed the folder


def _reset_signals() -> None:
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _set_limits(rlimits: dict[str, int]) -> None:
    for name, wanted in rlimits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # At the hard limit of processor time the kernel sends SIGKILL, which would not tell why.
        spare = 1 if name == "RLIMIT_CPU" and value != hard else 0
        resource.setrlimit(which, (value, value + spare))
