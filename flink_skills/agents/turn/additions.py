"""Additions of tools to the system text of models. A repeated request has the same additions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from flink_skills.tools.toolset import Speaker

__all__ = ["Additions"]

_log = logging.getLogger(__name__)


class Additions:
    """The additions of one chat.

    A tool is asked for its addition when it is first offered. The journal stores the addition with the response to that
    request. A request after a failover therefore has the same addition, even if the tool returns another one by now,
    such as the next month.
    """

    __slots__ = ("_said", "new")

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        #: The additions of the last request that no earlier one had. The journal stores them with its response.
        self.new: dict[str, str] = {}

    def text(self, speakers: Mapping[str, Speaker]) -> str:
        """Return the additions to a request, the same text of several tools once."""
        self.new = {}
        for name, speaker in speakers.items():
            if name not in self._said:
                self._said[name] = self.new[name] = _asked(name, speaker)
        return "\n\n".join(dict.fromkeys(text for name in speakers if (text := self._said[name])))

    def replay(self, entry: Mapping[str, Any]) -> None:
        """Use the additions that the journal has with a response."""
        self._said.update(entry.get("p", {}))


def _asked(name: str, speaker: Speaker) -> str:
    try:
        return str(speaker.prompt_addition() or "").strip()
    except Exception:  # tools are the user's
        _log.exception("tool %s: prompt_addition() failed; the system prompt has no addition of this tool", name)
        return ""
