"""Start a worker process and talk to it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from .marked import Mark

__all__ = ["WorkerProcess", "worker_process"]

_CHECKOUT = Path(__file__).parents[3]


class WorkerProcess:
    """A running worker, whose commands carry ``mark``."""

    def __init__(self, process: asyncio.subprocess.Process, mark: Mark) -> None:
        self._process = process
        self.mark = mark

    @property
    def pid(self) -> int:
        return self._process.pid

    async def says(self, within: float) -> dict[str, Any]:
        """The next thing that it says."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), within)
        assert line, f"the worker ended with {await self._process.wait()}"
        told: dict[str, Any] = json.loads(line)
        return told

    async def ended(self) -> None:
        await self._process.wait()


@asynccontextmanager
async def worker_process(
    backend: str,
    folder: Path,
    commands: Sequence[str],
    *,
    mark: Mark | None = None,
    limits: Mapping[str, float] | None = None,
) -> AsyncIterator[WorkerProcess]:
    """A worker that runs ``commands`` at once, each in a folder of its own below ``folder``."""
    mark = mark or Mark()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"{__package__}.worker"),
        # The mark comes by standard input: in arguments or environment it would make the worker one of the marked.
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(_CHECKOUT)},
        limit=1 << 26,
    )
    given = {
        "backend": backend,
        "folder": str(folder),
        "commands": list(commands),
        "mark": mark.text,
        "limits": dict(limits or {}),
    }
    assert process.stdin is not None
    process.stdin.write(json.dumps(given).encode() + b"\n")
    try:
        yield WorkerProcess(process, mark)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        mark.end_all()
