"""Write the tables of ``docs/events.md`` from :mod:`flink_skills.telemetry.event_record`.

python docs/gen_events.py            write the tables
python docs/gen_events.py --check    exit with 1 when they are not what the code says
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

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


def page(text: str) -> str:
    """The page's text with the tables in their places."""
    for name, lines in {"kinds": kinds(), "columns": columns()}.items():
        before, begin, rest = text.partition(f"<!-- {name}: begin -->\n")
        _, end, after = rest.partition(f"<!-- {name}: end -->\n")
        if not begin or not end:
            raise SystemExit(f"{PAGE}: there is no place for the table of {name}")
        text = f"{before}{begin}\n" + "\n".join(lines) + f"\n\n{end}{after}"
    return text


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
