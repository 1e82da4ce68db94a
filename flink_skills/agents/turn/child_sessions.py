"""The conversations of agents that are tools, where they continue in later calls.

A call returns its messages as an effect. The journal has the effect with the result, so a replay needs no call. The
session of the caller stores the conversations under a prefix, such as ``research@budget/``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flink_skills.agents.state.codec import message_from_json, message_to_json
from flink_skills.agents.state.session import KeptConversation
from flink_skills.models.messages import Message

__all__ = ["ChildSessions", "session_json"]

# Conversations of one tool that a session stores. Models invent names.
_MAX_SESSIONS = 32


def session_json(added: KeptConversation, shortened: Mapping[str, Sequence[Message] | None]) -> dict[str, Any]:
    """Return what a call added to its conversations, for the journal."""
    replaced = {name: [message_to_json(m) for m in of] for name, of in shortened.items() if of is not None}
    return {**added.to_json(), **({"replaced": replaced} if replaced else {})}


class ChildSessions:
    """The continued conversations of the agents that an agent calls in a turn.

    Args:
        kept: The conversations of the caller before the turn.
    """

    __slots__ = ("_kept", "_latest", "_replaced")

    def __init__(self, kept: KeptConversation) -> None:
        self._kept = kept
        # By prefix, in the order of the last use.
        self._latest: dict[str, KeptConversation] = {}
        self._replaced: set[str] = set()

    def get(self, prefix: str) -> KeptConversation:
        """Return the current conversations below a prefix."""
        found = self._latest.get(prefix)
        return self._kept.part(prefix) if found is None else found

    def apply(self, effect: Mapping[str, Any]) -> None:
        """Add a call's messages."""
        prefix = effect["prefix"]
        before = self.get(prefix)
        replaced = {name: list(map(message_from_json, of)) for name, of in effect.get("replaced", {}).items()}
        self._replaced.update(prefix + name for name in replaced)
        self._latest.pop(prefix, None)
        self._latest[prefix] = before.after(KeptConversation.from_json(effect), replaced)

    def added(self) -> KeptConversation:
        """Return what the turn adds to the session of the caller."""
        messages: dict[str, Sequence[Message]] = {}
        skill_states: dict[str, Any] = {}
        for prefix, latest in self._latest.items():
            for name, of in latest.messages.items():
                key = prefix + name
                before = 0 if key in self._replaced else len(self._kept.messages.get(key, ()))
                messages[key] = of[before:]
            skill_states.update({prefix + name: of for name, of in latest.skill_states.items()})
        return KeptConversation(messages, skill_states)

    def shortened(self) -> dict[str, Sequence[Message] | None]:
        """Return the messages that replace those of the session, None for a conversation that is removed.

        A tool has at most 32 conversations in a session. Those without a call in this turn are removed first.
        """
        found: dict[str, Sequence[Message] | None] = dict.fromkeys(self._replaced, ())
        of_tools: dict[str, list[str]] = {}
        for prefix in dict.fromkeys([*(_prefix(key) for key in self._kept.messages), *self._latest]):
            if prefix and prefix not in self._latest:
                of_tools.setdefault(prefix.partition("@")[0], []).append(prefix)
        used = [prefix.partition("@")[0] for prefix in self._latest]
        for tool in dict.fromkeys(used):
            unused = of_tools.get(tool, [])
            excess = len(unused) + used.count(tool) - _MAX_SESSIONS
            for prefix in unused[: max(0, excess)]:
                found.update(dict.fromkeys(key for key in self._kept.messages if key.startswith(prefix)))
        return found


def _prefix(key: str) -> str:
    """Return the prefix of the conversation of an agent that is a tool, an empty string for another conversation."""
    tool, at, rest = key.partition("@")
    name, slash, _ = rest.partition("/")
    return f"{tool}@{name}/" if at and slash else ""
