"""Actual command isolation: the canaries that prove a level, and the choice of a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.execution.isolation.backend_choice import choose_backend as choose_backend
    from flink_skills.execution.isolation.backend_choice import open_backend as open_backend
    from flink_skills.execution.isolation.canaries import REQUIRED as REQUIRED
    from flink_skills.execution.isolation.canaries import Findings as Findings
    from flink_skills.execution.isolation.canaries import prove as prove
    from flink_skills.execution.isolation.canaries import proved_level as proved_level

_HOMES = {
    "Findings": "canaries",
    "REQUIRED": "canaries",
    "choose_backend": "backend_choice",
    "open_backend": "backend_choice",
    "prove": "canaries",
    "proved_level": "canaries",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
