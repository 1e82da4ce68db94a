"""The base class of the strategies, which wrap a model, and the split of its text into thoughts and answer."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from dataclasses import replace

from flink_skills.models.base import ChatModel, emit_response
from flink_skills.models.messages import ModelRequest, ModelResponse
from flink_skills.models.results import instead_of_answer
from flink_skills.telemetry import Delta, Discarded, OnDelta, TextDelta

# Marks around thoughts in a model's text.
_MARKS = (
    *((f"<{tag}>", f"</{tag}>") for tag in ("think", "thinking", "thought", "reasoning", "seed:think")),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
# Marks around the answer behind thoughts.
_ANSWERS = (
    *((f"<{tag}>", f"</{tag}>") for tag in ("answer", "response")),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
)
_EITHER = {opening: re.compile(f"({re.escape(opening)})|{re.escape(closing)}") for opening, closing in _MARKS}
_LONGEST = max(len(mark) for marks in _MARKS for mark in marks)
_FIRST = tuple({opening[0] for opening, _ in _MARKS})
_BLANK = re.compile(r"\s*")
# Marks that are examined for the code around them, and marks that are counted. A hostile text may have millions.
_EXAMINED = 64
_COUNTED = 10_000
_LINE = 200


class WrappedModel(ChatModel):
    """A model that passes its requests to ``model`` in another form."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.name = model.name
        self.accepts = model.accepts
        # The mark around thoughts whose beginning a template has written.
        self._unopened = ""

    @abstractmethod
    def sent(self, request: ModelRequest) -> ModelRequest:
        """Return the request that the wrapped model receives for ``request``."""

    async def ask_streaming(self, request: ModelRequest, on_delta: OnDelta) -> ModelResponse:
        """Return the response of the wrapped model without thoughts, and pass it on while it arrives."""
        answer_deltas = _AnswerDeltas(on_delta, self._unopened)
        whole = await self.model.stream(request, answer_deltas)
        response = answered(whole)
        answer_deltas.end(response, changed=response is not whole)
        if response is not whole and not _opening_at(whole.text.lstrip()):
            # The first of these thoughts was passed on before its end was known.
            self._unopened = next(opening for opening, closing in _MARKS if closing in whole.text)
        return response

    async def close(self) -> None:
        await self.model.close()


def answered(response: ModelResponse) -> ModelResponse:
    """Return the response without thoughts in its text. Return the same object if it has none."""
    text = without_thoughts(response.text)
    if text is response.text:
        return response
    # The marks count as well.
    instead = "" if text.strip() or response.tool_calls else instead_of_answer([response.text], ())
    return replace(response, text=text, instead=instead)


def without_thoughts(text: str) -> str:
    """Return a text without the thoughts at its beginning. Return the same object if it has none.

    Several thoughts can follow each other. The last may have no end, and the first no beginning, because templates of
    local models write it into the prompt. Marks in code, in JSON and behind the beginning of an answer are text.

    >>> without_thoughts("<think>plan</think>\\n\\nHello"), without_thoughts("plan</think>Hello")
    ('Hello', 'Hello')
    >>> without_thoughts("Write `</think>` behind it"), without_thoughts("a <think>b</think>")
    ('Write `</think>` behind it', 'a <think>b</think>')
    """
    for char in _FIRST:
        if char in text:
            break
    else:
        return text
    at = _behind_thoughts(text, 0)
    if not at and (end := _behind_unopened(text)):
        at = _behind_thoughts(text, end)
    return _unwrapped(text[at:]) if at else text


def _unwrapped(answer: str) -> str:
    """Return the answer behind thoughts without the marks around it, which some models write."""
    for opening, closing in _ANSWERS:
        if answer.startswith(opening):
            return answer[len(opening) :].rstrip().removesuffix(closing).strip()
    return answer


def _behind_thoughts(text: str, at: int) -> int:
    """Return where the text behind the thoughts that begin at ``at`` begins, ``at`` if there is none."""
    while True:
        start = _skip_blank(text, at)
        opening = _opening_at(text, start)
        if not opening:
            return start if at else 0
        at = _thought_end(text, start + len(opening), opening)


def _opening_at(text: str, at: int = 0) -> str:
    if text[at : at + 1] not in _FIRST:
        return ""
    return next((opening for opening, _ in _MARKS if text.startswith(opening, at)), "")


