"""Commands: what isolation adds to them, opening a backend, staging skills, workspaces."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from landlockpy import abi_version

from benchmarks import corpus, peers, report, ways

JOBS = "benchmarks.execution_jobs"
PROGRAMS = ("true", "python", "shell loop")
AT_ONCE = 8
SIDE_BY_SIDE = (ways.PLAIN, *ways.OURS, ways.ALONE)
#: The libraries run in a process without threads, where bubblewrap's start has left none.
WITH_PEERS = (ways.PLAIN, "landlock", *ways.PEERS)
#: Files and bytes of each, 40 MB together.
SKILLS = {"400 files": (400, 100_000), "4 files": (4, 10_000_000)}
_WAY = "| {} | ms | best | added, ms | ratio to subprocess |"


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run all measurements ``repeat`` times, and write and print the medians."""
    machine = report.machine(
        landlock_abi=abi_version(), user="root, commands as 65534" if os.geteuid() == 0 else "not root, the same"
    )
    problem = peers.install(peers.SANDBOXES)
    if problem:
        print(f"peers are not installed: {problem}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
        chosen = {name: m for name, m in _measurements(Path(folder), quick).items() if only in name}
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
        for number in range(repeat):
            for name, (job, request) in chosen.items():
                print(f"round {number + 1}: {name}", file=sys.stderr)
                runs[name].append(report.run_job(JOBS, job, request))
    results = {name: report.medians(of, 3) for name, of in runs.items()}
    print(tables(results))
    if not only and not quick:
        setting = {
            "repeat": repeat,
            "commands_at_once": AT_ONCE,
            "peers": problem or peers.installed(peers.SANDBOXES),
        }
        content = {"machine": machine, "setting": setting, "medians": results, "runs": runs}
        report.write("execution", content, tables(results))


def _measurements(folder: Path, quick: bool) -> dict[str, tuple[str, dict[str, Any]]]:
    """Job and request by name."""
    rounds = 3 if quick else 100
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for program in PROGRAMS:
        found[f"command: {program}"] = (
            "commands",
            {"ways": SIDE_BY_SIDE, "program": program, "rounds": rounds},
        )
    found["command: true, with libraries"] = ("commands", {"ways": WITH_PEERS, "program": "true", "rounds": rounds})
    found[f"command: true, {AT_ONCE} in parallel"] = (
        "concurrent",
        {"ways": SIDE_BY_SIDE, "count": AT_ONCE, "commands": 16 if quick else 160, "rounds": 2 if quick else 12},
    )
    found[f"{AT_ONCE} commands in parallel"] = (
        "parallel",
        {"ways": SIDE_BY_SIDE, "count": AT_ONCE, "turns": 5_000 if quick else 1_000_000},
    )
    found["opening"] = ("opening", {"backends": (*ways.OURS, "auto"), "rounds": 1 if quick else 10})
    for name, (files, size) in SKILLS.items():
        home = folder / name.replace(" ", "-")
        corpus.write_large_skill(home, files, size // 100 if quick else size)
        request = {"skill": str(home / "large"), "rounds": 2 if quick else 5, "keys": 3 if quick else 20}
        found[f"staging 40 MB in {name}"] = ("staging", request)
    found["workspaces"] = ("workspaces", {"rounds": 3 if quick else 200})
    return found


def tables(results: dict[str, dict[str, Any]]) -> str:
    """The medians as Markdown tables."""
    parts = []
    for name, of in results.items():
        if name.startswith("command: "):
            rows = [_row(way, figures, ("ms", "best_ms", "added_ms", "ratio")) for way, figures in of.items()]
            parts.append(_table(_WAY.format(name.removeprefix("command: ")), rows))
        elif name.endswith("in parallel"):
            rows = [_row(way, figures, ("seconds", "ideal_seconds", "share_of_ideal")) for way, figures in of.items()]
            parts.append(_table(f"| {name} | seconds | ideal | share of ideal |", rows))
        elif name == "opening":
            rows = [_row(way, figures, ("level", "ms", "start_ms")) for way, figures in of.items()]
            parts.append(_table("| opening | level | proved, ms | started, ms |", rows))
        elif name.startswith("staging"):
            columns = ("first_ms", "later_ms", "other_key_ms", "disk_mb")
            head = f"| {name} | first, ms | same key, ms | other key, ms | all keys, MB |"
            parts.append(_table(head, [_row(how, figures, columns) for how, figures in of.items()]))
        else:
            parts.append(_table("| workspaces | µs |", [f"| {what} | {value:.0f} |" for what, value in of.items()]))
    return "\n\n".join(parts)


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows])


def _row(name: str, figures: dict[str, Any] | str, columns: tuple[str, ...]) -> str:
    if isinstance(figures, str):  # why there are none
        return f"| {name} | {figures} |" + " |" * (len(columns) - 1)
    return f"| {name} | " + " | ".join(_cell(figures.get(column, "")) for column in columns) + " |"


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"
