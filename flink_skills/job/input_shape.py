"""The fields of the events of an agent, as far as they are known before the job runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flink_skills.agents.rows.columns import OutputShape

if TYPE_CHECKING:
    from flink_skills.flink.job_graph import TableShape

__all__ = ["InputShape", "behind", "can_be_content"]

_OF_CONTENT = frozenset({"BYTES", "VARBINARY", "BINARY", "STRING", "VARCHAR", "CHAR"})


@dataclass(frozen=True)
class InputShape:
    """The fields of events by name, each with its type in SQL or with where it comes from.

    ``is_open`` says that events may have more fields. ``table`` is the table or query that the events are rows of.
    """

    columns: Mapping[str, str]
    has_rowtime: bool = False
    is_open: bool = False
    table: TableShape | None = None

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return list(self.columns)

    @classmethod
    def of_table(cls, table: TableShape) -> InputShape:
        """Return the shape of the rows of a table."""
        return cls({column.name: column.sql for column in table.columns}, table.has_rowtime, table=table)


def can_be_content(sql: str) -> bool:
    """Return whether a column of this type can contain an image, a PDF document or audio.

    ``sql`` is the type, or where an output of another agent comes from, which has no type.

    >>> can_be_content("BYTES"), can_be_content("ARRAY<VARCHAR(200)>"), can_be_content("INT NOT NULL")
    (True, True, False)
    """
    if sql[:1].islower():
        return True
    kind, _, inner = sql.partition("<")
    name = re.split(r"[ (]", kind.strip(), maxsplit=1)[0]
    if name == "ARRAY":
        return can_be_content(inner.strip())
    return name in _OF_CONTENT or (name == "ROW" and re.search(r"\b(data|uri)\b", inner) is not None)


def behind(
    sources: Mapping[str, tuple[InputShape, OutputShape, Sequence[str]]],
) -> InputShape:
    """Return the shape of the events that the agents ``sources`` give.

    Args:
        sources: By the name of each agent its input, its outputs, and the fields of the event if the file names them.
    """
    columns: dict[str, str] = {}
    is_open = False
    for name, (given, output, declared) in sources.items():
        if declared:
            columns |= dict.fromkeys(declared, f"from {name}")
            continue
        columns |= given.columns
        of_output = ["output"] if output.is_text else list(output.fields or ())
        columns |= dict.fromkeys(of_output, f"output of {name}")
        is_open = is_open or given.is_open or (output.fields is None and not output.is_text)
    return InputShape(columns, all(given.has_rowtime for given, _, _ in sources.values()), is_open)
