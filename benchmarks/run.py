"""Runs the measurements; each suite writes ``benchmarks/results/SUITE.json`` and prints a table.

python -m benchmarks.run [SUITE ...] [--repeat 3] [--only TEXT] [--quick]

``--only`` keeps the measurements with TEXT in their name, and ``--quick`` takes a hundredth of everything, to try the
scripts. Both print without writing; ``load`` writes the cases that were chosen.
"""

from __future__ import annotations

import argparse
import importlib
import sys

#: Imported when they are run: skills and commands are measured without Flink.
SUITES = {
    "skills": "benchmarks.skills",
    "turns": "benchmarks.turns",
    "models": "benchmarks.models",
    "hostile_models": "benchmarks.hostile_models",
    "execution": "benchmarks.execution",
    "tools": "benchmarks.tools",
    "load": "benchmarks.load",
    "spread": "benchmarks.spread",
    "economics": "benchmarks.economics",
    "limits": "benchmarks.limits",
    "cold_start": "benchmarks.cold_start",
    "cli": "benchmarks.cli",
}


def main() -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all by default")
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the medians are taken over them")
    parser.add_argument("--only", default="", metavar="TEXT", help="only measurements with TEXT in their name")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the scripts")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    for name in options.suites or SUITES:
        importlib.import_module(SUITES[name]).measure(options.repeat, options.only, quick=options.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
