"""The code blocks of an answer that are to be run."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["RUN_CODE", "CodeBlock", "as_output", "code_blocks"]

#: The tool that runs them, in journals, events, ``skills.tools.approve`` and ``skills.tool.*``.
RUN_CODE = "run_code"

# Neither begins nor ends with what the next part can match, too: an answer may be long.
_OPENING = re.compile(r" {0,3}(`{3,})[ \t]*([A-Za-z_]+)[ \t\r]*")
_ANY_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})[^`]*")
_LANGUAGES = {**dict.fromkeys(("python", "python3", "py", "tool_code"), "python"), "bash": "bash", "sh": "bash"}


class CodeBlock(NamedTuple):
    """Code, and what it is written in: ``python`` or ``bash``."""

    language: str
    code: str


def code_blocks(answer: str) -> list[CodeBlock]:
    """The closed blocks of ``answer`` that are fenced as ``python``, ``tool_code`` or ``bash``.

    A block within another one is text of that one, and a block that nothing closes is none: the answer was cut off.

    >>> code_blocks("Let me see:\\n```python\\nprint(1)\\n```\\n")
    [CodeBlock(language='python', code='print(1)\\n')]
    """
    found: list[CodeBlock] = []
    fence, language = "", ""
    lines: list[str] = []
    for line in answer.split("\n"):
        if fence:
            text = line.strip()
            if len(text) >= len(fence) and not text.strip(fence[0]):
                if language and any(part.strip() for part in lines):
                    found.append(CodeBlock(language, "\n".join(lines) + "\n"))
                fence = ""
            else:
                lines.append(line.removesuffix("\r"))
        elif opening := _OPENING.fullmatch(line):
            fence, language, lines = opening[1], _LANGUAGES.get(opening[2].lower(), ""), []
        elif other := _ANY_OPENING.fullmatch(line):
            fence, language, lines = other[1], "", []
    return found


def as_output(text: str) -> str:
    """``text`` as a block that nothing within it closes.

    >>> as_output("1").splitlines()
    ['```tool_output', '1', '```']
    """
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}tool_output\n{text.rstrip()}\n{fence}"
