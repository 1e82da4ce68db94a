"""What sessions cost in tokens: everything in every request, or skills and tools loaded when they are needed.

Tokens follow from the texts alone, so that they are the same in each round: there is one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import own_texts, report, sessions
from benchmarks.sessions import FIVE_TURNS, ONE_TURN, Mode, Setting

CHARS_PER_TOKEN = 4
#: What providers charge for a token that they have in their cache, of the usual price.
CACHED_PRICE = 0.1
SIZES = (10, 50, 100)
_UP_FRONT = "all up front"

#: With four tools in each skill.
MODES: dict[str, Mode] = {
    _UP_FRONT: Mode(bodies=True, tools=True),
    "tools up front, core": Mode("core", "session", "tool-result", tools=True),
    "core": Mode("core", "session", "tool-result"),
    "core, system": Mode("core", "session", "system"),
    "core, turn": Mode("core", "turn", "tool-result"),
    "core, turn, system": Mode("core", "turn", "system"),
    "full": Mode("full", "turn", "system"),
    "full, tool-result": Mode("full", "turn", "tool-result"),
    "full, session": Mode("full", "session", "system"),
    "full, session, tool-result": Mode("full", "session", "tool-result"),
}
#: With four tools that models have anyway, and none in the skills.
BODIES: dict[str, Mode] = {
    _UP_FRONT: Mode(bodies=True),
    "core": Mode("core", "session", "tool-result"),
    "core, turn": Mode("core", "turn", "tool-result"),
    "core, system": Mode("core", "session", "system"),
    "full": Mode("full", "turn", "system"),
    "full, session, tool-result": Mode("full", "session", "tool-result"),
}
#: By the number of tools in each skill.
SELECTIONS: dict[int, dict[str, Mode]] = {
    3: {
        _UP_FRONT: Mode(bodies=True, tools=True),
        "all 3": Mode("full", "session", "tool-result"),
        "2 of 3": Mode("full", "session", "tool-result", selected=2),
        "1 of 3": Mode("full", "session", "tool-result", selected=1),
    },
    10: {
        _UP_FRONT: Mode(bodies=True, tools=True),
        "all 10": Mode("full", "session", "tool-result"),
        "2 of 10": Mode("full", "session", "tool-result", selected=2),
    },
}


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run all sessions once, and write and print what they cost."""
    machine = report.machine()
    results: dict[str, dict[str, Any]] = {}
    for group, settings in _groups(quick).items():
        for setting, modes in settings:
            with tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
                own_texts.write(Path(folder), own_texts.texts(setting.skills), setting.tools)
                for label, mode in modes.items():
                    name = f"{group}, {setting.skills} skills, {label}"
                    if only in name or label == _UP_FRONT:
                        print(name, file=sys.stderr)
                        results[name] = _session(mode, setting, Path(folder))
            _compare(results, group, setting)
    print(tables(results))
    if not only and not quick:
        setting_of_all = {"characters_per_token": CHARS_PER_TOKEN, "cached_price": CACHED_PRICE, "sizes": SIZES}
        report.write(
            "economics", {"machine": machine, "setting": setting_of_all, "results": results}, tables(results)
        )


def _groups(quick: bool) -> dict[str, list[tuple[Setting, dict[str, Mode]]]]:
    sizes = SIZES[:1] if quick else SIZES
    return {
        "five turns": [(Setting(size, 4, FIVE_TURNS), MODES) for size in sizes],
        "one turn": [(Setting(size, 4, ONE_TURN), MODES) for size in sizes],
        "no tools": [(Setting(size, 0, FIVE_TURNS), BODIES) for size in sizes],
        "3 tools": [(Setting(size, 3, FIVE_TURNS), SELECTIONS[3]) for size in sizes],
        "10 tools": [(Setting(size, 10, FIVE_TURNS), SELECTIONS[10]) for size in sizes],
    }


def _session(mode: Mode, setting: Setting, folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    requests = sessions.run(mode, setting, folder)
    of_each = sessions.sizes(requests)
    total, cached = (sum(column) for column in zip(*of_each, strict=True))
    price = total - cached + CACHED_PRICE * cached
    tools = [sum(len(sessions.as_sent_tool(of)) for of in request.tools) for request in requests]
    return {
        "requests": len(requests),
        "tokens": round(total / CHARS_PER_TOKEN),
        "tokens_of_tools": round(sum(tools) / CHARS_PER_TOKEN),
        "cached_share": round(cached / total, 4),
        "price": round(price / CHARS_PER_TOKEN),
        "worst_prefix_share": round(min(c / before for (before, _), (_, c) in zip(of_each, of_each[1:])), 4),
        "tokens_by_request": [round(size / CHARS_PER_TOKEN) for size, _ in of_each],
        "cached_by_request": [round(size / CHARS_PER_TOKEN) for _, size in of_each],
        "seconds": round(time.monotonic() - began, 2),
    }


def _compare(results: dict[str, dict[str, Any]], group: str, setting: Setting) -> None:
    head = f"{group}, {setting.skills} skills, "
    base = results[head + _UP_FRONT]
    for name, of in results.items():
        if name.startswith(head):
            of["tokens_saved"] = round(1 - of["tokens"] / base["tokens"], 4)
            of["price_saved"] = round(1 - of["price"] / base["price"], 4)


def tables(results: dict[str, dict[str, Any]]) -> str:
    return "\n".join(f"{n:60s} {o['requests']} {o['tokens']:9,d} {o['tokens_saved']:7.1%} tools {o['tokens_of_tools']:9,d} {o['cached_share']:6.1%} worst {o['worst_prefix_share']:6.1%} {o['price']:9,d} {o['price_saved']:7.1%} {o['seconds']}s" for n, o in results.items())
