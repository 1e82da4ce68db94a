"""What sessions cost in tokens: everything in every request, or skills and tools loaded when they are needed.

Tokens follow from the texts alone, so that they are the same in each round: there is one.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import business_tools, own_texts, report, sessions
from benchmarks.sessions import FIVE_TURNS, ONE_TURN, Mode, Setting
from flink_skills.models.messages import ModelRequest
from flink_skills.tools.base import ToolSpec
from flink_skills.tools.profiles import TOOL_NAMES

CHARS_PER_TOKEN = 4
#: What providers charge for a token that they have in their cache, of the usual price.
CACHED_PRICE = 0.1
SIZES = (10, 50, 100)
_UP_FRONT = "all up front"

_ALL = Mode(bodies=True, tools=True)
_SELECTING = Mode("full", "session", "tool-result")
_MODES: dict[str, Mode] = {
    _UP_FRONT: _ALL,
    "core, tools up front": Mode("core", "session", "tool-result", tools=True),
    "core, session, tool-result (default)": Mode("core", "session", "tool-result"),
    "core, session, tool-result, 1 skill at most": Mode("core", "session", "tool-result", max_loaded=1),
    "core, session, system": Mode("core", "session", "system"),
    "core, turn, tool-result": Mode("core", "turn", "tool-result"),
    "core, turn, system": Mode("core", "turn", "system"),
    "full, session, tool-result": _SELECTING,
    "full, session, system": Mode("full", "session", "system"),
    "full, turn, tool-result": Mode("full", "turn", "tool-result"),
    "full, turn, system (default)": Mode("full", "turn", "system"),
}


@dataclass(frozen=True)
class _Group:
    """Sessions that are compared: modes by what they are called, for skills with ``tools`` tools each."""

    tools: int
    turns: tuple[tuple[int, ...], ...]
    modes: Mapping[str, Mode]


_GROUPS: dict[str, _Group] = {
    "5 turns, 4 tools for each skill": _Group(4, FIVE_TURNS, _MODES),
    # Within a turn its life time is that of a session.
    "1 turn, 4 tools for each skill": _Group(
        4, ONE_TURN, {label: mode for label, mode in _MODES.items() if label == _UP_FRONT or "default" in label}
    ),
    "5 turns, skills without tools": _Group(
        0, FIVE_TURNS, {label: mode for label, mode in _MODES.items() if not mode.tools or mode.bodies}
    ),
    "5 turns, 3 tools for each skill": _Group(
        3,
        FIVE_TURNS,
        {
            _UP_FRONT: _ALL,
            "all 3 of a loaded skill": _SELECTING,
            "2 of 3": replace(_SELECTING, selected=2),
            "1 of 3": replace(_SELECTING, selected=1),
            "1 of 3, selected with the load": replace(_SELECTING, selected=1, at_once=True),
        },
    ),
    "5 turns, 10 tools for each skill": _Group(
        10,
        FIVE_TURNS,
        {
            _UP_FRONT: _ALL,
            "all 10 of a loaded skill": _SELECTING,
            "2 of 10": replace(_SELECTING, selected=2),
            "2 of 10, selected with the load": replace(_SELECTING, selected=2, at_once=True),
        },
    ),
}

Results = dict[str, dict[str, dict[str, Any]]]


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run all sessions once, and write and print what they cost. ``repeat`` would change nothing."""
    machine = report.machine()
    sizes = SIZES[:1] if quick else SIZES
    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
        for name, group in _GROUPS.items():
            modes = {label: m for label, m in group.modes.items() if only in f"{name}, {label}" or label == _UP_FRONT}
            if only and only not in name and list(modes) == [_UP_FRONT]:
                continue
            for size in sizes:
                setting = Setting(size, group.tools, group.turns)
                skills = Path(folder) / f"{size}-{group.tools}"
                if not skills.exists():
                    own_texts.write(skills, own_texts.texts(size), group.tools)
                for label, mode in modes.items():
                    print(f"{name}: {size} skills, {label}", file=sys.stderr)
                    found = _figures(sessions.run(mode, setting, skills))
                    results.setdefault(name, {}).setdefault(label, {})[f"{size}"] = found
    _compare(results)
    print(tables(results))
    if not only and not quick:
        texts = own_texts.texts(SIZES[-1])
        setting_of_all = {
            "characters_per_token": CHARS_PER_TOKEN,
            "cached_price": CACHED_PRICE,
            "sizes": SIZES,
            "median_body_tokens": round(statistics.median(len(text.body) for text in texts) / CHARS_PER_TOKEN),
            "tokens_of_four_tools": round(sum(map(len, map(sessions.as_sent_tool, _some_tools(4)))) / CHARS_PER_TOKEN),
        }
        report.write("economics", {"machine": machine, "setting": setting_of_all, "results": results}, tables(results))


def _some_tools(count: int) -> list[ToolSpec]:
    return [tool.spec for tool in business_tools.tools("incidents", count)]


def _figures(requests: Sequence[ModelRequest]) -> dict[str, Any]:
    """What a session cost. ``price`` is in tokens of the usual price; ``worst_prefix`` is the smallest share of a
    request that the next one began with."""
    of_each = sessions.sizes(requests)
    total, cached = (sum(column) for column in zip(*of_each, strict=True))
    of_skills = [spec for request in requests for spec in request.tools if spec.name not in TOOL_NAMES]
    shares = [same / before for (before, _), (_, same) in pairwise(of_each)]
    return {
        "requests": len(requests),
        "tokens": _tokens(total),
        "price": _tokens(total - cached + CACHED_PRICE * cached),
        "cached_share": round(cached / total, 4),
        "worst_prefix": round(min(shares), 4),
        "breaks": sum(share < 0.95 for share in shares),
        "tokens_of_skills_tools": _tokens(sum(len(sessions.as_sent_tool(spec)) for spec in of_skills)),
        "last_request_tokens": _tokens(of_each[-1][0]),
    }


def _tokens(characters: float) -> int:
    return round(characters / CHARS_PER_TOKEN)


def _compare(results: Results) -> None:
    """Note what each session saved of the one with everything up front."""
    for modes in results.values():
        for of in modes.values():
            for size, found in of.items():
                base = modes[_UP_FRONT][size]
                for figure in ("tokens", "price"):
                    found[f"{figure}_saved"] = round(1 - found[figure] / base[figure], 4)


def tables(results: Results) -> str:
    """Tokens and price as Markdown tables: those of everything up front, and what the others save of them."""
    return "\n\n".join(_table(name, modes) for name, modes in results.items())


def _table(name: str, modes: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    sizes = list(modes[_UP_FRONT])
    columns = "".join(f" {size} skills: tokens | with a cache |" for size in sizes)
    lines = [
        f"| {name} | requests | tokens of the skills' tools |{columns} prefix | breaks |",
        "|---|---|---|" + "---|---|" * len(sizes) + "---|---|",
    ]
    for label, of in modes.items():
        cells = [_cells(of[size], is_base=label == _UP_FRONT) for size in sizes]
        last = of[sizes[-1]]
        lines.append(
            f"| {label} | {last['requests']} | {last['tokens_of_skills_tools']:,} | {' | '.join(cells)} "
            f"| {last['cached_share']:.0%} | {last['breaks']} |"
        )
    return "\n".join(lines)


def _cells(found: Mapping[str, Any], *, is_base: bool) -> str:
    if is_base:
        return f"{found['tokens']:,} | {found['price']:,}"
    return f"{-found['tokens_saved']:+.0%} | {-found['price_saved']:+.0%}"
