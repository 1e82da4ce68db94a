"""Execution backends by name, imported on first use, and their settings from the options of a job.

Other packages add one through the entry point group ``flink_skills.execution``; the entry point's name is the
backend's and its object is called with the :class:`~flink_skills.execution.BackendSettings`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from flink_skills.errors import ConfigError, IsolationError, UnknownNameError
from flink_skills.execution.execution_backend import BackendSettings, ExecutionBackend
from flink_skills.execution.host import own_status
from flink_skills.execution.request import CommandUser, Limits
from flink_skills.options import Option, SkillConfig, SkillOptions
from flink_skills.sources.secrets import expand

__all__ = [
    "ENTRY_POINT_GROUP",
    "backend_names",
    "command_user",
    "create_backend",
    "limits_from",
    "register_backend",
    "settings_from",
    "unregister_backend",
]

ENTRY_POINT_GROUP = "flink_skills.execution"

BackendFactory = Callable[[BackendSettings], ExecutionBackend]

_OWN: dict[str, str | BackendFactory] = {
    "bwrap": "flink_skills.execution.backends.bwrap:BwrapBackend",
    "hygiene": "flink_skills.execution.backends.local_backend:HygieneBackend",
    "landlock": "flink_skills.execution.backends.landlock:LandlockBackend",
    "remote": "flink_skills.execution.backends.remote:RemoteBackend",
}

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

_registered: dict[str, BackendFactory] = {}

_HINTS = {"remote": ": install flink-skills[remote]"}


def register_backend(name: str, factory: BackendFactory, *, replace: bool = False) -> None:
    """Make ``factory`` known as ``name``. Raises :class:`ConfigError` if the name is taken, unless ``replace``."""
    if not replace and (name in _OWN or name in _registered):
        raise ConfigError(f"execution backend {name!r} already exists: choose another name, or pass replace=True")
    _registered[name] = factory


def unregister_backend(name: str) -> None:
    """Remove the backend that was registered as ``name``, if any. One of this package that it replaced is back."""
    _registered.pop(name, None)


def backend_names() -> list[str]:
    """The names that :func:`create_backend` knows, sorted."""
    return sorted({*_OWN, *_registered, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def create_backend(name: str, settings: BackendSettings | None = None) -> ExecutionBackend:
    """A new backend, not yet started.

    Raises :class:`UnknownNameError` with near misses, and :class:`ConfigError` where the backend's package
    cannot be imported.

    >>> create_backend("hygiene").level.name
    'HYGIENE'
    """
    entry = _registered.get(name) or _OWN.get(name)
    if entry is None:
        entry = _from_entry_point(name)
    elif isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        try:
            entry = getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            raise ConfigError(
                f"execution backend {name!r} cannot be imported: {error}{_HINTS.get(name, '')}"
            ) from error
    backend = entry(settings or BackendSettings())
    if not isinstance(backend, ExecutionBackend):
        raise ConfigError(
            f"execution backend {name!r} returned a {type(backend).__name__} instead of an ExecutionBackend"
        )
    return backend


def _from_entry_point(name: str) -> BackendFactory:
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            factory: BackendFactory = point.load()
        except ImportError as error:
            raise ConfigError(
                f"execution backend {name!r} ({point.value}) cannot be imported: {error}: install its package"
            ) from error
        return factory
    raise UnknownNameError("execution backend", name, backend_names(), place="skills.shell.backend")


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
