"""Names of connectors, formats and catalogs that Flink SQL knows, and misspelled ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = ["MissingFactory", "missing_factory"]

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
