"""Tells a conversation that a skill which it has loaded is no longer what it was.

Only conversations that go on over events (``session = "key"``) outlive the skills that they have loaded. The note
stands before the event, once; afterwards the skill counts as not loaded, so that ``load_skill`` gives all of it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import Any

from flink_skills.errors import ResourceError
from flink_skills.manager import SkillView
from flink_skills.models.messages import Message, UserMessage
from flink_skills.tools import SkillState
from flink_skills.tools.state import unload_effect

_OPEN, _CLOSE = "<skills_changed>", "</skills_changed>"
_NAME = re.compile(r'<skill name="([^"]*)"')


@dataclass(frozen=True)
class Notice:
    """A loaded skill that is outdated: another version is there (``gone`` is false), or none."""

    skill: str
    gone: bool

    def to_json(self) -> list[Any]:
        """The journal form."""
        return [self.skill, self.gone]


def outdated(state: SkillState, view: SkillView) -> list[Notice]:
    """The loaded skills that ``view`` has in another version, or not at all, in the order of their last use."""
    found = []
    for name in state:
        skill = view.get(name)
        if skill is None:
            found.append(Notice(name, gone=True))
            continue
        try:
            changed = not skill.has_digest(state.digest(name) or "")
        except ResourceError:
            # Nobody can say what it is now; whoever loads it again is told why.
            continue
        if changed:
            found.append(Notice(name, gone=False))
    return found


def journalled(entry: Mapping[str, Any]) -> list[Notice]:
    """The notices of a journalled model response."""
    return [Notice(str(skill), bool(gone)) for skill, gone in entry.get("n", ())]


def forget(notices: Sequence[Notice], state: SkillState) -> None:
    """Take the outdated skills for not loaded."""
    for notice in notices:
        state.apply(unload_effect(notice.skill))


def notice_message(notices: Sequence[Notice]) -> UserMessage:
    """Return the message for the model.

    >>> named_in_notice(notice_message([Notice("a", False)]))
    {'a'}
    """
    lines = [
        f'<skill name="{escape(notice.skill)}">'
        + ("This skill is no longer available." if notice.gone else "This skill has changed: load it again.")
        + "</skill>"
        for notice in notices
    ]
    return UserMessage(
        "\n".join(
            [
                _OPEN,
                "Since these skills were loaded in this conversation they have changed. Do not follow their earlier "
                "instructions any more.",
                *lines,
                _CLOSE,
            ]
        )
    )


def named_in_notice(message: Message) -> set[str]:
    """Return the outdated skills that a message names. The set is empty for any other message."""
    if not isinstance(message, UserMessage):
        return set()
    text = message.content
    if not text.startswith(_OPEN) or not text.endswith(_CLOSE):
        return set()
    return {unescape(name) for name in _NAME.findall(text)}
