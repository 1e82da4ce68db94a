"""Enter namespaces that are there already.

The process of a command joins them from outside. So the command is started by the same code as without namespaces: its
exit status is the one that the kernel gives (bubblewrap would report a signal and the exit code 128 + n alike), a
program that is not there is told from a failed set-up, and SIGTERM reaches the command instead of ending the namespaces
around it.

At that time nothing but bubblewrap and the waiting program runs inside: nobody can get hold of the one who joins.
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
    """Return in a new process inside of ``namespaces``, which leads a session of its own. The calling process ends.

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
