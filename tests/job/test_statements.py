"""The SQL of a job file: where statements begin and end, and which a job may have.

Examines the internals of job.statements on purpose.
"""

from __future__ import annotations

import pytest

from flink_skills.job.statements import Statement, in_literals, refusal, split_statements

TEXT = """\
-- tables; of the shop
CREATE TABLE a (x INT) /* not; the end */ WITH ('path' = 'it''s; fine');

CREATE TEMPORARY VIEW `semi;colon` AS SELECT ';' FROM a;;
USE CATALOG other
"""


def test_statements_end_where_sql_says() -> None:
    first, second, third = split_statements(TEXT)
    assert (first.line, second.line, third.line) == (2, 4, 5)
    assert first.text.endswith("('path' = 'it''s; fine')")
    assert [s.title for s in (first, second, third)] == [
        "CREATE TABLE a",
        "CREATE TEMPORARY VIEW `semi;colon`",
        "USE other",
    ]
    assert split_statements(" -- nothing\n ;; ") == []


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("CREATE TABLE IF NOT EXISTS cat.db.`t 1` (x INT)", "CREATE TABLE cat.db.`t 1`"),
        ("create temporary system function f as 'a.B'", "create temporary system function f"),
        ("CREATE", "CREATE"),
    ],
)
def test_a_statement_is_called_by_its_first_words(text: str, title: str) -> None:
    assert Statement(text, 1).title == title


@pytest.mark.parametrize(
    ("text", "line"), [("CREATE TABLE a\nWITH ('x' = 'y);", 2), ("\n/* open", 2), ("CREATE VIEW `v AS", 1)]
)
def test_what_never_ends_is_said_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ValueError, match="is never closed") as caught:
        split_statements(text)
    assert caught.value.args[1] == line


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE a (x INT, y AS x + 1) WITH ('connector' = 'print')",
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1",
        "CREATE TEMPORARY SYSTEM FUNCTION f AS 'a.b.C' LANGUAGE JAVA",
        "CREATE CATALOG c WITH ('type' = 'generic_in_memory')",
        "CREATE DATABASE d",
        "CREATE MODEL m WITH ('provider' = 'x')",
        "USE d",
        "CREATE TABLE b LIKE a",
    ],
)
def test_ddl_is_allowed(text: str) -> None:
    assert refusal(Statement(text, 1)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SET 'a' = 'b'", "put options of Flink under 'flink'"),
        ("INSERT INTO a SELECT 1", "writes to the tables of 'output'"),
        ("SELECT 1", "write it as 'query' of 'input'"),
        ("ADD JAR '/x.jar'", "put jars under 'jars'"),
        ("CRAETE TABLE a (x INT)", "did you mean CREATE?"),
        ("CREATE TABEL a (x INT)", "did you mean CREATE TABLE?"),
        ("CREATE TABLE a WITH ('x' = 'y') AS SELECT 1", "would run a separate job"),
        ("CREATE OR REPLACE TABLE a AS SELECT (1)", "would run a separate job"),
        ("DROP TABLE a", "not DROP"),
        ("123", "not 123"),
    ],
)
def test_what_would_run_something_is_refused(text: str, said: str) -> None:
    message = refusal(Statement(text, 1))
    assert message is not None
    assert said in message


def test_only_literals_are_replaced_and_stay_literals() -> None:
    outside: list[tuple[str, int]] = []
    text = "CREATE -- 'no'\nTABLE a WITH ('p' = 'x''y', `'q'` = 'z')"
    found = in_literals(text, lambda value, line: f"<{value}'{line}>", lambda line, n: outside.append((line, n)))
    assert found == "CREATE -- 'no'\nTABLE a WITH ('<p''2>' = '<x''y''2>', `'q'` = '<z''2>')"
    assert outside[0][0].strip() == "CREATE"
    assert "`'q'`" in outside[1][0]


@pytest.mark.parametrize("separator", ["\u2028", "\u0085", "\x0c"])
def test_lines_end_at_line_feeds_only(separator: str) -> None:
    outside: list[tuple[str, int]] = []
    in_literals(f"CREATE{separator}TABLE a\n(b INT)", lambda value, _: value, lambda *line: outside.append(line))
    assert outside == [(f"CREATE{separator}TABLE a", 1), ("(b INT)", 2)]
