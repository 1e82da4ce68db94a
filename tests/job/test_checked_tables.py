"""``--check`` and the tables of a job: connectors, formats, files, and the types of columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.job.checks import errors, found
from tests.job.files import PLAIN

pytestmark = pytest.mark.flink


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


def test_connectors_of_all_tables_are_checked(tmp_path: Path) -> None:
    text = PLAIN.replace("'datagen', 'number-of-rows' = '1'", "'acme'").replace("'blackhole'", "'blackhole', 'x' = 'y'")
    checks = found(tmp_path, text)
    statuses = [(status, message.partition(": ")[0]) for status, message in checks["connectors"]]
    assert statuses == [
        ("unknown", "the connector 'acme' is not here, so what depends on it is not checked"),
        ("error", "job.yaml:5"),
        ("error", "job.yaml:6"),
    ]


def test_a_view_of_a_table_whose_connector_is_not_here_is_unknown(tmp_path: Path) -> None:
    text = PLAIN.replace("'datagen', 'number-of-rows' = '1');", "'acme');\n  CREATE VIEW v AS SELECT * FROM events;")
    ((status, message),) = found(tmp_path, text)["tables"]
    assert status == "unknown"
    assert "the connector 'acme' is not here" in message


def test_a_view_is_not_an_output(tmp_path: Path) -> None:
    text = PLAIN.replace(
        "  CREATE TABLE failures", "  CREATE VIEW v AS SELECT id FROM events;\n  CREATE TABLE failures"
    )
    ((status, message),) = found(tmp_path, text, output="{table: v, columns: {id: output}}")["connectors"]
    assert (status, message) == (
        "error",
        "job.yaml:9:17: output.table: v is a view, which cannot be written to; name a table",
    )


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


def test_columns_that_cannot_be_filled(tmp_path: Path) -> None:
    text = PLAIN.replace("answer STRING)", "answer STRING, i MULTISET<STRING>, more STRING)")
    checks = found(tmp_path, text)
    messages = [message for status, message in checks["columns"] if status == "error"]
    assert any("column 'i' of answers is MULTISET<STRING>" in message for message in messages)
    assert any("nothing fills column 'more' of answers" in message for message in messages)


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
