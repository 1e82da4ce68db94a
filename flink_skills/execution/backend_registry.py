"""Execution backends by name, imported on first use, and their settings from the options of a job.

Other packages add one through the entry point group ``flink_skills.execution``; the entry point's name is the
backend's and its object is called with the :class:`~flink_skills.execution.BackendSettings`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from flink_skills.errors import ConfigError, IsolationError, UnknownNameError
from flink_skills.execution.execution_backend import BackendSettings, ExecutionBackend
from flink_skills.execution.host import own_status
from flink_skills.execution.request import CommandUser, Limits
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.secrets import expand

ENTRY_POINT_GROUP = "flink_skills.execution"

BackendFactory = Callable[[BackendSettings], ExecutionBackend]

_OWN = {
    "bwrap": "flink_skills.execution.backends.bwrap:BwrapBackend",
    "hygiene": "flink_skills.execution.backends.local_backend:HygieneBackend",
    "landlock": "flink_skills.execution.backends.landlock:LandlockBackend",
    "remote": "flink_skills.integrations.remote:RemoteBackend",
}

# Capabilities that a worker of root needs to run commands as another user: CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID.
_NEEDED = {0: "CAP_CHOWN", 5: "CAP_KILL", 6: "CAP_SETGID", 7: "CAP_SETUID"}

_REMOTE_OPTIONS = "skills.shell.remote."

_registered: dict[str, BackendFactory] = {}

_HINTS = {"remote": ": install flink-skills[remote]"}


def register_backend(name: str, factory: BackendFactory, *, replace: bool = False) -> None:
    """Register ``factory`` as ``name``. Raises :class:`ConfigError` if the name is taken, unless ``replace``."""
    if not replace and (name in _OWN or name in _registered):
        raise ConfigError(f"execution backend {name!r} already exists: choose another name, or pass replace=True")
    _registered[name] = factory


def unregister_backend(name: str) -> None:
    """Remove the backend that was registered as ``name``, if any, and restore the one of this package."""
    _registered.pop(name, None)


def backend_names() -> list[str]:
    """Return the names that :func:`create_backend` accepts, sorted."""
    return sorted({*_OWN, *_registered, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def create_backend(name: str, settings: BackendSettings | None = None) -> ExecutionBackend:
    """Return a new backend, not yet started.

    Raises :class:`UnknownNameError` with close matches, and :class:`ConfigError` if the backend's package cannot be
    imported.

    >>> create_backend("hygiene").level.name
    'HYGIENE'
    """
    factory = _registered.get(name) or _load(name)
    backend = factory(settings or BackendSettings())
    if not isinstance(backend, ExecutionBackend):
        raise ConfigError(
            f"execution backend {name!r} returned a {type(backend).__name__} instead of an ExecutionBackend"
        )
    return backend


def _load(name: str) -> BackendFactory:
    own = _OWN.get(name)
    point = (
        EntryPoint(name, own, ENTRY_POINT_GROUP)
        if own
        else next(iter(entry_points(group=ENTRY_POINT_GROUP, name=name)), None)
    )
    if point is None:
        raise UnknownNameError("execution backend", name, backend_names(), place="skills.shell.backend")
    try:
        factory: BackendFactory = point.load()
    except ImportError as error:
        shown = repr(name) if own else f"{name!r} ({point.value})"
        fix = _HINTS.get(name, "") if own else ": install its package"
        raise ConfigError(f"execution backend {shown} cannot be imported: {error}{fix}") from error
    return factory


def limits_from(config: SkillConfig) -> Limits:
    """Return the limits of every command of the job."""
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
    """Return the settings of backends.

    Raises :class:`IsolationError` if the worker is root and cannot become another user, and :class:`ConfigError` for
    a secret that cannot be read.
    """
    return BackendSettings(
        user=command_user(config),
        readable=(*config.get(SkillOptions.SHELL_READABLE), *config.get(SkillOptions.WORKSPACE_INPUTS)),
        network=config.get(SkillOptions.SHELL_NETWORK) == "allow",
        hosts=config.get(SkillOptions.SHELL_NETWORK_HOSTS),
        options={
            option.key.removeprefix(_REMOTE_OPTIONS): expand(str(config.get(option)))
            for option in SkillOptions.all()
            if option.key.startswith(_REMOTE_OPTIONS)
        },
    )


def command_user(config: SkillConfig) -> CommandUser | None:
    """Return the user that commands run as. Return None if it is the worker's own.

    It is never root, because a command of root can leave most sandboxes. Raises :class:`IsolationError` for a root that
    is not allowed to become another user.
    """
    # Another pod does not have the worker's user.
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
