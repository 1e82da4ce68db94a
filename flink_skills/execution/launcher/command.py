"""The last steps in the process that becomes a command. Runs after ``fork`` and never returns."""

# The zygote does without pathlib, to start quickly and stay small.
# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import os
import resource
import signal
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.protocol import Order

__all__ = ["become_command"]


def become_command(order: Order, stdio: tuple[int, int, int], failure: int, parent: int) -> NoReturn:
    """Set limits and replace this process by the program of ``order``.

    What goes wrong is written to the descriptor ``failure``, which closes itself when the program starts: the
    exit code of a command is never mistaken for a failed set-up.
    """
    step = "start"
    try:
        step = "detach"
        os.setsid()
        linux.die_with_parent(parent)
        os.umask(0o077)
        _die_first_when_memory_is_short()
        step = f"enter the working directory {order.cwd!r}"
        os.chdir(order.cwd)
        step = "drop privileges"
        linux.drop_capabilities()
        linux.forbid_new_privileges()
        step = "connect standard input and output"
        for target, descriptor in enumerate(stdio):
            os.dup2(descriptor, target, inheritable=True)
        _close_all_but(failure)
        _reset_signals()
        step = "set limits"
        _set_limits(order.rlimits)
        step = f"start {order.argv[0]!r}"
        os.execvpe(order.argv[0], order.argv, order.env)  # noqa: S606 - the point of this module
    except BaseException as error:
        text = f"cannot {step}: {error}"
        os.write(failure, text.encode("utf-8", "replace")[:4096])
    finally:
        os._exit(127)


def _die_first_when_memory_is_short() -> None:
    """Offer the command to the kernel's memory killer before the worker and the TaskManager."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
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
    # Python ignores these two, and what is ignored stays so in the next program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _set_limits(rlimits: dict[str, int]) -> None:
    for name, wanted in rlimits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # At the hard limit of processor time the kernel sends SIGKILL, which would not tell why.
        spare = 1 if name == "RLIMIT_CPU" and value != hard else 0
        resource.setrlimit(which, (value, value + spare))
