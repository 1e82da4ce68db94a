"""The service behind the tools that run commands: one per worker, shared by all turns."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from flink_skills.execution import (
    CommandRequest,
    CommandResult,
    ExecutionBackend,
    Limits,
    Workspace,
    WorkspaceManager,
    create_backend,
)
from flink_skills.execution.environment import passed_on
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["ShellRunner"]


class ShellRunner:
    """Runs shell commands in workspaces, under the limits of the job.

    ``backend`` has to be started; :meth:`start` does both. Raises
    :class:`~flink_skills.errors.ConfigError` for options that cannot be used.

    >>> shell = await ShellRunner.start(SkillConfig(), WorkspaceManager("/tmp/job-7"))
    >>> result = await shell.run("echo hi", workspace=shell.workspaces.for_key("k"))
    >>> result.stdout
    b'hi\\n'
    """

    def __init__(
        self, backend: ExecutionBackend, workspaces: WorkspaceManager, config: SkillConfig | None = None
    ) -> None:
        config = config or SkillConfig()
        self.backend = backend
        self.workspaces = workspaces
        self.max_timeout = config.get(SkillOptions.SHELL_MAX_TIMEOUT)
        names: tuple[str, ...] = config.get(SkillOptions.SHELL_ENV)
        self._passed_on = passed_on(os.environ, names)
        self._limits = Limits(
            memory_bytes=config.get(SkillOptions.SHELL_MAX_MEMORY),
            file_bytes=config.get(SkillOptions.SHELL_MAX_FILE_SIZE),
            output_bytes=config.get(SkillOptions.SHELL_MAX_OUTPUT),
        )
        self._slots = asyncio.Semaphore(config.get(SkillOptions.SHELL_MAX_CONCURRENT))
        self._shell = shutil.which("bash", path="/bin:/usr/bin:/usr/local/bin") or "/bin/sh"

    @classmethod
    async def start(cls, config: SkillConfig, workspaces: WorkspaceManager) -> ShellRunner:
        """Make and start the backend that the option ``skills.shell.backend`` names.

        Raises :class:`~flink_skills.errors.UnknownNameError` for a backend that nobody knows, and
        :class:`~flink_skills.errors.ExecutionError` where it cannot start.
        """
        shell = cls(create_backend(config.get(SkillOptions.SHELL_BACKEND)), workspaces, config)
        await shell.backend.start()
        return shell

    @property
    def level(self) -> str:
        """The isolation level of commands, such as ``HYGIENE``."""
        return self.backend.level

    async def run(
        self,
        command: str,
        *,
        workspace: Workspace,
        cwd: Path | None = None,
        run_dir: Path | None = None,
        skill_name: str | None = None,
        call_id: str = "",
        stdin: bytes = b"",
        timeout: float | None = None,
    ) -> CommandResult:
        """Run ``command`` with the shell; waits for a free slot first.

        ``timeout`` (seconds) is cut to the job's longest. Without ``cwd`` it runs in ``work/``.
        Raises :class:`~flink_skills.errors.ExecutionError` where the workspace cannot be used.
        """
        async with self._slots:
            await asyncio.to_thread(workspace.ensure)
            own_run = run_dir is None
            folder = run_dir or workspace.new_run()
            try:
                return await self.backend.run(
                    CommandRequest(
                        argv=(self._shell, "-c", command),
                        cwd=str(cwd or workspace.work_dir),
                        env={**self._passed_on, **workspace.env(skill_name, call_id, folder)},
                        stdin=stdin,
                        timeout=min(timeout or self.max_timeout, self.max_timeout),
                        limits=self._limits,
                        writable=tuple(
                            str(path)
                            for path in (
                                workspace.work_dir,
                                workspace.out_dir,
                                workspace.runs_dir,
                                workspace.tmp_dir,
                            )
                        ),
                        readable=(str(workspace.skills_dir),),
                    )
                )
            finally:
                if own_run:
                    workspace.end_run(folder)

    async def close(self) -> None:
        """End all commands. The workspaces stay: their manager removes them."""
        await self.backend.close()
