"""Requirements of a job that this host does not meet, found without a network and without a worker.

The backend for commands starts in another process, because the launcher of commands forks. In a process with Flink's
libraries this would write messages of gRPC to stderr.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flink_skills.documents.document import Path as ProblemPath
from flink_skills.documents.document import Problem
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.execution.workspace.job_workspaces import check_commands, scratch_workspaces
from flink_skills.models.registry import create_model
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools import ShellRunner

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan
    from flink_skills.job.agent_building import AgentBuilder
    from flink_skills.job.building import JobBuilder

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

    def path_of(key: str) -> ProblemPath:
        return ("options", key) if key in read.job.options else agent.stage.agent_at

    steps: list[tuple[ProblemPath, Callable[[], object]]] = [
        (path_of(SkillOptions.LOCK.key), lambda: embed_lock(plan, local=True)),
        (path_of(SkillOptions.ARTIFACTS_DIR.key), lambda: check_artifacts(plan, local=True)),
    ]
    if plan.runs_commands:
        steps.append((path_of(SkillOptions.SHELL_BACKEND.key), lambda: _check_isolation(config)))
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


# Backends whose start needs neither a network nor the modules of the job.
_TRIED = ("auto", "bwrap", "hygiene", "landlock")
_TIMEOUT = 120.0
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; import runpy; runpy.run_module(sys.argv[1], run_name='__main__')"


def _check_isolation(config: SkillConfig) -> None:
    """Raise :class:`ConfigError` if commands cannot run on this machine with the options of a job."""
    check_commands(config)
    if config.get(SkillOptions.SHELL_BACKEND) not in _TRIED:
        return
    try:
        done = subprocess.run(
            # "-m" would import from the current folder first, which may be the folder of an untrusted skill.
            [sys.executable, "-I", "-c", _PROGRAM, __name__, *_search_path()],
            input=json.dumps(config.to_json()),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"the backend for commands has not started within {_TIMEOUT:g} s") from None
    if done.returncode != 0:
        raise ConfigError(f"the backend for commands cannot be started: {done.stderr.strip()[-500:]}")
    problem = json.loads(done.stdout.splitlines()[-1])
    if problem is not None:
        raise ConfigError(problem)


def _search_path() -> list[str]:
    """Return the folders for modules: that of this package, and those of this process without the current one."""
    here = Path.cwd()
    return [str(Path(__file__).parents[2]), *(path for path in sys.path if path and Path(path) != here)]


async def _start(config: SkillConfig) -> None:
    with scratch_workspaces(config) as workspaces:
        shell = await ShellRunner.start(config, workspaces)
        await shell.close()


def _main() -> None:
    problem = None
    try:
        asyncio.run(_start(SkillConfig(json.load(sys.stdin))))
    except SkillsError as error:
        problem = str(error)
    sys.stdout.write(f"{json.dumps(problem)}\n")


if __name__ == "__main__":
    _main()
