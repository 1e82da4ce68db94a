"""Which skill's description fits a text best: words in common, weighted by how rare they are."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

__all__ = ["SkillIndex", "words"]

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\dA-Za-z_]+")
_ESCAPES = re.compile(r"\\[nrt]|\\u[0-9a-fA-F]{4}")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")

# Words that descriptions of any subject have in common; one of them in an event says nothing.
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


class SkillIndex:
    """An index over the descriptions of a menu.

    >>> index = SkillIndex([("a", "Convert currencies"), ("b", "Read weather forecasts")])
    >>> index.best("what is the forecast for Turin?")
    'b'
    """

    def __init__(self, skills: Sequence[tuple[str, str]]) -> None:
        self._names = [name for name, _ in skills]
        documents = [set(words(description)) for _, description in skills]
        found: dict[str, list[int]] = defaultdict(list)
        for position, document in enumerate(documents):
            for word in document:
                found[word].append(position)
        # +1 keeps the weight of a word above zero when every description has it (or there is one only).
        weights = {word: math.log(1 + len(skills) / len(where)) for word, where in found.items()}
        self._postings = {word: (weights[word], tuple(where)) for word, where in found.items()}
        self._norms = [math.sqrt(sum(weights[w] ** 2 for w in d)) or 1.0 for d in documents]

    def best(self, text: str) -> str | None:
        """The name of the best fitting skill, or None when none fits. Ties go by name."""
        counts = Counter(words(text))
        postings = self._postings
        scores: dict[int, float] = defaultdict(float)
        shared: dict[int, int] = defaultdict(int)
        for word in counts.keys() & postings.keys():
            weight, where = postings[word]
            # A word that the event repeats counts more, but not in proportion: logs repeat a lot.
            weight *= weight * (1 + math.log(counts[word]))
            for position in where:
                scores[position] += weight
                shared[position] += 1
        needed = 1 if len(counts) <= _LONG_EVENT else 2
        ranked = [
            (-score / self._norms[position], self._names[position])
            for position, score in scores.items()
            if shared[position] >= needed
        ]
        return min(ranked)[1] if ranked else None


def words(text: str) -> Iterable[str]:
    """The words of ``text`` that carry meaning, as stems, in order and with repetitions."""
    if "\\" in text:
        text = _ESCAPES.sub(" ", text)
    for word in _WORD.findall(text):
        yield from _stems(word)


@lru_cache(maxsize=32_768)
def _stems(word: str) -> tuple[str, ...]:
    """The stems of one written word: its parts where it is camel case, pairs of signs where it is Chinese,
    Japanese or Korean, nothing where it is a number or says nothing."""
    if _CJK.search(word):
        return tuple(
            run[i : i + 2] for run in _CJK.findall(word) for i in range(max(1, len(run) - 1))
        ) + tuple(stem for part in _CJK.split(word) if part for stem in _stems(part))
    parts = _CAMEL.findall(word)
    if len(parts) > 1:
        whole = stem(word.lower())
        return (whole, *(s for part in parts for s in _stems(part)))
    lower = word.lower()
    if lower in _STOP or len(lower) < 2 or lower.isdigit():
        return ()
    return (stem(lower),)


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
