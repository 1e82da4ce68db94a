"""What a request to a model has: which skills are still loaded, where their content stands, which tools there are.

All of it follows from the conversation, its skill state and its journal, so that a request is the same when a turn is
restarted. A request begins with the bytes of the one before as long as no skill is loaded, put away or chosen from in
between: what is loaded stands behind everything fixed, and nothing else of the fixed text ever changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.answers import AnswerType
from flink_skills.agents.state.history import placed
from flink_skills.models.media import has_media
from flink_skills.models.messages import Message, ModelRequest
from flink_skills.models.well_formed import well_formed
from flink_skills.options import SkillOptions
from flink_skills.tools.calling.toolset import Speaker
from flink_skills.tools.skills.skill_prompts import skill_block, system_block

if TYPE_CHECKING:
    from flink_skills.agents.open.generation import ModelRuntime
    from flink_skills.agents.turn.conversation import Conversation
    from flink_skills.tools import SkillState

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


_NOWHERE_ELSE = "Loaded skill context:"


async def build_request(
    conversation: Conversation,
    messages: Sequence[Message],
    answer_type: AnswerType,
    *,
    system: str,
    additions: Additions,
) -> ModelRequest:
    """Return the next request of a conversation.

    ``system`` is the fixed part of the system text, and ``additions`` are those of the chat.
    """
    model, state = conversation.model, conversation.skill_state
    tools = await conversation.tools()
    if tools.speakers:
        system = _joined(system, additions.text(tools.speakers))
    results = conversation.skill_results(messages)
    if len(state) and conversation.has_changed_skills():
        # Files may have to be read, and other turns run on this loop. Later they are in memory.
        system, messages = await asyncio.to_thread(_materialised, model, system, state, messages, results)
    elif len(state) or results:
        system, messages = _materialised(model, system, state, messages, results)
    if has_media(messages[conversation.without_media() :]):
        messages = await conversation.agent_turn.media.loaded(messages, model.chat_model.accepts)
    affinity = conversation.agent_turn.affinity
    return model.request(well_formed(system), messages, tools.specs(), answer_type, affinity=affinity)


def _materialised(
    model: ModelRuntime, system: str, state: SkillState, messages: Sequence[Message], results: Sequence[int]
) -> tuple[str, Sequence[Message]]:
    most = model.services.config.get(SkillOptions.PROMPT_MAX_DOC_CHARS)
    changed, homes = placed(messages, results, state, model.settings.content)
    homeless = []
    for name in sorted(state) if model.settings.content != "system" else ():
        at, home = homes.get(name, (-1, None))
        if home is not None and not home.stub:
            continue  # the conversation itself has it
        block = skill_block(name, state[name], model.view, max_doc_chars=most)
        if home is None:
            homeless.append(block)
        else:
            changed[at] = replace(home, content=well_formed(block))
    if changed:
        messages = [changed.get(at, message) for at, message in enumerate(messages)]
    if model.settings.content == "system":
        return _joined(system, system_block(state, model.view, max_doc_chars=most)), messages
    return _joined(system, *([_NOWHERE_ELSE, *homeless] if homeless else [])), messages


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
