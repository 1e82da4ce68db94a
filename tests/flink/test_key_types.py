"""A key of each type of Flink: the agent has the value that the user gave, and state is kept under it."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pytest
from pyflink.common import Instant, Row, Types

from flink_skills import AgentsExecutionEnvironment, ConfigError
from tests.flink.agents import Echo
from tests.flink.running import collect, environments, flink_environment

pytestmark = pytest.mark.flink

UTC = dt.timezone.utc
# name -> type, value, another value, the value as ctx.key has it where that is another one
KINDS: dict[str, tuple[Any, Any, Any, Any]] = {
    "string": (Types.STRING(), 'ü\n"', "", None),
    "int": (Types.INT(), -7, 7, None),
    "long": (Types.LONG(), 2**62, 2**62 + 1, None),
    "boolean": (Types.BOOLEAN(), True, False, None),
    "byte": (Types.BYTE(), -3, 3, None),
    "short": (Types.SHORT(), 300, -300, None),
    "float": (Types.FLOAT(), 1.5, -1.5, None),
    "double": (Types.DOUBLE(), 0.1, 0.2, None),
    "char": (Types.CHAR(), "x", "y", None),
    "big_int": (Types.BIG_INT(), 2**62, 2**62 + 1, None),
    "big_dec": (Types.BIG_DEC(), decimal.Decimal("1.50"), decimal.Decimal("1.51"), None),
    "date": (Types.SQL_DATE(), dt.date(2024, 2, 29), dt.date(1969, 12, 31), None),
    "time": (Types.SQL_TIME(), dt.time(1, 2, 3), dt.time(0, 0), None),
    "timestamp": (Types.SQL_TIMESTAMP(), dt.datetime(2024, 2, 29, 1, 2, 3, 456000), dt.datetime(2024, 2, 29), None),
    "instant": (
        Types.INSTANT(),
        Instant(1700000000, 123456000),
        Instant(1700000000, 0),
        dt.datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC),
    ),
    "numbers": (Types.PRIMITIVE_ARRAY(Types.LONG()), [1, 2], [2, 1], (1, 2)),
    "texts": (Types.OBJECT_ARRAY(Types.STRING()), ["a", None], ["a"], ("a", None)),
    "list": (Types.LIST(Types.INT()), [1, 2], [1], (1, 2)),
    "map": (Types.MAP(Types.STRING(), Types.INT()), {"b": 1, "a": 2}, {"a": 2}, None),
    "row": (
        Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]),
        Row("x", 1),
        Row("x", 2),
        {"a": "x", "b": 1},
    ),
    "tuple": (Types.TUPLE([Types.STRING(), Types.INT()]), ("x", 1), ("x", 2), None),
    "pickled": (Types.PICKLED_BYTE_ARRAY(), ("x", 2.5), ("x", 3), None),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff", b"\x00", None),
}
ROWS = Types.ROW_NAMED(["n", *KINDS], [Types.INT(), *(kind[0] for kind in KINDS.values())])
# Number and value, in the order of events: one key twice, then another one.
EVENTS = (1, 2, 3)


def make_row(number: int) -> Row:
    return Row(number, *(kind[2] if number == EVENTS[-1] else kind[1] for kind in KINDS.values()))


def test_a_key_of_each_type_has_its_value_and_keeps_its_state() -> None:
    env, agents = environments({"skills.shell.enabled": "false"})
    # Straight from one Python function to the next, where rows have no names.
    rows = env.from_collection(list(EVENTS), Types.INT()).map(make_row, output_type=ROWS)
    output = agents.from_datastream(rows, list(KINDS)).apply(Echo("echo"))
    # Keys do not wait for each other.
    told = sorted(
        collect(output.to_datastream(), output.to_datastream(tag="errors")), key=lambda record: record["event"]["n"]
    )
    # The turns of a key are numbered: its state was found again, in the order of events.
    assert [(record["event"]["n"], record["turn"]) for record in told] == [(1, 1), (2, 2), (3, 1)]
    wrong = []
    for kind, key in zip(KINDS, told[0]["key"], strict=True):
        _, value, _, in_key = KINDS[kind]
        expected = value if in_key is None else in_key
        if (type(key), key) != (type(expected), expected):
            wrong.append((kind, key))
    assert wrong == []


def test_keys_with_lone_surrogates_are_apart_from_others() -> None:
    env, agents = environments({"skills.shell.enabled": "false"})
    names = ["x\ud800y", "x?y", "x\ufffdy", "x\ud800y"]
    stream = env.from_collection([{"n": number, "name": name} for number, name in enumerate(names)])
    output = agents.from_datastream(stream, lambda event: event["name"]).apply(Echo("echo"))
    found = collect(output.to_datastream(), output.to_datastream(tag="errors"))
    turns = {record["event"]["n"]: (record["key"], record["turn"]) for record in found}
    assert turns == {0: ("x\ud800y", 1), 1: ("x?y", 1), 2: ("x\ufffdy", 1), 3: ("x\ud800y", 2)}


def test_a_column_that_flink_cannot_hand_to_python_is_refused_when_the_graph_is_built() -> None:
    agents = AgentsExecutionEnvironment.get_execution_environment(flink_environment())
    table = agents.table_environment().sql_query("SELECT x'00ff' AS b, 'x' AS k, CAST(1 AS DOUBLE) AS d")
    agents.from_table(table, "k")
    with pytest.raises(ConfigError, match=r"data type 'BINARY\(2\) NOT NULL'.*CAST that column to another type"):
        agents.from_table(table, "d")
