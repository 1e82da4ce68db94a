"""An agent that detaches a process from its worker, shipped with ``-pyfs``. It imports nothing of the tests."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from flink_skills import Agent, AgentContext


class LeavesDaemon(Agent):
    """Start a process in a new session for each event. It keeps the worker's pipes open."""

    name = "leaves-daemon"

    async def on_event(self, event: Any, ctx: AgentContext) -> str:
        program = "import os, time\nif os.fork() == 0: time.sleep(3600)"
        words = [sys.executable, "-I", "-S", "-c", program]
        subprocess.run(words, start_new_session=True, check=True)  # noqa: ASYNC221 - it ends at once
        return str(event["id"])
