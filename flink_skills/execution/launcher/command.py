"""The last steps in the process that becomes a command. Runs after ``fork`` and never returns."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.confinement import confine_files
from flink_skills.execution.launcher.namespaces import enter
from flink_skills.execution.launcher.protocol import Order
from flink_skills.execution.launcher.restrictions import Restrictions

__all__ = ["Surroundings", "become_command"]

_OPEN_FILES = "RLIMIT_NOFILE"
# A program inherits ignored signals. Python ignores two and the launcher handles the others. The zygote has reset those
# that its parents ignored.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)
# After standard input, output and error.
_FAILURE, _RULESET = 3, 4

# What says that a file is no program, or none for this user; anything else is a failed set-up.
_NO_PROGRAM = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.ELOOP),
        *(errno.ENAMETOOLONG, errno.ELIBBAD),
    }
)


class Surroundings(NamedTuple):
    """What a command has from its supervisor.

    Attributes:
        stdio: Descriptors for standard input, output and error.
        failure: Descriptor of a pipe for what goes wrong.
        parent: Process id of the supervisor.
        ruleset: Landlock rules that are prepared; -1 for none.
        namespaces: Open namespaces to enter, by name.
        born: Descriptor of a pipe for the process id of the command, if it enters namespaces.
    """

    stdio: tuple[int, int, int]
    failure: int
    parent: int
    ruleset: int = -1
    namespaces: Mapping[str, int] = {}
    born: int = -1


def become_command(order: Order, given: Surroundings, restrictions: Restrictions) -> NoReturn:
    """Set limits, confine this process and replace it by the program of ``order``.

    What goes wrong is written to the pipe for it, which closes itself when the program starts: the
    exit code of a command is never mistaken for a failed set-up. Only a program that is not there or cannot be run
    is the command's own failure, told as shells tell it.
    """
    failure, ruleset = given.failure, given.ruleset
    step = "start"
    confinement = order.confinement
    try:
        step = "detach"
        os.setsid()
        os.umask(0o077)
        linux.die_first_when_memory_is_short()
        step = "drop privileges"
        if confinement.user is not None:
            step = f"become the user {confinement.user[0]}:{confinement.user[1]}"
            linux.switch_user(confinement.user)
        linux.forbid_new_privileges()
        # After the user, because the kernel forgets it when the user changes.
        linux.die_with_parent(given.parent)
        if given.namespaces:
            step = "enter namespaces"
            enter(given.namespaces, given.born)
        step = "set limits"
        # That of open files comes last: what follows opens some itself.
        _set_limits({name: value for name, value in order.rlimits.items() if name != _OPEN_FILES})
        step = f"enter the working directory {order.cwd!r}"
        os.chdir(order.cwd)
        step = "connect standard input and output"
        for target, descriptor in enumerate(given.stdio):
            os.dup2(descriptor, target, inheritable=True)
        if order.tty:
            step = "take the terminal"
            linux.take_terminal(0)
        _reset_signals()
        failure, ruleset = _close_others(failure, ruleset)
        # Without a filter nothing is confined.
        if confinement.files or confinement.scope or (order.full and confinement.filter):
            step = "confine files (Landlock)"
            confine_files(order, ruleset, restrictions)
        if confinement.filter:
            step = "filter system calls (seccomp)"
            linux.load_filter(restrictions.filters[confinement.filter])
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


def _close_others(failure: int, ruleset: int) -> tuple[int, int]:
    """Close all descriptors but the first three and these two, and return the new numbers of these."""
    last = _FAILURE
    if ruleset >= 0:
        last = _RULESET
        # First out of the way of each other.
        ruleset = fcntl.fcntl(ruleset, fcntl.F_DUPFD_CLOEXEC, _RULESET + 1)
    failure = fcntl.fcntl(failure, fcntl.F_DUPFD_CLOEXEC, _RULESET + 1)
    os.dup2(failure, _FAILURE, inheritable=False)
    if ruleset >= 0:
        ruleset = os.dup2(ruleset, _RULESET, inheritable=False)
    linux.close_from(last + 1)
    return _FAILURE, ruleset


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
