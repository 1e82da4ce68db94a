"""Execution backends by name, imported when they are asked for.

Other packages add one through the entry point group ``flink_skills.execution``; the entry point's name is the
backend's and its object is called with the :class:`~flink_skills.execution.BackendSettings`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.execution.backend import BackendSettings, ExecutionBackend

__all__ = ["ENTRY_POINT_GROUP", "backend_names", "create_backend", "register_backend"]

ENTRY_POINT_GROUP = "flink_skills.execution"

BackendFactory = Callable[[BackendSettings], ExecutionBackend]

_backends: dict[str, str | BackendFactory] = {
    "bwrap": "flink_skills.execution.backends.bwrap:BwrapBackend",
    "hygiene": "flink_skills.execution.backends.hygiene:HygieneBackend",
    "landlock": "flink_skills.execution.backends.landlock:LandlockBackend",
    "remote": "flink_skills.execution.backends.remote:RemoteBackend",
}

_HINTS = {"remote": ": install flink-skills[remote]"}


def register_backend(name: str, factory: BackendFactory) -> None:
    """Make ``factory`` known as ``name``; raises :class:`ConfigError` if the name is taken."""
    if name in _backends:
        raise ConfigError(f"execution backend {name!r} exists already: choose another name")
    _backends[name] = factory


def backend_names() -> list[str]:
    """The names that :func:`create_backend` knows, sorted."""
    return sorted({*_backends, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def create_backend(name: str, settings: BackendSettings | None = None) -> ExecutionBackend:
    """A new backend, not yet started.

    Raises :class:`UnknownNameError` with near misses, and :class:`ConfigError` where the backend's package
    cannot be imported.

    >>> create_backend("hygiene").level.name
    'HYGIENE'
    """
    entry = _backends.get(name)
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
        raise ConfigError(f"execution backend {name!r} gave a {type(backend).__name__}, not an ExecutionBackend")
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