def _skip_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _thought_end(text: str, at: int, opening: str) -> int:
    """Return where the thought ends: at the mark that closes its first one, else at the last one or with the text."""
    depth, last = 1, len(text)
    for number, mark in enumerate(_EITHER[opening].finditer(text, at)):
        if not mark[1]:
            last = mark.end()
        if number > _COUNTED:
            closing = dict(_MARKS)[opening]
            end = text.rfind(closing, at)
            return end + len(closing) if end >= 0 else len(text)
        if number < _EXAMINED and _is_quoted(text, mark.start(), mark.end()):
            continue
        depth += 1 if mark[1] else -1
        if not depth:
            break
    return last


def _behind_unopened(text: str) -> int:
    """Return where the text behind a thought without a beginning begins, 0 if there is none."""
    # A search for one character takes a fiftieth of the time, and few answers have it.
    found = [marks for marks in _MARKS if marks[1][0] in text and marks[1] in text]
    ends = [end for marks in found if (end := _unopened_end(text, *marks))]
    return min(ends) if ends and not _is_json(text) else 0


def _unopened_end(text: str, opening: str, closing: str) -> int:
    at = text.find(closing)
    for _ in range(_EXAMINED):
        if at < 0 or text.find(opening, 0, at) >= 0:
            return 0
        end = at + len(closing)
        if not text.count("```", 0, at) % 2 and not _is_quoted(text, at, end):
            return end
        at = text.find(closing, end)
    return 0


def _is_quoted(text: str, start: int, end: int) -> bool:
    """Return whether a mark is in code of its line, or in quotation marks."""
    if text[start - 1 : start] in ('"', "'") and text[end : end + 1] == text[start - 1]:
        return True
    line = max(0, start - _LINE)
    return text.count("`", max(line, text.rfind("\n", line, start)), start) % 2 == 1


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[", '"')):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class _AnswerDeltas:
    """Passes on the text of an answer while it arrives, and withholds thoughts."""

    def __init__(self, on_delta: OnDelta, unopened: str) -> None:
        self._on_delta = on_delta
        self._unopened = unopened
        self._begin()

    def _begin(self) -> None:
        # The part that a mark may begin in. It is not passed on yet.
        self._tail = ""
        self._forwarded: list[str] = []
        self._opening = self._unopened
        self._depth = 1 if self._unopened else 0
        self._thought = bool(self._unopened)
        self._is_answer = False

    def __call__(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            if self._is_answer:
                self._forward(delta.text)
            else:
                self._tail += delta.text
                self._read()
            return
        if isinstance(delta, Discarded):
            self._begin()
        self._on_delta(delta)

    def _read(self) -> None:
        while True:
            if self._depth:
                if not self._skip_thought():
                    return
                continue
            text = self._tail.lstrip()
            self._opening = _opening_at(text)
            if self._opening:
                self._thought, self._depth = True, 1
                self._tail = text[len(self._opening) :]
            elif len(self._tail) <= 2 * _LONGEST and (
                not text or any(opening.startswith(text) for opening, _ in _MARKS)
            ):
                return
            else:
                self._is_answer = True
                forwarded, self._tail = text if self._thought else self._tail, ""
                self._forward(forwarded)
                return

    def _skip_thought(self) -> bool:
        """Omit the part of the thought that has arrived. Return whether the thought has ended."""
        at = 0
        for mark in _EITHER[self._opening].finditer(self._tail):
            at = mark.end()
            self._depth += 1 if mark[1] else -1
            if not self._depth:
                break
        # The end may be half of a mark.
        self._tail = self._tail[at:] if not self._depth else self._tail[max(at, len(self._tail) - _LONGEST) :]
        return not self._depth

    def _forward(self, text: str) -> None:
        if text:
            self._forwarded.append(text)
            self._on_delta(TextDelta(text))

    def end(self, response: ModelResponse, *, changed: bool) -> None:
        """Pass on the rest of ``response``, or all of it if something else was passed on."""
        if not changed and not self._thought:
            self._forward(self._tail)
            return
        forwarded = "".join(self._forwarded)
        if response.text.startswith(forwarded):
            self._forward(response.text[len(forwarded) :])
            return
        self._on_delta(Discarded())
        emit_response(response, self._on_delta)
