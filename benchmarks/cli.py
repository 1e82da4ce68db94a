"""How long ``flink-skills`` takes: processes from their start to their end, with the files in the page cache."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import corpus, report

#: Rounds for each ``repeat``; the commands take turns, so that a slow moment hits all of them.
ROUNDS = 10
SKILLS = 50
#: With byte code, which the first round writes where an installer has not, as for every user of an installed program.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run every command in turn, and write and print the medians."""
    machine = report.machine(what="python -m flink_skills.cli, stdout to a file")
    rounds = 2 if quick else ROUNDS * repeat
    with tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
        corpus.write_skills(Path(folder) / "skills", SKILLS)
        commands = {name: words for name, words in _commands(Path(folder) / "skills").items() if only in name}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, words in commands.items():
                took = _milliseconds(words)
                if number:  # the first round fills the page cache
                    times[name].append(took)
    results = {name: _figures(of) for name, of in times.items()}
    table = _table(results)
    print(table)
    if not only and not quick:
        setting = {"rounds": rounds, "skills": SKILLS}
        report.write("cli", {"machine": machine, "setting": setting, "medians": results, "runs": times}, table)


def _commands(skills: Path) -> dict[str, list[str]]:
    program = [sys.executable, "-m", "flink_skills.cli"]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "--version": [*program, "--version"],
        "--help": [*program, "--help"],
        "validate --help": [*program, "validate", "--help"],
        f"list, {SKILLS} skills": [*program, "list", str(skills)],
        f"list --format json, {SKILLS} skills": [*program, "list", str(skills), "--format", "json"],
        f"validate, {SKILLS} skills": [*program, "validate", str(skills)],
    }


def _milliseconds(words: list[str]) -> float:
    started = time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    took = (time.perf_counter() - started) * 1000
    if done.returncode:
        raise SystemExit(f"{words} failed:\n{done.stderr.decode()[-2000:]}")
    return round(took, 1)


def _figures(times: list[float]) -> dict[str, Any]:
    return {"median_ms": round(statistics.median(times), 1), "least_ms": min(times), "most_ms": max(times)}


def _table(results: dict[str, dict[str, Any]]) -> str:
    lines = ["| command | median, ms | least | most |", "|---|---|---|---|"]
    for name, of in results.items():
        lines.append(f"| `{name}` | {of['median_ms']:.0f} | {of['least_ms']:.0f} | {of['most_ms']:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    measure(1, "")
