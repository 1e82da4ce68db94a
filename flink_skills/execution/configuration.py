"""What the options of a job say about commands."""

from __future__ import annotations

import os
from typing import Any

from flink_skills.errors import IsolationError
from flink_skills.execution.backend import BackendSettings
from flink_skills.execution.process_status import own_status
from flink_skills.execution.request import CommandUser, Limits
from flink_skills.options import Option, SkillConfig, SkillOptions
from flink_skills.sources.secrets import expand

__all__ = ["command_user", "limits_from", "settings_from"]

# What a worker of root needs to run commands as another user: CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID.
_NEEDED = {0: "CAP_CHOWN", 5: "CAP_KILL", 6: "CAP_SETGID", 7: "CAP_SETUID"}

_REMOTE: dict[str, Option[Any]] = {
    "url": SkillOptions.SHELL_REMOTE_URL,
    "api": SkillOptions.SHELL_REMOTE_API,
    "namespace": SkillOptions.SHELL_REMOTE_NAMESPACE,
    "template": SkillOptions.SHELL_REMOTE_TEMPLATE,
    "warm-pool": SkillOptions.SHELL_REMOTE_WARM_POOL,
    "port": SkillOptions.SHELL_REMOTE_PORT,
    "token": SkillOptions.SHELL_REMOTE_TOKEN,
    "router-token": SkillOptions.SHELL_REMOTE_ROUTER_TOKEN,
    "ca-file": SkillOptions.SHELL_REMOTE_CA_FILE,
    "start-timeout": SkillOptions.SHELL_REMOTE_START_TIMEOUT,
    "idle-timeout": SkillOptions.SHELL_REMOTE_IDLE_TIMEOUT,
}


def limits_from(config: SkillConfig) -> Limits:
    """The limits of every command of the job."""
    return Limits(
        wall_time=config.get(SkillOptions.SHELL_MAX_TIMEOUT),
        cpu_time=config.get(SkillOptions.SHELL_MAX_CPU_TIME),
        memory=config.get(SkillOptions.SHELL_MAX_MEMORY),
        processes=config.get(SkillOptions.SHELL_MAX_PROCESSES),
        file_size=config.get(SkillOptions.SHELL_MAX_FILE_SIZE),
        workspace_bytes=config.get(SkillOptions.WORKSPACE_MAX_SIZE),
        workspace_files=config.get(SkillOptions.WORKSPACE_MAX_FILES),
        open_files=config.get(SkillOptions.SHELL_MAX_OPEN_FILES),
        output=config.get(SkillOptions.SHELL_MAX_OUTPUT),
    )


def settings_from(config: SkillConfig) -> BackendSettings:
    """What backends are made with.

    Raises :class:`IsolationError` where the worker is root and cannot become another user, and :class:`ConfigError` for
    a secret that cannot be read.
    """
    return BackendSettings(
        user=command_user(config),
        readable=(*config.get(SkillOptions.SHELL_READABLE), *config.get(SkillOptions.WORKSPACE_INPUTS)),
        network=config.get(SkillOptions.SHELL_NETWORK) == "allow",
        hosts=config.get(SkillOptions.SHELL_NETWORK_HOSTS),
        options={
            name: expand(value) if isinstance(value, str) else str(value)
            for name, value in ((name, config.get(option)) for name, option in _REMOTE.items())
        },
    )


def command_user(config: SkillConfig) -> CommandUser | None:
    """The user that commands run as; None when it is the worker's own.

    Root is never the answer: as root a command could reach the machine from within most sandboxes. Raises
    :class:`IsolationError` for a root that is not allowed to become somebody else.
    """
    # In another pod the worker's user is nobody.
    if os.geteuid() != 0 or config.get(SkillOptions.SHELL_BACKEND) == "remote":
        return None
    missing = [name for number, name in _NEEDED.items() if not _effective_capabilities() >> number & 1]
    if missing:
        raise IsolationError(
            f"this worker is root without {', '.join(missing)}, so it cannot run commands as another user: run the "
            "TaskManager as a user (securityContext: runAsUser: 9999, runAsNonRoot: true), or allow these capabilities"
        )
    uid, _, gid = config.get(SkillOptions.SHELL_USER).partition(":")
    return CommandUser(int(uid), int(gid))


def _effective_capabilities() -> int:
    return int(own_status("CapEff") or "0", 16)
