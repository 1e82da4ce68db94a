"""``--check`` and the tables of a job: connectors, formats, files, and the types of columns."""

from __future__ import annotations

import datetime as dt
import enum
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flink_skills.agents.rows.column_types import ColumnType, MisfitError, fit
from flink_skills.agents.rows.columns import Filling, OutputShape, TableFill, plan_columns
from flink_skills.agents.rows.table_rows import RecordRows
from tests.job.checks import errors, found
from tests.job.files import PLAIN


@pytest.mark.flink
@pytest.mark.parametrize(
    ("at", "options", "line", "said"),
    [
        ("'datagen', 'number-of-rows' = '1'", "'datgen'", 4, "unknown connector 'datgen': did you mean 'datagen'?"),
        ("'datagen', 'number-of-rows' = '1'", "'kafak'", 4, "unknown connector 'kafak': did you mean 'kafka'?"),
        ("'blackhole'", "'blackhol'", 5, "unknown connector 'blackhol': did you mean 'blackhole'?"),
        (
            "'blackhole'",
            "'filesystem', 'path' = '/x', 'format' = 'jsn'",
            5,
            "unknown format 'jsn': did you mean 'json'",
        ),
    ],
)
def test_a_connector_or_format_that_does_not_exist_is_an_error(
    tmp_path: Path, at: str, options: str, line: int, said: str
) -> None:
    # The agent is wrong too, which says nothing of the tables.
    for agent in ("{model: offline}", "{model: nowhere}"):
        checks = found(tmp_path, PLAIN.replace(at, options, 1), agent=agent)
        ((status, message),) = checks["connectors"]
        assert status == "error"
        assert message.startswith(f"job.yaml:{line}: tables: CREATE TABLE ")
        assert said in message


@pytest.mark.flink
def test_connectors_of_all_tables_are_checked(tmp_path: Path) -> None:
    text = PLAIN.replace("'datagen', 'number-of-rows' = '1'", "'acme'").replace("'blackhole'", "'blackhole', 'x' = 'y'")
    checks = found(tmp_path, text)
    statuses = [(status, message.partition(": ")[0]) for status, message in checks["connectors"]]
    assert statuses == [
        ("unknown", "the connector 'acme' is not here, so what depends on it is not checked"),
        ("error", "job.yaml:5"),
        ("error", "job.yaml:6"),
    ]


@pytest.mark.flink
def test_a_view_of_a_table_whose_connector_is_not_here_is_unknown(tmp_path: Path) -> None:
    text = PLAIN.replace("'datagen', 'number-of-rows' = '1');", "'acme');\n  CREATE VIEW v AS SELECT * FROM events;")
    ((status, message),) = found(tmp_path, text)["tables"]
    assert status == "unknown"
    assert "the connector 'acme' is not here" in message


@pytest.mark.flink
def test_a_view_is_not_an_output(tmp_path: Path) -> None:
    text = PLAIN.replace(
        "  CREATE TABLE failures", "  CREATE VIEW v AS SELECT id FROM events;\n  CREATE TABLE failures"
    )
    ((status, message),) = found(tmp_path, text, output="{table: v, columns: {id: output}}")["connectors"]
    assert (status, message) == (
        "error",
        "job.yaml:9:17: output.table: v is a view, which cannot be written to; name a table",
    )


@pytest.mark.flink
def test_files_of_tables_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    files = "'connector' = 'filesystem', 'format' = 'json', 'path' = '${job:dir}"
    text = PLAIN.replace("'connector' = 'datagen', 'number-of-rows' = '1'", f"{files}/none.json'")
    text = text.replace("'connector' = 'blackhole'", f"{files}/job.yaml'", 1)
    assert [message.partition(": ")[2] for message in errors(found(tmp_path, text))] == [
        "tables: CREATE TABLE events: the path none.json does not exist",
        "tables: CREATE TABLE answers: the path job.yaml is a file, and this table is written to a folder",
    ]
    # A source that looks for new files may have none yet.
    waiting = text.replace("none.json'", "none', 'source.monitor-interval' = '1 s'").replace("/job.yaml'", "/out'")
    assert errors(found(tmp_path, waiting)) == []


