"""Requirements of a job that this machine does not meet, found without a network and without a worker."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from flink_skills.documents.problems import Path as ProblemPath
from flink_skills.documents.problems import Problem
from flink_skills.errors import SkillsError, UnknownNameError
from flink_skills.job.agent_building import AgentBuilder
from flink_skills.job.building import JobBuilder
from flink_skills.job.isolation_probe import check_isolation
from flink_skills.models.registry import create_model
from flink_skills.options import SkillConfig, SkillOptions

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan

__all__ = ["agent_requirements", "job_requirements"]

_BACKENDS = ("hashmap", "rocksdb", "forst")
_FOLDERS = (
    "execution.checkpointing.dir",
    "execution.checkpointing.savepoint-dir",
    "high-availability.storageDir",
)


def agent_requirements(builder: JobBuilder, agent: AgentBuilder, plan: AgentPlan) -> Iterator[Problem]:
    """Yield what the workers of an agent would not find on this machine."""
    from flink_skills.flink.submit_checks import check_artifacts, embed_lock

    read, config = builder.read, SkillConfig(plan.options)

    def placed(key: str) -> ProblemPath:
        return ("options", key) if key in read.job.options else agent.stage.agent_at

    steps: list[tuple[ProblemPath, Callable[[], object]]] = [
        (placed(SkillOptions.LOCK.key), lambda: embed_lock(plan, local=True)),
        (placed(SkillOptions.ARTIFACTS_DIR.key), lambda: check_artifacts(plan, local=True)),
    ]
    if plan.runs_commands:
        steps.append((placed(SkillOptions.SHELL_BACKEND.key), lambda: check_isolation(config)))
    for path, step in steps:
        try:
            step()
        except SkillsError as error:
            yield read.problem(path, str(error)).problems[0]
    for each in plan.tree():
        for model in each.models:
            try:
                asyncio.run(create_model(model.setup, config).close())
            except SkillsError as error:
                yield read.problem(agent.stage.agent_at, f"chat model {model.name!r}: {error}").problems[0]


def job_requirements(builder: JobBuilder) -> Iterator[Problem]:
    """Yield options of Flink that this machine cannot use. What another machine may have is ``not_here``."""
    graph = builder.graph
    backend = graph.option("state.backend.type") or ""
    # A name with dots is the class of a factory.
    if backend and "." not in backend and backend.lower() not in _BACKENDS:
        unknown = UnknownNameError("state backend", backend, _BACKENDS)
        yield builder.option_problem("state.backend.type", str(unknown))
    python = builder.read.settings.flink.get("python.executable")
    if python and shutil.which(python) is None:
        problem = builder.option_problem("python.executable", f"there is no program {python!r}")
        yield replace(problem, not_here=("Python interpreter", python))
    for key in _FOLDERS:
        folder = graph.option(key) or ""
        scheme = folder.partition("://")[0]
        if "://" in folder and not graph.has_file_system(folder):
            problem = builder.option_problem(key, f"there is no file system for {scheme}:// on this machine")
            yield replace(problem, not_here=("file system", f"{scheme}://"))
