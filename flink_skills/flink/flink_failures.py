"""Failures of Flink as one short message: of jobs, of SQL, and of missing connectors, formats and catalogs."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyflink.util.exceptions import JavaException

from flink_skills.errors import ConfigError, SkillsError

_KINDS = {"DynamicTableFactory": "connector", "Format": "format", "CatalogFactory": "catalog"}
_ANY_FACTORY = re.compile(
    r"Could not find any (?P<of>format |)factory for identifier '(?P<name>[^']+)'"
    r"(?: that implements '(?P<api>[\w.$]+)')?"
)
_AVAILABLE = re.compile(r"Available factory identifiers are:\s*(.*)", re.DOTALL)
# Names of jars that a machine may not have. They are only used to find the name that was meant.
_CONNECTORS = """
kafka upsert-kafka filesystem jdbc elasticsearch-6 elasticsearch-7 opensearch opensearch-2 mongodb hbase-1.4
hbase-2.2 kinesis kinesis-legacy firehose dynamodb sqs pulsar upsert-pulsar rabbitmq cassandra prometheus http
hive iceberg hudi paimon delta fluss doris starrocks clickhouse pinot redis mysql-cdc postgres-cdc oracle-cdc
sqlserver-cdc db2-cdc mongodb-cdc tidb-cdc oceanbase-cdc vitess-cdc datagen blackhole print
"""
_FORMATS = """
json csv raw avro avro-confluent avro-glue json-glue parquet orc protobuf debezium-json canal-json maxwell-json
ogg-json debezium-avro-confluent
"""
_CATALOGS = """
generic_in_memory jdbc hive iceberg paimon hudi delta-catalog fluss nessie
"""
_PUBLISHED = {"connector": _CONNECTORS, "format": _FORMATS, "catalog": _CATALOGS}
# A name that only adds something to a known one may be that of another connector.
_MAX_ADDED = 2
_SIMILARITY = 0.75


class MissingFactory:
    """A connector, format or catalog that is not on the class path: its ``kind``, its ``name`` and names ``near`` it.

    Without a near name its jar may be elsewhere. With one, the name is wrong.
    """

    def __init__(self, kind: str, name: str, available: Iterable[str]) -> None:
        self.kind, self.name = kind, name
        known = {*available, *_PUBLISHED.get(kind, "").split()}
        self.near = [] if name in known else _near(name, known)

    def __str__(self) -> str:
        if self.near:
            names = " or ".join(repr(each) for each in self.near)
            return f"unknown {self.kind} {self.name!r}: did you mean {names}? Or its jar is not on the class path"
        return f"there is no {self.kind} {self.name!r} here: its jar is not on the class path"


def missing_factory(message: str) -> MissingFactory | None:
    """Return the connector, format or catalog that Flink has not found, or None for another message of Flink."""
    found = _ANY_FACTORY.search(message)
    if found is None:
        return None
    api = (found["api"] or "").rpartition(".")[2]
    kind = "format" if found["of"] else next((word for part, word in _KINDS.items() if part in api), "connector")
    listed = _AVAILABLE.search(message)
    return MissingFactory(kind, found["name"], listed[1].split() if listed is not None else ())


def _near(name: str, known: Iterable[str]) -> list[str]:
    wanted = name.casefold().replace("_", "-")
    # A name that is only a little like another one may be that of a connector of the job.
    near = difflib.get_close_matches(wanted, sorted(known), n=2, cutoff=_SIMILARITY)
    return [each for each in near if not _is_part(each, wanted)]


def _is_part(one: str, other: str) -> bool:
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return shorter in longer and len(longer) - len(shorter) > _MAX_ADDED


_MAX_DEPTH = 50


class JobFailedError(SkillsError):
    """A job was submitted and failed; the message is that of the root cause."""


def job_failure(error: BaseException) -> str | None:
    """Return the message of the root cause of a failed job. Return None if ``error`` did not come from Java."""
    message = None
    for throwable in _java_causes(error):
        message = str(throwable.getMessage() or throwable.getClass().getSimpleName())
        if "org.flinkskills" in throwable.toString().partition(":")[0] or _names_an_option(message):
            break
    return None if message is None else _without_class(message)


def hides_cause(error: BaseException) -> bool:
    """Return True if Flink reports that a task has already failed, and not why.

    An event of an operator coordinator that arrives at a failed task fails the job before the task's own report does.
    """
    return any("TaskNotRunningException" in throwable.toString() for throwable in _java_causes(error))


def _java_causes(error: BaseException) -> Iterator[Any]:
    """Yield the exception of Java that an error came from, and its causes. Yield nothing for an error of Python."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, Py4JJavaError):
        found = found.__cause__ or found.__context__
    throwable = None if found is None else found.java_exception
    for _ in range(_MAX_DEPTH):
        if throwable is None:
            return
        yield throwable
        throwable = throwable.getCause()


@contextlib.contextmanager
def flink_errors(error_class: type[SkillsError], prefix: str = "") -> Iterator[None]:
    """Raise an error of Flink as ``error_class``: ``prefix``, and the message of the root cause."""
    try:
        yield
    except Exception as error:
        message = job_failure(error)
        if message is None:
            raise
        raise error_class(prefix + message) from error


def _names_an_option(message: str) -> bool:
    """Return True if Flink names the option with an invalid value. The causes below name only the value."""
    return message.startswith("Could not parse value '") and "' for key '" in message


def _without_class(message: str) -> str:
    """Return ``message`` without the class name at the start of Flink's serialized throwables."""
    head, colon, rest = message.partition(": ")
    return rest if colon and " " not in head and "." in head else message


_PLACE = re.compile(r"\b[Ll]ine (\d+), column (\d+)")
_TABLE = re.compile(r"Unable to create a (?:source|sink) for (?:reading|writing) table '([^']+)'")
# A list of the tokens that the parser expected follows, which can have dozens of lines.
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
    """Raise errors of Flink as :class:`SqlError`, without the options of tables that Flink lists in them."""
    try:
        yield
    except (Py4JJavaError, JavaException, TypeError) as error:
        message = job_failure(error)
        if message is None:
            raise
        # Not chained: Flink's own message lists the options of the table, and these may hold a secret.
        raise _sql_error(message, error) from None


def _sql_error(message: str, error: BaseException) -> SqlError:
    # The location and the table can be in the message of any cause.
    whole = "\n".join(str(throwable.getMessage()) for throwable in _java_causes(error))
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
