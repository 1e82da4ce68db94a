"""No isolation at all: a child process like any other. Only there to show that the escape suite can see an escape.

No job can choose it: it has no name in the registry.
"""

from __future__ import annotations

import asyncio
import os
import time

from flink_skills.execution.backend import BackendSettings, CommandRequest, CommandResult, ExecutionBackend
from flink_skills.execution.isolation.levels import IsolationLevel

__all__ = ["NoIsolationBackend"]


class NoIsolationBackend(ExecutionBackend):
    """Runs commands with the worker's environment, descriptors, user and network, and leaves what they leave."""

    name = "none"
    level = IsolationLevel.NONE

    def __init__(self, settings: BackendSettings | None = None) -> None:
        self.settings = settings or BackendSettings()

    async def start(self) -> None:
        """Nothing to get ready."""

    async def run(self, request: CommandRequest) -> CommandResult:
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *request.argv,
            cwd=request.cwd,
            env={**os.environ, **request.env},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            close_fds=False,
        )
        timed_out = False
        try:
            out, err = await asyncio.wait_for(process.communicate(request.stdin), request.limits.wall_time)
        except asyncio.TimeoutError:
            timed_out, out, err = True, b"", b""
            process.kill()
        code = await process.wait()
        return CommandResult(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            timed_out=timed_out,
            stdout=out,
            stderr=err,
            duration=time.monotonic() - started,
        )

    async def close(self) -> None:
        """Nothing to end: what commands left behind stays."""