@pytest.mark.flink
def test_columns_that_cannot_be_filled(tmp_path: Path) -> None:
    text = PLAIN.replace("answer STRING)", "answer STRING, i MULTISET<STRING>, more STRING)")
    checks = found(tmp_path, text)
    messages = [message for status, message in checks["columns"] if status == "error"]
    assert any("column 'i' of answers is MULTISET<STRING>" in message for message in messages)
    assert any("nothing fills column 'more' of answers" in message for message in messages)


@pytest.mark.flink
def test_connectors_that_are_not_here_leave_the_rest_to_be_checked(tmp_path: Path) -> None:
    kafka = """'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:9092',
    'properties.sasl.jaas.config' = '${env:NOT_SET}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset',
    'properties.ssl.key.password' = 'pl4nted'"""
    text = PLAIN.replace("'connector' = 'datagen', 'number-of-rows' = '1'", kafka)
    checks = found(tmp_path, text)
    assert checks["input"] == [("ok", "2 columns, key job")]
    assert [status for status, _ in checks["columns"]] == ["ok", "ok"]
    (connectors,) = checks["connectors"]
    assert connectors[0] == "unknown"
    assert "the connector 'kafka' is not here" in connectors[1]
    (missing,) = checks["references"]
    assert missing == (
        "error",
        "job.yaml:5: tables: the environment variable 'NOT_SET', which ${env:NOT_SET} asks for, is not set; set it "
        "where the job is submitted",
    )
    plain = [message for _, message in checks["warning"] if "properties.ssl.key.password" in message]
    assert plain
    assert "pl4nted" not in json.dumps(checks)


ANSWERS = Filling(("output",), ("output", "answer"))
FAILURES = Filling(("error",), ("error", "message"))
TEXT = OutputShape(is_text=True)
ANYTHING = OutputShape()
STRING, INT = ColumnType("STRING"), ColumnType("INT")


def plan(
    names: str, declared: dict[str, str | None] | None = None, shape: OutputShape = TEXT, filling: Filling = ANSWERS
) -> tuple[TableFill, dict[str, str], list[str]]:
    columns = [(name, STRING) for name in names.split()]
    fill, problems, uncertain = plan_columns(
        "t", columns, declared=declared or {}, event=["id", "job", "turn"], shape=shape, filling=filling
    )
    return fill, {name: str(error) for name, error in problems}, uncertain


def filled(fill: TableFill) -> dict[str, str]:
    return {column.name: str(column) for column in fill.columns}


@pytest.mark.each_python
@pytest.mark.parametrize(
    ("names", "declared", "shape", "expected"),
    [
        ("id answer", {}, TEXT, {"id": "event.id", "answer": "output"}),
        ("id output usage", {}, TEXT, {"id": "event.id", "output": "output", "usage": "usage"}),
        ("id finding", {}, TEXT, {"id": "event.id", "finding": "output"}),
        # What the event has goes before what the record has.
        ("turn answer", {}, TEXT, {"turn": "event.turn", "answer": "output"}),
        ("a b", {"a": "output", "b": None}, TEXT, {"a": "output", "b": "NULL"}),
        ("a n", {"a": "output", "n": "usage.input_tokens"}, TEXT, {"a": "output", "n": "usage.input_tokens"}),
        ("x y id", {}, OutputShape(("x", "y")), {"x": "output.x", "y": "output.y", "id": "event.id"}),
        ("id text", {}, OutputShape(("id", "text")), {"id": "output.id or event.id", "text": "output.text"}),
        ("x raw", {"raw": "output"}, OutputShape(("x",)), {"x": "output.x", "raw": "output"}),
        ("id x", {}, ANYTHING, {"id": "output.id or event.id", "x": "output.x or output"}),
        ("key", {"key": "key.`0`"}, TEXT, {"key": "key.0"}),
    ],
)
def test_columns_by_the_rule(names: str, declared: Any, shape: OutputShape, expected: dict[str, str]) -> None:
    fill, problems, _ = plan(names, declared, shape)
    assert problems == {}
    assert filled(fill) == expected


