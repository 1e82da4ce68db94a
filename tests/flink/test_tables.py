"""``from_table`` and ``to_table``: tables that only insert, tables that update, and SQL behind an agent."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, Table

from flink_skills import AgentsExecutionEnvironment, ConfigError, UnknownNameError
from tests.flink.agents import Echo, Tally
from tests.flink.running import collect, failure_of, flink_environment, operators

pytestmark = pytest.mark.flink

VALUES = DataTypes.ROW(
    [
        DataTypes.FIELD("k", DataTypes.STRING()),
        DataTypes.FIELD("v", DataTypes.INT()),
        DataTypes.FIELD("price", DataTypes.DECIMAL(10, 2)),
        DataTypes.FIELD("day", DataTypes.DATE()),
        DataTypes.FIELD("inner", DataTypes.ROW([DataTypes.FIELD("x", DataTypes.DOUBLE())])),
        DataTypes.FIELD("tags", DataTypes.MAP(DataTypes.STRING(), DataTypes.INT())),
    ]
)
DAY = dt.date(2026, 2, 3)
ROWS = [
    ("a", 1, Decimal("1.50"), DAY, (0.5,), {"x": 1}),
    ("b", 2, None, None, None, None),
    ("a", 3, Decimal("2.00"), DAY, (1.5,), {}),
]


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    return StreamTableEnvironment.create(flink_environment())


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    with table.execute().collect() as rows:
        return [tuple(row) for row in rows]


@pytest.mark.both_versions
def test_a_table_in_and_a_table_out_with_sql_behind(t_env: StreamTableEnvironment) -> None:
    agents_env = AgentsExecutionEnvironment.get_execution_environment(t_env=t_env)
    given = t_env.from_elements(ROWS, VALUES)
    output = agents_env.from_table(given, "k").apply(Tally)
    schema = Schema.new_builder().column("key", "STRING").column("last", "BIGINT").column("seen", "ARRAY<INT>").build()
    table = output.to_table(schema)
    assert list(table.get_resolved_schema().get_column_names()) == ["key", "last", "seen"]
    for same in (
        {"key": "STRING", "last": DataTypes.BIGINT(), "seen": "ARRAY<INT>"},
        DataTypes.ROW([DataTypes.FIELD("key", DataTypes.STRING()), DataTypes.FIELD("last", DataTypes.BIGINT())]),
    ):
        names = list(output.to_table(same).get_resolved_schema().get_column_names())
        assert names == ["key", "last", "seen"][: len(names)]
    t_env.create_temporary_view("turns", table)
    sums = t_env.sql_query("SELECT UPPER(key), last, CARDINALITY(seen) FROM turns WHERE last > 1")
    assert sorted(rows_of(sums)) == [("A", 3, 2), ("B", 2, 1)]


def test_columns_of_many_types_arrive_as_python_values_by_java_and_by_python_keys(
    t_env: StreamTableEnvironment,
) -> None:
    agents_env = AgentsExecutionEnvironment.get_execution_environment(t_env=t_env)
    given = t_env.from_elements(ROWS, VALUES)
    by_name = agents_env.from_table(given, "k").apply(Echo("name")).to_datastream()
    by_day = agents_env.from_table(given, "day").apply(Echo("day")).to_datastream()
    by_code = agents_env.from_table(given, lambda row: (row["k"], row["v"])).apply(Echo("code")).to_datastream()
    by_two = agents_env.from_table(given, ["k", "v"]).apply(Echo("two")).to_datastream()
    by_other_two = agents_env.from_table(given, ["k", "day"]).apply(Echo("other two")).to_datastream()
    records = collect(by_name, by_day, by_code, by_two, by_other_two)
    first = {"k": "a", "v": 1, "price": Decimal("1.50"), "day": DAY, "inner": {"x": 0.5}, "tags": {"x": 1}}
    second = dict.fromkeys(first) | {"k": "b", "v": 2}
    for name in ("name", "day", "code"):
        events = {r["event"]["v"]: r["event"] for r in records if r["agent"] == name}
        assert events[1] == first, name
        assert events[2] == second, name
        assert events[1].inner["x"] == 0.5
    assert {r["key"] for r in records if r["agent"] == "day"} == {DAY, None}
    for agent in ("code", "two"):
        assert {r["key"] for r in records if r["agent"] == agent} == {("a", 1), ("b", 2), ("a", 3)}, agent
    assert {r["key"] for r in records if r["agent"] == "other two"} == {("a", DAY), ("b", None)}


def test_a_table_needs_no_python_stage_on_its_way_in(t_env: StreamTableEnvironment) -> None:
    env = flink_environment()
    t_env = StreamTableEnvironment.create(env)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env, t_env)
    t_env.execute_sql("CREATE TABLE numbers (k BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3')")
    agents_env.from_table(t_env.from_path("numbers"), "k").apply(Echo)
    t_env.execute_sql("CREATE TABLE pairs (a STRING, b INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3')")
    agents_env.from_table(t_env.from_path("pairs"), ["b", "a"]).apply(Echo)
    assert [name for name in operators(env) if "python" in name.lower()] == []


def test_an_updating_table_gives_what_holds_after_each_change(t_env: StreamTableEnvironment) -> None:
    agents_env = AgentsExecutionEnvironment.get_execution_environment(t_env=t_env)
    t_env.create_temporary_view("numbers", t_env.from_elements(ROWS, VALUES))
    counts = t_env.sql_query("SELECT k, SUM(v) AS total FROM numbers GROUP BY k")
    by_name = agents_env.from_table(counts, "k").apply(Echo("name")).to_datastream()
    by_code = agents_env.from_table(counts, lambda row: row["k"]).apply(Echo("code")).to_datastream()
    records = collect(by_name, by_code)
    for name in ("name", "code"):
        totals = sorted((r["key"], r["turn"], r["event"]["total"]) for r in records if r["agent"] == name)
        assert totals == [("a", 1, 1), ("a", 2, 4), ("b", 1, 2)], name


@pytest.mark.parametrize("by", ["name", "code"])
def test_a_table_that_deletes_fails_the_job_with_the_fix(t_env: StreamTableEnvironment, by: str) -> None:
    agents_env = AgentsExecutionEnvironment.get_execution_environment(t_env=t_env)
    t_env.create_temporary_view("numbers", t_env.from_elements(ROWS, VALUES))
    # The smallest of the first two is taken back when a larger one comes.
    largest = t_env.sql_query("SELECT k, v FROM numbers ORDER BY v DESC LIMIT 2")
    selector = "k" if by == "name" else (lambda row: row["k"])
    message = failure_of(agents_env.from_table(largest, selector).apply(Echo).to_datastream())
    assert "DELETE" in message
    assert "Filter out deletes" in message


def test_what_is_wrong_with_a_table_is_said_at_once(t_env: StreamTableEnvironment) -> None:
    agents_env = AgentsExecutionEnvironment.get_execution_environment(t_env=t_env)
    given = t_env.from_elements(ROWS, VALUES)
    with pytest.raises(UnknownNameError, match="unknown key column 'prise' in the table: did you mean 'price'"):
        agents_env.from_table(given, "prise")
    with pytest.raises(UnknownNameError, match="unknown key column 'kay' in the table"):
        agents_env.from_table(given, ["v", "kay"])
    with pytest.raises(ConfigError, match="a list holds the names of fields"):
        agents_env.from_table(given, ["v", 1])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="give a key_selector, a callable or one of k, v"):
        agents_env.from_table(given)
    output = agents_env.from_table(given, "k").apply(Echo)
    with pytest.raises(ConfigError, match="give a Schema"):
        output.to_table(["key", "turn"])
    with pytest.raises(ConfigError, match="column 'turn' has no type that Flink knows"):
        output.to_table({"key": "STRING", "turn": "INTEGRE"})
    with pytest.raises(ConfigError, match="to_datastream"):
        output.to_list()
