"""What a chat model's final answer must be, and how it is read."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from flink_skills.tools.arguments import MAX_VALUES, TooLargeError, check_text

_FENCE = "```"
# The rest of the line with an opening fence.
_LABEL = re.compile(r"(?:json)?[^\S\n]*\n")
_MAX_BLOCKS = 100


@dataclass(frozen=True)
class AnswerType:
    """Text (``adapter`` None), or whatever a pydantic adapter validates from JSON."""

    adapter: TypeAdapter[Any] | None = None
    schema: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, output_type: Any) -> AnswerType:
        """The answer type of an ``output_type``; None and ``str`` mean text."""
        return cls() if output_type is None or output_type is str else _typed(output_type)

    def read(self, text: str) -> tuple[str | None, Any]:
        """The problem (None when there is none, else what to tell the model) and the answer."""
        if self.adapter is None:
            return None, text
        problem = "expected JSON"
        try:
            check_text(text.encode(errors="surrogatepass"), MAX_VALUES)
        except TooLargeError as error:
            return f"Your answer does not fit: {error}. Answer with less.", None
        for candidate in _candidates(text):
            try:
                return None, self.adapter.validate_json(candidate)
            except ValidationError as error:
                problem = "; ".join(
                    f"{'.'.join(map(str, e['loc'])) or 'the whole'}: {e['msg']}" for e in error.errors()[:5]
                )
        return (
            f"Your answer does not fit: {problem}. Answer with JSON alone that fits this schema: "
            + json.dumps(self.schema, ensure_ascii=False)
        ), None


def _candidates(text: str) -> list[str]:
    """Where the JSON of an answer may be: the whole text, a fenced block, or from the first brace to the last."""
    found = [text.strip(), *_fenced(text)]
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        found.append(text[start : end + 1])
    return list(dict.fromkeys(found))


def _fenced(text: str) -> list[str]:
    """The contents of the first 100 fenced blocks that are labelled as JSON or not at all, in one pass."""
    found: list[str] = []
    at = text.find(_FENCE)
    while at >= 0 and len(found) < _MAX_BLOCKS:
        label = _LABEL.match(text, at + len(_FENCE))
        if label is None:
            at = text.find(_FENCE, at + 1)
            continue
        end = text.find(_FENCE, label.end())
        if end < 0:
            break
        found.append(text[label.end() : end].strip())
        at = text.find(_FENCE, end + len(_FENCE))
    return found


@functools.lru_cache(maxsize=64)
def _typed(output_type: Any) -> AnswerType:
    adapter: TypeAdapter[Any] = TypeAdapter(output_type)
    return AnswerType(adapter, adapter.json_schema())
