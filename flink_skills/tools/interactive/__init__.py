"""Processes that live longer than one call: started, read, written to and ended by a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.interactive.caller import Caller as Caller
    from flink_skills.tools.interactive.interaction import find_interaction as find_interaction
    from flink_skills.tools.interactive.sessions import ProcessSessions as ProcessSessions
    from flink_skills.tools.interactive.shown_text import ShownText as ShownText
    from flink_skills.tools.interactive.use import caller_of as caller_of

_HOMES = {
    "Caller": "caller",
    "ProcessSessions": "sessions",
    "ShownText": "shown_text",
    "caller_of": "use",
    "find_interaction": "interaction",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
