"""Skills, tools and sub-agents that control records have paused or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_ADVICE = {"pause": "Continue without it.", "refuse": "Do not use it again, and continue without it."}


class CallControl:
    """The control of the calls of one operator's turns. A worker replaces its entries while turns run.

    >>> control = CallControl()
    >>> control.update(b'[{"action": "refuse", "target": "tool", "name": "pay", "agent": "", "reason": "pays twice"}]')
    >>> control.denial("tool", "pay", "desk")
    'tool pay is refused: pays twice. Do not use it again, and continue without it.'
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: Mapping[tuple[str, str, str], Mapping[str, Any]] = {}

    def __bool__(self) -> bool:
        """Return True if anything is paused or refused."""
        return bool(self._entries)

    def update(self, entries: bytes) -> None:
        """Replace all entries. ``entries`` is a JSON array."""
        self._entries = {(of["target"], of["name"], of["agent"]): of for of in json.loads(entries)}

    def denial(self, target: str, name: str, agent: str) -> str:
        """Return the reason for a model why a call of ``agent`` does not run, an empty string if it can.

        Args:
            target: ``skill``, ``tool`` or ``agent``, which is a sub-agent.
            name: Its name.
            agent: The name of the agent that calls.
        """
        found = self._entries.get((target, name, "")) or self._entries.get((target, name, agent))
        if found is None:
            return ""
        state = "paused" if found["action"] == "pause" else "refused"
        return f"{target} {name} is {state}: {found['reason'].rstrip('.')}. {_ADVICE[found['action']]}"
