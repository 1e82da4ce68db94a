"""Whether a program that runs seems to wait for input, told from what it printed last."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["Interaction", "find_interaction"]

_PROMPT = re.compile(r"press (?:enter|return|any key)|type your", re.IGNORECASE)
# "[y/N]", "(yes/no)", "[Y,n,q]:" at the end: what may be answered.
_CHOICE = re.compile(r"[\[(]\s*(?:y|yes|n|no)(?:\s*[/|,]\s*[\w?]+)+\s*[\])]\s*[:?>]*$", re.IGNORECASE)
_NUMBER = re.compile(r"\b(?:enter|choose|select|pick)\b.{0,40}\bnumber\b", re.IGNORECASE)
_ITEM = re.compile(r"\s*[\[(]?\d{1,3}[.)\]](?!\d)\s*\S")
_MAX_HINT_LENGTH = 200


@dataclass(frozen=True)
class Interaction:
    """What a program seems to wait for; ``hint`` is the line that says so."""

    kind: Literal["prompt", "selection"]
    hint: str

    def to_json(self) -> dict[str, object]:
        return {"needs_input": True, "kind": self.kind, "hint": self.hint}


def find_interaction(text: str) -> Interaction | None:
    """What the program that printed ``text`` since its last input waits for; None if nothing tells.

    A guess: programs also end lines of a report with a colon.

    >>> find_interaction("1. red\\n2. blue\\nColour? ")
    Interaction(kind='selection', hint='Colour?')
    >>> find_interaction("done\\n") is None
    True
    """
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return None
    last = lines[-1].strip()
    hint = last if len(last) <= _MAX_HINT_LENGTH else "…" + last[-_MAX_HINT_LENGTH:]
    if _NUMBER.search(last) or sum(1 for line in lines if _ITEM.match(line)) >= 2:
        return Interaction("selection", hint)
    if last.endswith((":", "?")) or _PROMPT.search(last) or _CHOICE.search(hint):
        return Interaction("prompt", hint)
    return None
