"""The execution backends of this package, one module each; :mod:`flink_skills.execution.registry` names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.execution.backends.bwrap import BwrapBackend as BwrapBackend
    from flink_skills.execution.backends.hygiene import HygieneBackend as HygieneBackend
    from flink_skills.execution.backends.landlock import LandlockBackend as LandlockBackend
    from flink_skills.execution.backends.local import LocalBackend as LocalBackend
    from flink_skills.execution.backends.none import NoIsolationBackend as NoIsolationBackend

_HOMES = {
    "BwrapBackend": "bwrap",
    "HygieneBackend": "hygiene",
    "LandlockBackend": "landlock",
    "LocalBackend": "local",
    "NoIsolationBackend": "none",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
