"""What all measurements share: the machine, medians, and the file that they are written to."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import plots

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = plots.PAGE
_QUIET = 1.5


def machine(**more: Any) -> dict[str, Any]:
    """What the figures depend on. The load is the one before anything was measured."""
    load = round(os.getloadavg()[0], 2)
    if load > _QUIET:
        print(f"the machine is busy (load average {load}): these figures say little", file=sys.stderr)
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **more,
        "kernel": platform.release(),
        "load_average": load,
    }


def run_job(module: str, name: str, request: dict[str, Any], deadline: float = 600) -> dict[str, Any]:
    """Run one measurement in a process of its own: ``python -m MODULE NAME JSON``, which prints ``RESULT JSON``."""
    done = subprocess.run(
        [sys.executable, "-m", module, name, json.dumps(request)],
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return result
    raise SystemExit(f"{module} {name} {request} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def medians(runs: list[dict[str, Any]], digits: int = 2) -> dict[str, Any]:
    """The median of each figure over runs of the same shape; a text is taken from the first run."""
    found: dict[str, Any] = {}
    for name, first in runs[0].items():
        values = [run[name] for run in runs]
        if isinstance(first, dict):
            found[name] = medians(values, digits)
        elif isinstance(first, str):
            found[name] = first
        else:
            found[name] = round(statistics.median(values), digits)
    return found


def write(name: str, content: dict[str, Any], table: str) -> None:
    """Write ``benchmarks/results/NAME.json``, and the table with its plots to its place in ``benchmarks/README.md``."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}.json"
    date = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    target.write_text(json.dumps({"date": date, **content}, indent=2) + "\n")
    begin, end = f"<!-- table: {name} -->\n", "<!-- end of table -->\n"
    before, found, rest = PAGE.read_text().partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{PAGE}: there is no place for the table {name}")
    table, drawn = plots.with_plots(name, table)
    plots.write(drawn)
    PAGE.write_text(f"{before}{begin}\n{table}\n\n{end}{rest.partition(end)[2]}")
    print(f"written to {target} and {PAGE}", file=sys.stderr)
