"""Write the tables of ``docs/reference/telemetry.md`` from :mod:`flink_skills.telemetry.metric_list`.

python -m docs.gen_metrics           write the tables
python -m docs.gen_metrics --check   exit with 1 if they differ from the list
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from docs.generated import fill, write_or_check
from flink_skills.telemetry.metric_list import METRICS, Metric

PAGE = Path(__file__).resolve().parent / "reference" / "telemetry.md"

_SCOPES = {
    "subtask": ("Subtask metrics", "Reported by each subtask."),
    "agent": (
        "Agent metrics",
        "Totals over all workers of a TaskManager, reported by the first subtask of the agent's operator on it. To get "
        "the total of the job, sum over the subtasks.",
    ),
    "worker": (
        "Worker metrics",
        "Values of one worker, reported by the same subtask. The label `worker` is the number of the worker.",
    ),
}


def tables() -> str:
    """Return the generated sections of the page."""
    parts = []
    for scope, (title, text) in _SCOPES.items():
        members = [metric for metric in METRICS if metric.scope == scope]
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
    yield f"| Metric |{' Labels |' if labelled else ''} Kind | Unit | Description |"
    yield f"|---|{'---|' if labelled else ''}---|---|---|"
    for metric in metrics:
        labels = f" {', '.join(f'`{label}`' for label in metric.labels)} |" if labelled else ""
        yield f"| `{metric.name}` |{labels} {metric.kind} | {metric.unit} | {metric.description} |"


def render(page: str) -> str:
    """Return ``page`` with current tables."""
    return fill(page, {"metrics": tables}, ("kinds", "columns"))


def main(arguments: list[str]) -> int:
    """Write or check the page, and return the exit code."""
    return write_or_check(PAGE, render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
