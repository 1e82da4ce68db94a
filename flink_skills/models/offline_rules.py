"""Rules of the offline model: the skill that fits an event, and the first command of its instructions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\dA-Za-z_]+")

# Words that descriptions of any subject have in common; one of them in an event says nothing.
# prose: allow B16: a list of English words
_STOP_WORDS = """
a about above after again all also always an and any anything are as ask asked asks at be because
been before being below between both but by call called can cannot case cases come could data
describe described description did do does doing done down during each either else etc event events
every example few file files find first fit fits following for format from further general get gets
give given gives go good handle handles has have having help helpful helps here how i if in include
includes including information input instead into is it item items its itself just keep kind kinds
know last let like line lines list long look make makes making many may me mention mentions
mentioned message messages might more most much must my need needed needs never new next no non none
nor not nothing now of off often on once one only onto or other our out output over own people per
please problem problems provide provided provides put question rather read reading reads report
reports request requests result results return returns run running runs same say says see set
several shall she should show shows simple since skill skills so some something such sure take takes
task tasks tell text than that the their them then there these they thing things this those through
time to together too tool tools try two type under until up upon us use used useful user users uses
using value values very want wants was way we well were what whatever when whenever where whether
which while who whole whose why will with within without word words work working works would write
writes written you your
"""
_STOP = frozenset(_STOP_WORDS.split())

# A common identifier (``NumberFormatException``) has more weight than a word, and so do two words in sequence.
# The weights were chosen on recorded logs of failed Flink jobs.
_IDENTIFIER = 3.0
_PAIR = 2.0

_SHELLS = frozenset({"bash", "sh", "shell", "zsh", "console", "shell-session", "shellsession", "terminal"})
_COMMAND_WORDS = """
awk bash cat curl cut date echo env find flink git grep head jq ls make node perl printf python python3 sed sh sort tail
test uv wc
"""
_COMMANDS = frozenset(_COMMAND_WORDS.split())
_LABEL = re.compile(r"[ \t]*([^\s{]*)")
_PROMPT = re.compile(r"^\s*[$%]\s+")
_ASSIGNMENTS = re.compile(r"^(?:[A-Za-z_][A-Za-z0-9_]*=\S*\s+)+")
_SCRIPT = re.compile(r"^(?:\.{0,2}/|[\w.-]+/|\$\{?[A-Z_]+\}?/)[\w./-]*(?:\s|$)")
_NOT_PROSE = re.compile(r"^\s*(?:#|<|```|~~~|---|\|)")


class SkillIndex:
    """Index over the descriptions of a menu. Common words of a text and a description are weighted by their rarity.

    >>> index = SkillIndex([("a", "Convert currencies"), ("b", "Read weather forecasts")])
    >>> index.best("what is the forecast for Turin?")
    'b'
    """

    def __init__(self, skills: Sequence[tuple[str, str]]) -> None:
        self._skills = [(name, features(description)) for name, description in skills]
        found = Counter(feature for _, described in self._skills for feature in described)
        # The 1 keeps the rarity above 0 if every description has the feature.
        self._rarity = {feature: math.log(1 + len(skills) / number) for feature, number in found.items()}

    def best(self, text: str) -> str | None:
        """Return the name of the skill that fits best. Return None if no skill fits. Ties go by name."""
        event = features(text)
        ranked = []
        for name, described in self._skills:
            score = norm = 0.0
            for feature, (_, weight) in described.items():
                rarity = self._rarity[feature]
                norm += (rarity * weight) ** 2
                if feature in event:
                    # Logs repeat words, so the count has less weight than the rarity.
                    score += rarity * rarity * weight * (1 + math.log(event[feature][0]))
            if score:
                # Half of a full normalization, which would prefer short descriptions.
                ranked.append((-round(score / norm**0.25, 9), name))
        return min(ranked)[1] if ranked else None


def features(text: str) -> dict[str, tuple[int, float]]:
    """Return the word stems, identifiers and pairs of neighbors in ``text``, each with its count and weight."""
    counts: dict[str, tuple[int, float]] = {}
    previous = ""

    def add(feature: str, weight: float) -> None:
        counts[feature] = (counts[feature][0] + 1 if feature in counts else 1, weight)

    for word in _WORD.findall(text):
        parts = _CAMEL.findall(word)
        stems = [stem(part.lower()) for part in parts if _has_meaning(part.lower())]
        identifier = [stem(word.lower())] if len(parts) > 1 else []
        for feature in stems:
            add(feature, 1.0)
        for feature in identifier:
            add(feature, _IDENTIFIER)
        if first := [*identifier, *stems]:
            if previous:
                add(f"{previous} {first[0]}", _PAIR)
            previous = first[0]
    return counts


def _has_meaning(word: str) -> bool:
    return word not in _STOP and len(word) > 1 and not word.isdigit()


def stem(word: str) -> str:
    """A light stem: plural, -ing, -ed and a final e go.

    >>> [stem(w) for w in ("checkpoints", "checkpointing", "failed", "failures", "queries")]
    ['checkpoint', 'checkpoint', 'fail', 'failur', 'query']
    """
    if len(word) <= 3:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("sis"):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word


def first_command(text: str) -> str | None:
    """Return the first fenced block of ``text`` that contains a command. Return None if there is none.

    The block has the label of a shell, or it has no label and its first line looks like a command.

    >>> first_command("Run this:\\n```bash\\npython3 scripts/x.py\\n```\\n")
    'python3 scripts/x.py'
    """
    lines = text.replace("\r\n", "\n").split("\n")
    for block in _blocks(lines):
        opening = lines[block.first]
        indent = opening[: len(opening) - len(opening.lstrip(" \t"))]
        body = [line.removeprefix(indent) for line in lines[block.first + 1 : block.last]]
        if block.label in _SHELLS or (not block.label and _looks_like_command(body)):
            # In the transcript of a terminal, the lines without a prompt are output.
            prompted = [_PROMPT.sub("", line) for line in body if _PROMPT.match(line)]
            if command := "\n".join(prompted or body).strip():
                return command
    return None


def first_paragraph(text: str) -> str:
    """Return the first paragraph of prose: no headings, tags, tables or code."""
    lines = text.split("\n")
    for block in _blocks(lines):
        lines[block.first : block.last + 1] = [""] * (block.last + 1 - block.first)
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        prose = [line.strip() for line in paragraph.splitlines() if not _NOT_PROSE.match(line)]
        if joined := " ".join(filter(None, prose)):
            return joined
    return text.strip()


class _Block(NamedTuple):
    """Fenced block: the lines of its fences, and its label."""

    first: int
    last: int
    label: str


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    """Yield the fenced blocks of ``lines``. A fence that is not closed opens no block."""
    # A longer fence of the same character is not closed either, so few searches fail.
    unclosed = {"`": math.inf, "~": math.inf}
    at = 0
    while at < len(lines):
        fence, info = _fence(lines[at])
        if len(fence) >= 3 and "`" not in info and len(fence) < unclosed[fence[0]]:
            last = next((after for after in range(at + 1, len(lines)) if _closes(lines[after], fence)), None)
            if last is None:
                unclosed[fence[0]] = len(fence)
            else:
                label = _LABEL.match(info)
                yield _Block(at, last, label[1].lower() if label else "")
                at = last
        at += 1


def _fence(line: str) -> tuple[str, str]:
    """Return the characters of a fence at the start of ``line``, and the text after them."""
    text = line.lstrip(" \t")
    info = text.lstrip(text[0]) if text.startswith(("`", "~")) else text
    return text[: len(text) - len(info)], info


def _closes(line: str, fence: str) -> bool:
    text = line.strip(" \t")
    return text.startswith(fence) and not text.strip(fence[0])


def _looks_like_command(lines: Sequence[str]) -> bool:
    """Return True if the first line that is neither empty nor a comment starts as a command does."""
    line = next((line.strip() for line in lines if line.strip() and not line.strip().startswith("#")), "")
    command = _ASSIGNMENTS.sub("", line)
    return bool(_PROMPT.match(line) or _SCRIPT.match(command)) or command.split(" ")[0] in _COMMANDS
