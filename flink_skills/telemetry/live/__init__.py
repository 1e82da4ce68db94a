"""Running turns in protocols of user interfaces and other agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.telemetry.live.a2a import a2a_message as a2a_message
    from flink_skills.telemetry.live.ag_ui import DISCARDED as DISCARDED
    from flink_skills.telemetry.live.ag_ui import AgUiObserver as AgUiObserver

_HOMES = {
    "AgUiObserver": "ag_ui",
    "DISCARDED": "ag_ui",
    "a2a_message": "a2a",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
