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

    __slots__ = ("_new", "_said")

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._new: dict[str, str] = {}

    def text(self, speakers: Mapping[str, Speaker], entry: Mapping[str, Any] | None) -> str:
        """Return the additions to a request, the same text of several tools once.

        ``entry`` is the response to the request in the journal, None without one.
        """
        self._new = {}
        if entry is not None:
            self._said.update(entry.get("p", {}))
        for name, speaker in speakers.items():
            if name not in self._said:
                self._said[name] = self._new[name] = _asked(name, speaker)
        return "\n\n".join(dict.fromkeys(text for name in speakers if (text := self._said[name])))

    def take_new(self) -> Mapping[str, str]:
        """Return the additions that :meth:`text` got for its step, for the journal."""
        new, self._new = self._new, {}
        return new


def _asked(name: str, speaker: Speaker) -> str:
    try:
        return str(speaker.prompt_addition() or "").strip()
    except Exception:  # tools are the user's
        _log.exception("tool %s: prompt_addition() failed; the system prompt has no addition of this tool", name)
        return ""