@pytest.mark.each_python
def test_columns_of_error_records() -> None:
    fill, problems, _ = plan("id message event", filling=FAILURES)
    assert (filled(fill), problems) == ({"id": "event.id", "message": "error", "event": "event"}, {})
    assert filled(plan("what", filling=FAILURES)[0]) == {"what": "error"}


@pytest.mark.each_python
@pytest.mark.parametrize(
    ("names", "declared", "shape", "column", "said"),
    [
        ("a b", {}, TEXT, "b", "nothing fills column 'b' of t: map it under columns to a path"),
        ("a", {"b": "output"}, TEXT, "b", "unknown column 'b' in table t"),
        ("a", {"a": "event.jib"}, TEXT, "a", "unknown column 'jib' in the input: did you mean 'job'?"),
        ("a", {"a": "outptu"}, TEXT, "a", "unknown field 'outptu' in a record: did you mean 'output'?"),
        ("a", {"a": "id"}, TEXT, "a", "for the column of the input write event.id"),
        ("a", {"a": "output.x"}, TEXT, "a", "answers with a string, which has no fields: declare output_type"),
        ("a", {"a": "output.y"}, OutputShape(("x",)), "a", "unknown field 'y' in the agent's output_type"),
        ("a", {"a": "event..id"}, TEXT, "a", "is not a valid path"),
        ("a", {"a": ".id"}, TEXT, "a", "is not a valid path"),
    ],
)
def test_columns_that_nothing_fills(names: str, declared: Any, shape: OutputShape, column: str, said: str) -> None:
    _, problems, _ = plan(names, declared, shape)
    assert said in problems[column]


@pytest.mark.each_python
def test_a_column_that_may_not_be_null_is_not_left_null() -> None:
    _, problems, _ = plan_columns(
        "t", [("a", ColumnType("INT", nullable=False))], declared={"a": None}, event=[], shape=TEXT, filling=ANSWERS
    )
    assert "NOT NULL" in str(problems[0][1])


@pytest.mark.each_python
def test_columns_that_only_some_outputs_fill_are_told() -> None:
    fill, problems, uncertain = plan("x y answer", shape=ANYTHING)
    assert (problems, uncertain) == ({}, ["x", "y"])
    assert filled(fill) == {"x": "output.x", "y": "output.y", "answer": "output.answer or output"} or filled(fill)
    record = {"output": {"x": 1}, "event": {}}
    assert fill.values(record)[:2] == ("1", None)


RECORD = {
    "key": ("a", 1),
    "output": {"n": "12", "deep": {"list": [{"x": "y"}]}},
    "event": {"id": 5},
    "error": None,
    "usage": {"input_tokens": 3},
}


@pytest.mark.each_python
def test_values_come_from_where_the_paths_lead() -> None:
    fill, problems, _ = plan(
        "a b c d e",
        {"a": "key.1", "b": "output.deep.list.0.x", "c": "output.nothing.more", "d": "usage", "e": "key.7"},
        ANYTHING,
    )
    assert problems == {}
    assert fill.values(RECORD) == ("1", "y", None, '{"input_tokens": 3}', None)


@pytest.mark.each_python
def test_a_misfit_names_the_column_and_error_records_forgive_it() -> None:
    fill = TableFill("t", plan("x", {"x": "output.n"}, ANYTHING)[0].columns)
    narrow = plan_columns(
        "t",
        [("n", INT), ("text", ColumnType("STRING", size=3)), ("e", STRING)],
        declared={"n": "error", "text": "error", "e": "error"},
        event=[],
        shape=TEXT,
        filling=FAILURES,
    )[0]
    with pytest.raises(MisfitError, match=r"column 'n' of t \(INT\): expected a number, got 'it broke'") as caught:
        narrow.values({"error": "it broke"})
    assert caught.value.reason == "column 'n' of t (INT): expected a number"
    assert narrow.forgiving_values({"error": "it broke"}) == (None, "it ", "it broke")
    assert fill.values(RECORD) == ("12",)


