"""A backend without isolation, which shows that the escape suite detects an escape."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time

from flink_skills.execution import BackendSettings, CommandRequest, CommandResult, ExecutionBackend, IsolationLevel

__all__ = ["NoIsolationBackend"]


class NoIsolationBackend(ExecutionBackend):
    """Runs commands with the worker's environment, descriptors, user and network, and leaves what they leave."""

    name = "none"
    level = IsolationLevel.NONE

    def __init__(self, settings: BackendSettings | None = None) -> None:
        self.settings = settings or BackendSettings()

    async def start(self) -> None:
        """Do nothing: no helper process is needed."""

    async def run(self, request: CommandRequest) -> CommandResult:
        started = time.monotonic()
        timed_out = False
        # Files instead of pipes: processes that a command leaves can keep its output open.
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            stdin.write(request.stdin)
            stdin.seek(0)
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - a command is what this is for
                    request.argv,
                    cwd=request.cwd,
                    env={**os.environ, **request.env},
                    stdin=stdin,
                    stdout=out,
                    stderr=err,
                    close_fds=False,
                )
            except OSError as error:
                return CommandResult(error=f"cannot start {request.argv[0]!r}: {error}")
            try:
                code = await asyncio.to_thread(process.wait, request.limits.wall_time)
            except subprocess.TimeoutExpired:
                timed_out = True
                process.kill()
                code = process.wait()
            out.seek(0)
            err.seek(0)
            return CommandResult(
                exit_code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
                timed_out=timed_out,
                stdout=out.read(),
                stderr=err.read(),
                duration=time.monotonic() - started,
            )

    async def close(self) -> None:
        """Do nothing: processes of commands continue to run."""
