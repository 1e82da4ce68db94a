"""Proof that a cgroup counts and limits what runs in it, and that its processes can be killed together."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path

from flink_skills.execution.cgroups.place import NotDelegatedError
from flink_skills.execution.launcher.cgroup import CommandCgroup

__all__ = ["prove"]

_MEMORY = 64 << 20
_HELD = 8 << 20
_TASKS = 2
_WITHIN_SECONDS = 20.0
# Tries one process more than it may have. It does not go over its memory: container runtimes report each process that
# the kernel kills for memory as one of the whole container.
_PROGRAM = f"""\
import os, signal, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
held = b"x" * {_HELD}
started = 0
try:
    while started < {_TASKS}:
        if os.fork() == 0:
            signal.pause()
        started += 1
except OSError:
    pass
print(started, flush=True)
signal.pause()
"""


def prove(folder: Path, python: str = "") -> None:
    """Run processes in a cgroup in ``folder``. Raise :class:`NotDelegatedError` with what the kernel does not do.

    ``python`` is the interpreter; this process's own by default. Raise :class:`OSError` if there cannot be a cgroup.
    """
    cgroup = CommandCgroup(str(folder))
    process = None
    try:
        cgroup.limit(_MEMORY, _TASKS)
        process = subprocess.Popen(
            [python or sys.executable, "-I", "-S", "-c", _PROGRAM, cgroup.path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
        )
        _examine(cgroup, process)
    finally:
        if process is not None:
            process.kill()
            process.communicate()
        removed = cgroup.remove()
    if not removed:
        raise NotDelegatedError(f"a cgroup in {folder} cannot be removed")


def _examine(cgroup: CommandCgroup, process: subprocess.Popen[bytes]) -> None:
    if process.stdout is None:
        raise AssertionError
    said = process.stdout.readline() if select.select([process.stdout], [], [], _WITHIN_SECONDS)[0] else b""
    if not said:
        raise NotDelegatedError("a process cannot enter a new cgroup")
    if int(cgroup.read("memory.max")) != _MEMORY or int(cgroup.read("memory.current")) < _HELD:
        raise NotDelegatedError("the kernel does not count the memory of a new cgroup")
    if int(said) != _TASKS - 1 or not cgroup.has_denied_processes():
        raise NotDelegatedError("the kernel does not limit the processes of a new cgroup")
    cgroup.kill()
    try:
        process.wait(_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotDelegatedError("the kernel does not kill the processes of a new cgroup") from None
