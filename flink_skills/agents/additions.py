"""What tools add to the system text of models that have them: asked once, and the same when a request is repeated."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from flink_skills.tools.toolset import Speaker

__all__ = ["Additions"]

_log = logging.getLogger(__name__)


class Additions:
    """Of one chat.

    A text is asked for when its tool is first offered, and kept in the journal with the response to that request. So a
    request after a failover has the text of the one before it, also where a tool says something else by then (the
    month, say).
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
        """What :meth:`text` was told for its step and not before; it belongs into the journal."""
        new, self._new = self._new, {}
        return new


def _asked(name: str, speaker: Speaker) -> str:
    try:
        return str(speaker.prompt_addition() or "").strip()
    except Exception:  # tools are the user's
        _log.exception("tool %s: prompt_addition() failed; the system prompt has no addition of this tool", name)
        return ""
