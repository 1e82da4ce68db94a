"""Temporary workspaces for commands that no job runs."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator

from flink_skills.errors import ConfigError, ExecutionError, IsolationError, UnknownNameError
from flink_skills.execution.backend_registry import backend_names, command_user
from flink_skills.execution.workspace.manager import WorkspaceManager
from flink_skills.execution.workspace.opening import open_workspaces
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["check_commands", "scratch_workspaces"]


def check_commands(config: SkillConfig) -> None:
    """Raise where the options turn commands off (:class:`ConfigError`) or name a backend that nobody has
    (:class:`UnknownNameError`)."""
    if not config.get(SkillOptions.SHELL_ENABLED):
        raise ConfigError(f"option {SkillOptions.SHELL_ENABLED.key} is false, so commands are disabled: remove it")
    name = config.get(SkillOptions.SHELL_BACKEND)
    known = ["auto", *backend_names()]
    if name not in known:
        raise UnknownNameError("execution backend", name, known)


@contextlib.contextmanager
def scratch_workspaces(config: SkillConfig) -> Iterator[WorkspaceManager]:
    """Workspaces in a new folder, below ``skills.workspace.dir`` or where temporary files go; removed at the end.

    Raises :class:`ExecutionError` where no folder can be made or something in it cannot be removed.
    """
    try:
        scratch = tempfile.mkdtemp(prefix="flink-skills-scratch-")
    except OSError as error:
        raise ExecutionError(
            f"creating a temporary folder for workspaces failed ({error}): set TMPDIR to a writable folder"
        ) from error
    try:
        try:
            user = command_user(config)
        except IsolationError:
            user = None  # choosing a backend fails for the same reason, and says it in its report
        workspaces = open_workspaces(config, agent_id="flink-skills", scratch_dir=scratch, user=user)
        try:
            yield workspaces
        finally:
            workspaces.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # what a command left there has been removed, or been told
