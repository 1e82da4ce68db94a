"""The ``hygiene`` backend: tidy and bounded, without isolation of files.

A command gets a clean environment, limits, no network, no new privileges, a session of its own and capped output, and
its process tree is gone when the call returns. It can still read and write every file that its user can, and signal
that user's processes.
"""

from __future__ import annotations

from flink_skills.execution.backend import BackendSettings
from flink_skills.execution.backends.local import LocalBackend
from flink_skills.execution.launcher.protocol import Confinement
from flink_skills.execution.levels import IsolationLevel
from flink_skills.execution.request import CommandRequest

__all__ = ["HygieneBackend", "filter_name"]


class HygieneBackend(LocalBackend):
    """Runs commands at level ``HYGIENE``, in any container.

    >>> backend = HygieneBackend()
    >>> await backend.start()
    >>> (await backend.run(CommandRequest(("echo", "hi"), cwd="/"))).stdout
    b'hi\\n'
    """

    name = "hygiene"
    level = IsolationLevel.HYGIENE

    def confinement(self, request: CommandRequest) -> Confinement:
        return Confinement(filter=filter_name(self.settings))


def filter_name(settings: BackendSettings) -> str:
    """The filter of system calls that goes with ``settings``."""
    return "inet" if settings.network else "offline"
