"""The execution backends of this package; :mod:`flink_skills.execution.backend_registry` has their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.execution.backends.bwrap import BwrapBackend as BwrapBackend
    from flink_skills.execution.backends.landlock import LandlockBackend as LandlockBackend
    from flink_skills.execution.backends.local_backend import HygieneBackend as HygieneBackend
    from flink_skills.execution.backends.local_backend import LocalBackend as LocalBackend

_HOMES = {
    "BwrapBackend": "bwrap",
    "HygieneBackend": "local_backend",
    "LandlockBackend": "landlock",
    "LocalBackend": "local_backend",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
