"""Check of the prose in this project.

    python -m checks.prose                   check, and lower the baseline if there are fewer hits
    python -m checks.prose --list RULE …     print the hits of these rules, for example B07, or M for all with an M
    python -m checks.prose --commits REV     check the subjects of the commits since REV

Rules are in ``rules.yaml`` and ``budgets.yaml``, today's hits in ``baseline.yaml``, and parts of the project that have
no hit in ``zero.yaml``. The comment ``prose: allow B07: REASON`` allows a hit: in a passage, at its end or on the line
before its first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from checks.prose.budgets import read_budgets
from checks.prose.check import BUDGETS, RULES, check, check_commits, measure
from checks.prose.rules import read_rules

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Run the command, and return the exit code."""
    parser = argparse.ArgumentParser("python -m checks.prose", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", nargs="+", metavar="RULE", help="print the hits of these rules")
    parser.add_argument("--commits", metavar="REV", help="check the subjects of the commits since REV")
    options = parser.parse_args(arguments)
    if options.list:
        report = measure(ROOT, read_rules(ROOT / RULES), read_budgets(ROOT / BUDGETS))
        for hit in report.hits:
            if hit.rule.startswith(tuple(options.list)):
                print(f"{hit.rule} {hit}")
        return 0
    messages = check_commits(ROOT, options.commits) if options.commits else check(ROOT)
    for message in messages:
        print(message)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
