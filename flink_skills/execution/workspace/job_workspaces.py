"""Locations of workspaces: those of a job, those of killed jobs, and temporary ones for commands without a job."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flink_skills.errors import ConfigError, ExecutionError, IsolationError, UnknownNameError
from flink_skills.execution.backend_registry import backend_names, command_user
from flink_skills.execution.request import CommandUser
from flink_skills.execution.workspace.manager import WorkspaceManager, remove_abandoned
from flink_skills.execution.workspace.safe_files import DOOMED, remove_tree, restore_folder
from flink_skills.options import SkillConfig, SkillOptions

_JOB_PREFIX = "flink-skills-"
_WORKSPACES = "workspaces"
_log = logging.getLogger("flink_skills.workspace")


def open_workspaces(
    config: SkillConfig, *, agent_id: str, scratch_dir: str, user: CommandUser | None = None
) -> WorkspaceManager:
    """The workspaces of one agent of one job, by the options ``skills.workspace.*``.

    Two agents with equal keys must not meet, so each has a folder of its own. They are in ``scratch_dir``, the
    job's folder on this machine, or in a folder of the same name below ``skills.workspace.dir``. There, folders of
    other jobs whose workers are dead are removed first, which may take long: call it from a thread.

    Raises :class:`~flink_skills.errors.ConfigError` for options that cannot be used on this machine.
    """
    agent = hashlib.sha256(agent_id.encode()).hexdigest()[:16]
    scratch = Path(scratch_dir).absolute()
    chosen = config.get(SkillOptions.WORKSPACE_DIR)
    if chosen:
        name = scratch.name if scratch.name.startswith(_JOB_PREFIX) else _JOB_PREFIX + scratch.name
        # A worker that died has left its own job's workspaces to the one that takes its place.
        remove_leftovers(Path(chosen), spare=name)
        top = Path(chosen) / name
        root = top / _WORKSPACES / agent
    else:
        top = scratch / _WORKSPACES
        root = top / agent
    return WorkspaceManager(
        root,
        user=user,
        inputs=config.get(SkillOptions.WORKSPACE_INPUTS),
        ttl=config.get(SkillOptions.WORKSPACE_TTL),
        top=top,
        passages=() if chosen else (scratch,),
    )


def remove_leftovers(folder: Path, spare: str = "") -> None:
    """Remove the jobs that were killed, but not ``spare``, from a folder of jobs. What stays is logged."""
    for job in _folders(folder):
        if not job.name.startswith(_JOB_PREFIX) or job.name == spare or not _is_own(job):
            continue
        removed = False
        with suppress(OSError):  # a command of that job may have closed them
            restore_folder(job)
            restore_folder(job / _WORKSPACES)
        for agent in _folders(job / _WORKSPACES):
            try:
                if agent.name.startswith(DOOMED):
                    remove_tree(agent)
                else:
                    removed |= remove_abandoned(agent)
            except (OSError, ExecutionError) as error:
                _log.warning("removing the workspaces in %s of a killed process failed: %s", agent, error)
        if removed:
            _log.info("removed the workspaces in %s of a killed process", job)
        with suppress(OSError):  # a worker that lives has one in there
            (job / _WORKSPACES).rmdir()
            job.rmdir()


def _is_own(folder: Path) -> bool:
    """Return False for the folder of another user, which that user can change during the removal."""
    with suppress(OSError):
        return folder.lstat().st_uid == os.geteuid()
    return False


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def check_commands(config: SkillConfig) -> None:
    """Check that the options allow commands.

    Raises :class:`ConfigError` if commands are disabled, and :class:`UnknownNameError` for an unknown backend.
    """
    if not config.get(SkillOptions.SHELL_ENABLED):
        raise ConfigError(f"option {SkillOptions.SHELL_ENABLED.key} is false, so commands are disabled: remove it")
    name = config.get(SkillOptions.SHELL_BACKEND)
    known = ["auto", *backend_names()]
    if name not in known:
        raise UnknownNameError("execution backend", name, known)


@contextmanager
def scratch_workspaces(config: SkillConfig) -> Iterator[WorkspaceManager]:
    """Provide workspaces in a new folder, below ``skills.workspace.dir`` or for temporary files, and remove them.

    Raises :class:`ExecutionError` if the folder cannot be created or its content cannot be removed.
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
        shutil.rmtree(scratch, ignore_errors=True)  # workspaces.close() has removed or reported the files of commands
