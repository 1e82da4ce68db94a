"""Which skill's description fits a text best: words in common, weighted by how rare they are."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["SkillIndex", "features", "stem"]

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\dA-Za-z_]+")
_ESCAPES = re.compile(r"\\[nrt]|\\u[0-9a-fA-F]{4}")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")

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

# An event with more different words than this shares one with any description by chance.
_LONG_EVENT = 40
# From this number of skills on, a word that more than two thirds of them have does not tell them apart.
_MANY_SKILLS = 4

# An identifier that both texts have in full (``NumberFormatException``) says more than a word of it, and two
# words in sequence more than each. The weights were chosen on recorded logs of failed Flink jobs.
_IDENTIFIER = 3.0
_PAIR = 2.0

# Words of an event that are longer are taken apart each time anew: kept, they could fill the memory.
_MAX_KEPT = 64


class SkillIndex:
    """An index over the descriptions of a menu.

    >>> index = SkillIndex([("a", "Convert currencies"), ("b", "Read weather forecasts")])
    >>> index.best("what is the forecast for Turin?")
    'b'
    """

    def __init__(self, skills: Sequence[tuple[str, str]]) -> None:
        self._names = [name for name, _ in skills]
        number = len(skills)
        found: dict[str, list[int]] = defaultdict(list)
        weights: dict[str, float] = {}
        for position, (_, description) in enumerate(skills):
            for feature, (_, weight) in features(description).items():
                found[feature].append(position)
                weights[feature] = weight
        self._postings: dict[str, tuple[float, bool, tuple[int, ...]]] = {}
        norms = [0.0] * number
        for feature, where in found.items():
            # The 1 keeps the weight above zero where every description has the feature, or there is one only.
            rarity = math.log(1 + number / len(where))
            tells = weights[feature] != _PAIR and (number < _MANY_SKILLS or len(where) * 3 <= number * 2)
            self._postings[feature] = (rarity * rarity * weights[feature], tells, tuple(where))
            for position in where:
                norms[position] += (rarity * weights[feature]) ** 2
        # The fourth root of the sum of squares: half of what full normalisation would take from long texts.
        self._norms = [norm**0.25 or 1.0 for norm in norms]

    def best(self, text: str) -> str | None:
        """The name of the best fitting skill, or None when none fits. Ties go by name."""
        event = features(text)
        postings = self._postings
        scores: dict[int, float] = defaultdict(float)
        shared: dict[int, int] = defaultdict(int)
        for feature in event.keys() & postings.keys():
            value, tells, where = postings[feature]
            # What the event repeats counts more, but not in proportion: logs repeat a lot.
            value *= 1 + math.log(event[feature][0])
            for position in where:
                scores[position] += value
                shared[position] += tells
        needed = 1 if len(event) <= 2 * _LONG_EVENT else 2  # each word is in a pair, too
        ranked = [
            (-round(score / self._norms[position], 9), self._names[position])
            for position, score in scores.items()
            if shared[position] >= needed
        ]
        return min(ranked)[1] if ranked else None


def features(text: str) -> dict[str, tuple[int, float]]:
    """What ``text`` is about: stems, identifiers and pairs of neighbours, with count and weight."""
    if "\\" in text:
        text = _ESCAPES.sub(" ", text)
    counts: dict[str, tuple[int, float]] = {}
    previous = ""
    for word in _WORD.findall(text):
        found = _of_word(word)
        for feature, weight in found:
            before = counts.get(feature)
            counts[feature] = (1, weight) if before is None else (before[0] + 1, weight)
        if found:
            first = found[0][0]
            if previous:
                pair = f"{previous} {first}"
                before = counts.get(pair)
                counts[pair] = (1, _PAIR) if before is None else (before[0] + 1, _PAIR)
            previous = first
    return counts


def _of_word(word: str) -> tuple[tuple[str, float], ...]:
    return _of_short_word(word) if len(word) <= _MAX_KEPT else _taken_apart(word)


@lru_cache(maxsize=32_768)
def _of_short_word(word: str) -> tuple[tuple[str, float], ...]:
    return _taken_apart(word)


def _taken_apart(word: str) -> tuple[tuple[str, float], ...]:
    """The features of one written word: the whole and the parts of an identifier in camel case, pairs of
    signs of Chinese, Japanese or Korean, nothing for a number or a word that says nothing."""
    if _CJK.search(word):
        signs = [run[i : i + 2] for run in _CJK.findall(word) for i in range(max(1, len(run) - 1))]
        rest = [feature for part in _CJK.split(word) if part for feature in _of_word(part)]
        return (*((pair, 1.0) for pair in signs), *rest)
    parts = _CAMEL.findall(word)
    if len(parts) > 1:
        rest = [feature for part in parts for feature in _of_word(part)]
        return ((stem(word.lower()), _IDENTIFIER), *rest)
    lower = word.lower()
    if lower in _STOP or len(lower) < 2 or lower.isdigit():
        return ()
    return ((stem(lower), 1.0),)


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
