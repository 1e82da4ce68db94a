"""Write the tables of ``docs/events.md`` from :mod:`flink_skills.telemetry.event_record`.

python -m docs.gen_events           write the tables
python -m docs.gen_events --check   exit with 1 when they are not what the code says
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from docs.generated import fill, write_or_check
from flink_skills.telemetry.event_record import EVENT_COLUMNS, EVENT_KINDS

PAGE = Path(__file__).resolve().parent / "events.md"


def kinds() -> Iterator[str]:
    """The table of kinds."""
    yield "| kind | when |"
    yield "|---|---|"
    for kind, doc in EVENT_KINDS.items():
        yield f"| `{kind}` | {doc} |"


def columns() -> Iterator[str]:
    """The table of columns."""
    yield "| column | type | of | what |"
    yield "|---|---|---|---|"
    for column in EVENT_COLUMNS:
        of = ", ".join(f"`{kind}`" for kind in column.kinds) or "all"
        yield f"| `{column.name}` | `{column.type}` | {of} | {column.doc} |"


def render(page: str) -> str:
    """``page`` with the tables in their places."""
    return fill(page, {"kinds": lambda: "\n".join(kinds()), "columns": lambda: "\n".join(columns())})


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(PAGE, render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