class Color(enum.Enum):
    RED = "red"


class Model(BaseModel):
    x: int
    y: list[str] = []


@dataclass
class Data:
    x: int
    y: None = None


UTC = dt.timezone.utc
DAY = 20_487
MOMENT = (1_770_120_000, 500_000_000)
NOON = dt.datetime(2026, 2, 3, 12, 0, 0, 500_000)
ROW = ColumnType("ROW", parts=(("x", INT), ("y", ColumnType("ARRAY", parts=(("element", STRING),)))))


@pytest.mark.each_python
@pytest.mark.parametrize(
    ("value", "of", "expected"),
    [
        ("text", STRING, "text"),
        (True, STRING, "true"),
        (Decimal("1.50"), STRING, "1.50"),
        (NOON, STRING, "2026-02-03T12:00:00.500000"),
        ({"a": [1, None]}, STRING, '{"a": [1, null]}'),
        (Model(x=1), STRING, '{"x": 1, "y": []}'),
        (b"abc", STRING, "abc"),
        ("a\ud800", STRING, "a?"),
        (Color.RED, STRING, "red"),
        ("TRUE", ColumnType("BOOLEAN"), True),
        (False, ColumnType("BOOLEAN"), False),
        ("12", INT, 12),
        (3.0, INT, 3),
        (Decimal("-4"), ColumnType("TINYINT"), -4),
        (2**62, ColumnType("BIGINT"), 2**62),
        ("1e3", ColumnType("DOUBLE"), 1000.0),
        (7, ColumnType("FLOAT"), 7.0),
        ("0.125", ColumnType("DECIMAL", size=4, scale=2), "0.13"),
        (99.99, ColumnType("DECIMAL", size=4, scale=2), "99.99"),
        ("1e-999999999", ColumnType("DECIMAL", size=4, scale=2), "0.00"),
        ("0e999999999", ColumnType("DECIMAL", size=4, scale=2), "0.00"),
        ("2026-02-03", ColumnType("DATE"), DAY),
        (NOON, ColumnType("DATE"), DAY),
        ("2026-02-03T23:00:00Z", ColumnType("DATE"), DAY),
        ("10:20:30.5", ColumnType("TIME"), 37_230_500_000_000),
        ("1969-12-31", ColumnType("DATE"), -1),
        ("2026-02-03 12:00:00.5", ColumnType("TIMESTAMP"), MOMENT),
        ("2026-02-03T13:00:00.500+01:00", ColumnType("TIMESTAMP"), MOMENT),
        (1_770_120_000_500, ColumnType("TIMESTAMP"), MOMENT),
        (NOON.replace(tzinfo=UTC), ColumnType("TIMESTAMP_LTZ"), MOMENT),
        (1_770_120_000_500, ColumnType("TIMESTAMP_LTZ"), MOMENT),
        (-1, ColumnType("TIMESTAMP_LTZ"), (-1, 999_000_000)),
        ("é", ColumnType("BYTES"), "é".encode()),
        (bytearray(b"\xff"), ColumnType("BYTES"), b"\xff"),
        ((1, "2"), ColumnType("ARRAY", parts=(("element", INT),)), [1, 2]),
        ({"a": "1"}, ColumnType("MAP", parts=(("key", STRING), ("value", INT))), [("a", 1)]),
        ({"x": "1", "z": 0}, ROW, (1, None)),
        (Model(x=2, y=["a"]), ROW, (2, ["a"])),
        (Data(3), ROW, (3, None)),
        ([4, None], ROW, (4, None)),
        (None, ROW, None),
    ],
)
def test_values_that_fit(value: Any, of: ColumnType, expected: Any) -> None:
    found = fit(value, of)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.each_python
