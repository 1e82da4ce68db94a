"""Write the tables of ``docs/reference/telemetry.md`` from :mod:`flink_skills.telemetry.event_record`.

python -m docs.gen_events           write the tables
python -m docs.gen_events --check   exit with 1 if they differ from the code
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from docs.generated import fill, write_or_check
from flink_skills.telemetry.event_record import EVENT_COLUMNS, EVENT_KINDS

PAGE = Path(__file__).resolve().parent / "reference" / "telemetry.md"


def kinds() -> Iterator[str]:
    """Yield the lines of the table of kinds."""
    yield "| Kind | Occasion |"
    yield "|---|---|"
    for kind, doc in EVENT_KINDS.items():
        yield f"| `{kind}` | {doc} |"


def columns() -> Iterator[str]:
    """Yield the lines of the table of columns."""
    yield "| Column | Type | Kinds | Description |"
    yield "|---|---|---|---|"
    for column in EVENT_COLUMNS:
        kinds_of_column = _kinds_of(column.kinds)
        yield f"| `{column.name}` | `{column.type}` | {kinds_of_column} | {column.doc} |"


def _kinds_of(kinds: Sequence[str]) -> str:
    """Return the kinds, by those that are missing if these are fewer."""
    missing = [kind for kind in EVENT_KINDS if kind not in kinds]
    if not kinds or not missing:
        return "all"
    names, start = (missing, "all except ") if len(missing) < len(kinds) else (kinds, "")
    return start + ", ".join(f"`{kind}`" for kind in names)


def render(page: str) -> str:
    """Return ``page`` with current tables."""
    return fill(page, {"kinds": lambda: "\n".join(kinds()), "columns": lambda: "\n".join(columns())}, ("metrics",))


def main(arguments: list[str]) -> int:
    """Write or check the page, and return the exit code."""
    return write_or_check(PAGE, render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
