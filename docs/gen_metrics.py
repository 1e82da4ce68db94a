"""Write the tables of ``docs/metrics.md`` from :mod:`flink_skills.telemetry.metric_list`.

python docs/gen_metrics.py            write the tables
python docs/gen_metrics.py --check    exit with 1 when they are not what the list says
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from flink_skills.telemetry.metric_list import METRICS, Metric

PAGE = Path(__file__).resolve().parent / "metrics.md"

_BEGIN, _END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"
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
    return "\n\n".join(parts) + "\n"


def _table(metrics: Iterable[Metric], labelled: bool) -> Iterable[str]:
    yield f"| metric |{' labels |' if labelled else ''} kind | unit | what |"
    yield f"|---|{'---|' if labelled else ''}---|---|---|"
    for of in metrics:
        labels = f" {', '.join(f'`{label}`' for label in of.labels)} |" if labelled else ""
        yield f"| `{of.name}` |{labels} {of.kind} | {of.unit} | {of.description} |"


def page(text: str) -> str:
    """The page's text with the tables in their place."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"{PAGE}: there is no place for the tables")
    return f"{before}{begin}\n{tables()}\n{end}{after}"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; returns the exit code."""
    text = PAGE.read_text(encoding="utf-8")
    written = page(text)
    if "--check" in arguments:
        return 0 if written == text else 1
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