@pytest.mark.parametrize(
    ("value", "of", "said"),
    [
        (None, ColumnType("INT", nullable=False), "NOT NULL"),
        ("abcd", ColumnType("STRING", size=3), "at most 3 characters"),
        (1, ColumnType("BOOLEAN"), "expected true or false"),
        ("three", INT, "expected a number"),
        (3.5, INT, "expected a whole number"),
        (True, INT, "expected a number"),
        (float("inf"), INT, "expected a whole number"),
        (128, ColumnType("TINYINT"), "in the range of TINYINT"),
        ("1e40", ColumnType("FLOAT"), "in the range of FLOAT"),
        ("NaN", ColumnType("DECIMAL", size=4, scale=2), "DECIMAL"),
        ("100", ColumnType("DECIMAL", size=4, scale=2), "the digits of DECIMAL(4, 2)"),
        ("99.999", ColumnType("DECIMAL", size=4, scale=2), "the digits of DECIMAL(4, 2)"),
        ("1e999999999", ColumnType("DECIMAL", size=38, scale=18), "the digits of DECIMAL(38, 18)"),
        ("-1e40", ColumnType("DECIMAL", size=38, scale=0), "the digits of DECIMAL(38, 0)"),
        ("sNaN", ColumnType("DOUBLE"), "expected a number"),
        ("yesterday", ColumnType("DATE"), "expected a time as"),
        (5, ColumnType("DATE"), "expected a date"),
        ("noon", ColumnType("TIME"), "expected a time of day"),
        (12, ColumnType("TIME"), "expected a time of day"),
        ("soon", ColumnType("TIMESTAMP"), "expected a time as"),
        (10**20, ColumnType("TIMESTAMP"), "expected a time as"),
        (1.5, ColumnType("TIMESTAMP_LTZ"), "expected a time as"),
        (b"abcd", ColumnType("BYTES", size=3), "at most 3 bytes"),
        ("ab", ColumnType("ARRAY", parts=(("element", STRING),)), "expected a list"),
        ([1, "x"], ColumnType("ARRAY", parts=(("element", INT),)), "expected a number"),
        ([], ColumnType("MAP", parts=(("key", STRING), ("value", INT))), "expected a mapping"),
        ("x", ROW, "a row with the fields x, y"),
    ],
)
def test_values_that_do_not_fit_say_why_and_the_reason_has_no_value(value: Any, of: ColumnType, said: str) -> None:
    with pytest.raises(MisfitError) as caught:
        fit(value, of)
    assert said in str(caught.value)
    assert said in caught.value.reason
    assert repr(value) not in caught.value.reason


@pytest.mark.each_python
@pytest.mark.parametrize("of", [INT, STRING, ColumnType("DECIMAL", size=4, scale=2), ColumnType("DATE")], ids=str)
@pytest.mark.parametrize("value", [10**5_000, [10**5_000]], ids=["alone", "in a list"])
def test_an_integer_that_python_does_not_write_out_is_a_misfit(value: Any, of: ColumnType) -> None:
    with pytest.raises(MisfitError, match=r"expected .+, got a value of type (int|list)$"):
        fit(value, of)


@pytest.mark.each_python
def test_how_tables_are_filled_travels_as_plain_data() -> None:
    columns = [("a", ColumnType("DECIMAL", size=4, scale=2)), ("r", ROW), ("n", ColumnType("INT", nullable=False))]
    fill, _, _ = plan_columns(
        "t", columns, declared={"a": "output.x.`y.z`", "n": "turn"}, event=["r"], shape=ANYTHING, filling=ANSWERS
    )
    rows = RecordRows(fill, events=fill)
    assert RecordRows.from_json(json.loads(json.dumps(rows.to_json()))) == rows
    assert fill.columns[0].paths == (("output", "x", "y.z"),)
