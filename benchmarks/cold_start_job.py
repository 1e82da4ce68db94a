"""A job from nothing to its first answer, in an interpreter of its own: ``python cold_start_job.py job|parts JSON``.

Prints ``RESULT JSON``: for ``job`` when what was done, as seconds since 1970; for ``parts`` how long parts of a
worker's opening take by themselves, in seconds. Its environment has ``flink_skills`` and its packages, and no more.
"""

from __future__ import annotations

import time

# Before the other imports: their time counts.
BEGAN = time.time()

import asyncio
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any


def job(request: dict[str, Any]) -> dict[str, float]:
    """One event through an agent in a mini cluster."""
    marks = {"interpreter": BEGAN}
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment

    from flink_skills import Agent, AgentsExecutionEnvironment

    marks["imports"] = time.time()
    from pyflink.java_gateway import get_gateway

    get_gateway()
    marks["jvm"] = time.time()
    configuration = Configuration()
    options = {"rest.port": "0", "skills.from.paths": request["skills"], "skills.worker.processes": "1"}
    for key, value in options.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    plan = agents_env.compile(_agent(Agent), local=True, events="json", outputs="record")
    marks["plan"] = time.time()
    watch = _Watch(Path(os.environ["FLINK_LOG_DIR"]))
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "events.txt"
        lines.write_text(f'"key"\t{json.dumps(request["event"])}\n')
        with agents_env.run_lines(plan, lines) as records:
            record = next(iter(records))
            marks["answer"] = time.time()
    assert record.get("error") is None and record.get("skills"), record
    return {**marks, **watch.marks}


def _agent(base: type) -> type:
    return type(
        "ColdStart", (base,), {"name": "cold-start", "model": "offline", "instructions": "Triage the incident."}
    )


class _Watch:
    """Sees when the worker is there, and when it says that it is open."""

    def __init__(self, logs: Path) -> None:
        self.marks: dict[str, float] = {}
        self._logs = logs
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while "open" not in self.marks:
            if "worker" not in self.marks and self._worker():
                self.marks["worker"] = time.time()
            if "worker" in self.marks and self._said("agent cold-start is open"):
                self.marks["open"] = time.time()
            time.sleep(0.005)

    def _worker(self) -> bool:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"flink_skills.worker" in words and self._mine(path.parent):
                return True
        return False

    def _mine(self, process: Path) -> bool:
        """Whether the process comes from this one: other jobs may run on the machine."""
        number = int(process.name)
        while number not in (0, 1, os.getpid()):
            try:
                number = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                return False
        return number == os.getpid()

    def _said(self, text: str) -> bool:
        return any(text in path.read_text(errors="replace") for path in self._logs.glob("*.log"))


def parts(request: dict[str, Any]) -> dict[str, float]:
    """The parts of a worker's opening, one after another."""
    found = {}
    began = time.perf_counter()
    import flink_skills.worker.server  # noqa: F401

    found["worker's imports"] = time.perf_counter() - began
    from flink_skills import Agent
    from flink_skills.agents.open.opening import open_skills
    from flink_skills.agents.plan.compilation import compile_plan
    from flink_skills.execution.backend_registry import command_user
    from flink_skills.execution.isolation.backend_choice import choose_backend
    from flink_skills.execution.workspace import open_workspaces
    from flink_skills.manager import SkillScope
    from flink_skills.options import SkillConfig, SkillOptions

    config = SkillConfig({SkillOptions.FROM_PATHS.key: request["skills"]})
    scope = SkillScope(level="job", paths=tuple(config.get(SkillOptions.FROM_PATHS)))
    plan = compile_plan(_agent(Agent), job_scopes=[scope], config=config)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        manager = open_skills(plan, config, None, str(Path(folder) / "store"))
        found["skills"] = time.perf_counter() - began
        manager.close()
        user = command_user(config)
        workspaces = open_workspaces(config, agent_id="cold-start", scratch_dir=folder, user=user)

        async def prove() -> float:
            start = time.perf_counter()
            backend, report = await choose_backend(config, workspaces)
            seconds = time.perf_counter() - start
            if backend is None:
                raise SystemExit(f"commands cannot be isolated here: {report.level.name}")
            await backend.close()
            return seconds

        found["sandbox proof"] = asyncio.run(prove())
        workspaces.close()
    return found


if __name__ == "__main__":
    print("RESULT", json.dumps({"job": job, "parts": parts}[sys.argv[1]](json.loads(sys.argv[2]))))
