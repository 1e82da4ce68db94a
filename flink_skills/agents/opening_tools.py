"""Opens and closes what the tools of an agent work with, once for a worker."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path

from flink_skills.agents.declaration import Declaration, declared_pool
from flink_skills.artifacts import ArtifactStore
from flink_skills.tools import ShellRunner
from flink_skills.tools.dynamic.bundled import BundledTools
from flink_skills.tools.dynamic.pool import ToolPool
from flink_skills.tools.interactive.sessions import ProcessSessions
from flink_skills.tools.services import ToolServices

__all__ = ["close_shell", "with_pool", "with_shell"]


async def with_shell(services: ToolServices, shell: ShellRunner | None) -> ToolServices:
    """The services of a job: artifacts, and what needs commands where it can run them.

    Raises :class:`~flink_skills.errors.ConfigError` for a place of artifacts that cannot be used.
    """
    # In a thread: a file system may have to be asked.
    services = replace(services, shell=shell, artifacts=await asyncio.to_thread(ArtifactStore.open, services.config))
    if shell is None:
        return services
    config = services.config
    return replace(services, sessions=ProcessSessions(shell, config), bundled=BundledTools(shell, config))


async def with_pool(services: ToolServices, declared: Declaration, scratch_dir: str, operator: str) -> ToolServices:
    """The services with the tool sets and the pool of tools that an agent declares, started.

    A worker that replaces another one opens without a required tool set that the other one had, because the turns of
    the job do not need it to continue. A file in ``scratch_dir``, named after ``operator``, records that the agent was
    opened.

    Raises :class:`~flink_skills.errors.SkillsError` for a required tool set that cannot start.
    """
    pool = declared_pool(declared)
    toolsets = ToolPool(declared.toolsets, owner=declared.agent_id) if declared.toolsets else None
    opened = Path(scratch_dir, f"opened-{hashlib.sha256(operator.encode()).hexdigest()[:16]}")
    was_opened = await asyncio.to_thread(opened.exists)
    for given in declared.all_toolsets:
        given.attach(services)
        given.required = given.required and not was_opened
    pools = [one for one in (pool, toolsets) if one is not None]
    try:
        for one in pools:
            await one.initialize()
    except BaseException:
        for one in pools:
            await one.close()
        raise
    if any(given.required for given in declared.all_toolsets):
        await asyncio.to_thread(_create, opened)
    return replace(services, pool=pool, toolsets=toolsets)


def _create(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


async def close_shell(services: ToolServices) -> None:
    """End all processes of a job."""
    if services.bundled is not None:
        await services.bundled.close()
    if services.sessions is not None:
        await services.sessions.close()
    if services.shell is not None:
        await services.shell.close()
