"""Opens what the tools of an agent work with, once for a worker."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from flink_skills.agents.declare.declaration import Declaration, declared_pool
from flink_skills.artifacts import ArtifactStore
from flink_skills.tools import ShellRunner
from flink_skills.tools.dynamic.bundled import BundledTools
from flink_skills.tools.dynamic.pool import ToolPool
from flink_skills.tools.interactive.sessions import ProcessSessions
from flink_skills.tools.services import ToolServices

__all__ = ["with_pool", "with_shell"]


async def with_shell(services: ToolServices, shell: ShellRunner | None, stack: AsyncExitStack) -> ToolServices:
    """Return the services of a job with artifacts, and with what runs commands if the job has a ``shell``.

    ``stack`` closes what is opened. Raises :class:`~flink_skills.errors.ConfigError` for a location of artifacts that
    cannot be used.
    """
    # In a thread: a file system may have to be asked.
    services = replace(services, shell=shell, artifacts=await asyncio.to_thread(ArtifactStore.open, services.config))
    if shell is None:
        return services
    config = services.config
    sessions, bundled = ProcessSessions(shell, config), BundledTools(shell, config)
    stack.push_async_callback(sessions.close)
    stack.push_async_callback(bundled.close)
    return replace(services, sessions=sessions, bundled=bundled)


async def with_pool(
    services: ToolServices, declared: Declaration, scratch_dir: str, operator: str, stack: AsyncExitStack
) -> ToolServices:
    """Return the services with the tool sets and the pool of tools that an agent declares, started.

    ``stack`` closes them.

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
    # The pool is closed first.
    for one in (toolsets, pool):
        if one is not None:
            stack.push_async_callback(one.close)
    for one in (pool, toolsets):
        if one is not None:
            await one.initialize()
    if any(given.required for given in declared.all_toolsets):
        await asyncio.to_thread(_create, opened)
    return replace(services, pool=pool, toolsets=toolsets)


def _create(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
