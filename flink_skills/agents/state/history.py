"""How much of a conversation a model is sent again: what is over ``skills.session.max-tokens`` goes, oldest first.

Only conversations that go on over events (``session = "key"``) have a history. It is made shorter before the first
request of a turn to the model, to half of the limit: each time it is, the prefix that providers keep cached begins
anew, so it should be seldom. What is loaded is state and not history: a skill whose instructions stood in a message
that is gone stands in the system text from then on (:mod:`flink_skills.agents.turn.responding`).

The reasoning of earlier turns is omitted first. No provider requires it after its turn, and without it all messages may
fit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flink_skills.models.messages import DOCUMENTS, AssistantMessage, Message, ToolMessage, UserMessage
from flink_skills.skill.skill_inspection import about_tokens
from flink_skills.tools import SkillState
from flink_skills.tools.profiles import LOADERS
from flink_skills.tools.skills.skill_prompts import unloaded_line

# What providers put around a message and a tool call, about.
_FRAME = 4


@dataclass(frozen=True)
class Cut:
    """A conversation in two parts: what goes, and what is kept. Neither has half of a step in it."""

    gone: Sequence[Message]
    kept: Sequence[Message]


def about_tokens_of(messages: Sequence[Message]) -> int:
    """About how many tokens some messages are. An estimate: it must be the same on every machine and for any model."""
    return sum(_tokens(message) for message in messages)


def _tokens(message: Message) -> int:
    found = _FRAME + about_tokens(message.content) + sum(of.about_tokens for of in message.media)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            arguments = call.arguments
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            found += _FRAME + about_tokens(call.name) + about_tokens(text)
        if message.verbatim is not None:
            # Text and calls are in it, too.
            found = max(found, _FRAME + about_tokens(message.verbatim.raw))
    return found


def without_verbatim(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages without their providers' forms.

    Returns the same sequence if no message has one.
    """
    if not any(isinstance(message, AssistantMessage) and message.verbatim is not None for message in messages):
        return messages
    return [
        replace(message, verbatim=None) if isinstance(message, AssistantMessage) and message.verbatim else message
        for message in messages
    ]


def skill_results(messages: Sequence[Message], start: int = 0) -> tuple[int, ...]:
    """Return the positions in ``messages``, from ``start`` on, where results about skills are."""
    later = enumerate(messages[start:], start)
    return tuple(at for at, message in later if isinstance(message, ToolMessage) and message.skill)


def placed(
    messages: Sequence[Message], results: Sequence[int], state: SkillState, content: str
) -> tuple[dict[int, ToolMessage], dict[str, tuple[int, ToolMessage]]]:
    """Return the results that replace those with content that is not loaded, and the result for each loaded skill.

    The last load and the results after it are about what is loaded now. A line replaces earlier results.

    Args:
        messages: The whole conversation.
        results: The positions that :func:`skill_results` returns.
        state: The skills that the conversation has loaded.
        content: Where requests have the content, see :class:`SkillSettings`.

    Returns:
        The new results by their positions. By skill name, the position and the result that requests have the content
        in.
    """
    about = [(at, found) for at in results if isinstance(found := messages[at], ToolMessage) and found.skill]
    loads: dict[str, int] = {}
    for at, found in about:
        if found.name in LOADERS and found.holds != DOCUMENTS and (found.stub or found.holds):
            loads[found.skill] = at
    homes: dict[str, tuple[int, ToolMessage]] = {}
    for at, found in about:
        is_current = found.skill in state and at >= loads.get(found.skill, 0)
        if is_current and content != "system" and (found.stub or found.holds == state[found.skill].digest):
            homes[found.skill] = at, found
    changed: dict[int, ToolMessage] = {}
    for at, found in about:
        if found.skill not in state or at < loads.get(found.skill, 0):
            line = unloaded_line(found.skill)
            changed[at] = replace(found, content=line, skill="", stub=False, holds="", media=())
        elif found.holds and not found.stub:
            home, copy = homes.get(found.skill, (-1, None))
            if found.holds != DOCUMENTS and at != home:
                changed[at] = replace(found, content=f"loaded: {found.skill}", holds="")
            elif found.holds == DOCUMENTS and (at < home or copy is None or copy.stub):
                changed[at] = replace(found, content=found.content.partition("\n")[0], holds="")
    return changed, homes


def cut(messages: Sequence[Message], most: int) -> Cut:
    """Leave out the oldest steps until what is kept is about ``most`` tokens or fewer.

    A step is what a user said, or an answer of the model with the results of all its tool calls. What is kept begins
    with what a user said, because providers take no conversation that begins otherwise; where a single exchange is
    over the limit, its user's message and its newest steps are kept. The last step is always kept.
    """
    steps = _steps(messages)
    sizes = [about_tokens_of(step) for step in steps]
    left, first = sum(sizes), 0
    while left > most and first < len(steps) - 1:
        left -= sizes[first]
        first += 1
    while first < len(steps) and not _begins(steps[first]):
        first += 1
    if first < len(steps):
        gone = sum(len(step) for step in steps[:first])
        return Cut(messages[:gone], messages[gone:])
    return _cut_inside(messages, steps, sizes, most)


def _cut_inside(messages: Sequence[Message], steps: list[Sequence[Message]], sizes: list[int], most: int) -> Cut:
    """The same where what is kept is a part of the last exchange."""
    head = max((at for at, step in enumerate(steps) if _begins(step)), default=None)
    if head is None:
        return Cut((), messages)
    first, left = head + 1, sum(sizes[head:])
    while left > most and first < len(steps) - 1:
        left -= sizes[first]
        first += 1
    gone = [*steps[:head], *steps[head + 1 : first]]
    kept = [steps[head], *steps[first:]]
    return Cut([m for step in gone for m in step], [m for step in kept for m in step])


def _steps(messages: Sequence[Message]) -> list[Sequence[Message]]:
    steps: list[list[Message]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and steps:
            steps[-1].append(message)
        else:
            steps.append([message])
    return list(steps)


def _begins(step: Sequence[Message]) -> bool:
    return isinstance(step[0], UserMessage)
