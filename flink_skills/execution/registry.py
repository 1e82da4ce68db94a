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

__all__ = ["ENTRY_POINT_GROUP", "backend_names", "create_backend", "register_backend", "unregister_backend"]

ENTRY_POINT_GROUP = "flink_skills.execution"

BackendFactory = Callable[[BackendSettings], ExecutionBackend]

_OWN: dict[str, str | BackendFactory] = {
    "bwrap": "flink_skills.execution.backends.bwrap:BwrapBackend",
    "hygiene": "flink_skills.execution.backends.hygiene:HygieneBackend",
    "landlock": "flink_skills.execution.backends.landlock:LandlockBackend",
    "remote": "flink_skills.execution.backends.remote:RemoteBackend",
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
