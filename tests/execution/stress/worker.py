"""A worker as a process of its own, so that it can be killed or measured: it runs what standard input says.

Reads one line of JSON: ``backend``, ``folder``, ``commands`` (texts) and limits of all. Writes lines of JSON: first
the process id of the launcher; then, when all commands have ended, how they ended and what that cost in memory.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from flink_skills.execution import Limits, create_backend
from flink_skills.execution.backends import LocalBackend

from .ground import Ground, settings
from .marked import Mark


def memory(field: str) -> int:
    """Bytes of memory of this process: ``VmRSS`` (now) or ``VmHWM`` (the most that it ever had)."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None, field
    return int(found[1]) * 1024


async def main(given: dict[str, Any]) -> None:
    backend = create_backend(given["backend"], settings())
    await backend.start()
    assert isinstance(backend, LocalBackend)
    ground = Ground(backend, Path(given["folder"]), Mark(given["mark"]))
    # What is loaded and allocated once belongs to no command.
    await asyncio.gather(*(ground("echo ready") for _ in given["commands"]))
    before = max(memory("VmHWM"), memory("VmRSS"))
    print(json.dumps({"launcher": backend.launcher_pid}), flush=True)
    began = time.monotonic()
    limits = Limits(**given["limits"])
    commands = (ground(text, f"place{number}", limits=limits) for number, text in enumerate(given["commands"]))
    results = await asyncio.gather(*commands)
    took = time.monotonic() - began
    grown = memory("VmHWM") - before
    await backend.close()
    told = [
        {
            "exit_code": result.exit_code,
            "signal": result.signal,
            "timed_out": result.timed_out,
            "error": result.error,
            "limit": result.limit,
            "dropped": [result.stdout_dropped, result.stderr_dropped],
            "output": [result.stdout.decode("latin-1"), result.stderr.decode("latin-1")],
            "duration": result.duration,
        }
        for result in results
    ]
    print(json.dumps({"results": told, "seconds": took, "before": before, "grown": grown}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
