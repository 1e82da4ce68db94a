"""What Flink says of SQL that it cannot use, as one short message."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyflink.util.exceptions import JavaException

from flink_skills.errors import ConfigError
from flink_skills.flink.failures import job_failure
from flink_skills.flink.table_factories import MissingFactory, missing_factory

__all__ = ["SqlError", "sql_errors"]

_PLACE = re.compile(r"\b[Ll]ine (\d+), column (\d+)")
_TABLE = re.compile(r"Unable to create a (?:source|sink) for (?:reading|writing) table '([^']+)'")
# What follows is a list of what a parser would have taken, dozens of lines long.
_REST = re.compile(r"\n\s*Was expecting.*|\nAvailable factory identifiers.*", re.DOTALL)
_WORD = re.compile(r'Encountered "(.+?)" at line')
_RESERVED = "; a name that is a word of SQL is written in backticks"


class SqlError(ConfigError):
    """Flink cannot use a statement or a table.

    ``line`` is that of the statement, from 1, where Flink says it; ``factory`` is the connector or format that is not
    here; ``table`` is the full name of the table whose options are to blame.
    """

    def __init__(
        self, message: str, *, line: int = 0, factory: MissingFactory | None = None, table: str | None = None
    ) -> None:
        super().__init__(message)
        self.line = line
        self.factory = factory
        self.table = table


@contextlib.contextmanager
def sql_errors() -> Iterator[None]:
    """Errors of Flink as :class:`SqlError`; the options of tables that Flink lists in them are left out."""
    try:
        yield
    except (Py4JJavaError, JavaException, TypeError) as error:
        message = job_failure(error)
        if message is None:
            raise
        # Not chained: Flink's own message lists the options of the table, and these may hold a secret.
        raise _sql_error(message, error) from None


def _sql_error(message: str, error: BaseException) -> SqlError:
    whole = _whole(error)
    place, table = _PLACE.search(whole), _TABLE.search(whole)
    factory = missing_factory(message)
    if factory is not None:
        message = str(factory)
    short = " ".join(_REST.sub("", message).split())
    word = _WORD.match(short)
    if word is not None:
        short = f"SQL does not expect {word[1]!r} here" + _RESERVED * word[1].isidentifier()
    return SqlError(
        short, line=int(place[1]) if place else 0, factory=factory, table=table[1] if table is not None else None
    )


def _whole(error: BaseException | None) -> str:
    """The messages of all causes."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, Py4JJavaError):
        found = found.__cause__ or found.__context__
    texts: list[str] = []
    throwable = found.java_exception if found is not None else None
    while throwable is not None and len(texts) < 20:
        texts.append(str(throwable.getMessage()))
        throwable = throwable.getCause()
    return "\n".join(texts)
