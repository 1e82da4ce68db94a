"""Enters existing namespaces.

The process of a command joins them from outside, so the same code starts commands with and without namespaces. The
exit status is that of the kernel, while bubblewrap reports a signal and the exit code 128 + n alike. A missing program
differs from a failed set-up. SIGTERM reaches the command, and does not end the namespaces.

At that time only bubblewrap and the waiting program run inside, so no other process can interfere with the new one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from flink_skills.execution.launcher import linux

__all__ = ["enter"]

# The owner of a user namespace may do all in it, so that one first; process namespaces apply to children.
_BEFORE_FORK = ("user", "pid")
_AFTER_FORK = ("net", "ipc", "uts", "cgroup", "mnt")


def enter(namespaces: Mapping[str, int], born: int) -> None:
    """Return in a new process in ``namespaces``, which leads a new session. The calling process ends.

    The new process has the parent of the calling one, which waits for it as for any other child and reads its process
    id, a line of text, from ``born``.
    """
    _join(namespaces, _BEFORE_FORK)
    pid = linux.fork_sibling()
    if pid:
        os.write(born, b"%d\n" % pid)
        os._exit(0)
    os.setsid()
    _join(namespaces, _AFTER_FORK)
    linux.die_with_parent(0)  # the number that a parent outside of the namespace has


def _join(namespaces: Mapping[str, int], names: Sequence[str]) -> None:
    for name in names:
        if name in namespaces:
            linux.join_namespace(namespaces[name], name)
