"""Write the tables of ``docs/metrics.md`` from :mod:`flink_skills.telemetry.metric_list`.

python -m docs.gen_metrics           write the tables
python -m docs.gen_metrics --check   exit with 1 when they are not what the list says
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from docs.generated import fill, write_or_check
from flink_skills.telemetry.metric_list import METRICS, Metric

PAGE = Path(__file__).resolve().parent / "metrics.md"

_SCOPES = {
    "subtask": ("Of each subtask", ""),
    "agent": (
        "Of an agent",
        "Counted by all workers of a TaskManager, and shown at the first subtask of the agent's operator there: sum "
        "them up over the subtasks.",
    ),
    "worker": ("Of each worker", "With the label `worker`, the worker's number; at the same subtask."),
}


def tables() -> str:
    """The sections of the page that the list says."""
    parts = []
    for scope, (title, text) in _SCOPES.items():
        members = [of for of in METRICS if of.scope == scope]
        parts.append(
            "\n".join(
                [
                    f"## {title}",
                    "",
                    *([textwrap.fill(text, 120), ""] if text else []),
                    *_table(members, scope == "agent"),
                ]
            )
        )
    return "\n\n".join(parts)


def _table(metrics: Iterable[Metric], labelled: bool) -> Iterable[str]:
    yield f"| metric |{' labels |' if labelled else ''} kind | unit | what |"
    yield f"|---|{'---|' if labelled else ''}---|---|---|"
    for of in metrics:
        labels = f" {', '.join(f'`{label}`' for label in of.labels)} |" if labelled else ""
        yield f"| `{of.name}` |{labels} {of.kind} | {of.unit} | {of.description} |"


def render(page: str) -> str:
    """``page`` with the tables in their place."""
    return fill(page, {"metrics": tables})


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(PAGE, render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
