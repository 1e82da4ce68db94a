"""Pages of the event stream: tables, details and examples agree with the code."""

from __future__ import annotations

import re

import pytest

from flink_skills.telemetry import EVENT_COLUMNS, EVENT_KINDS, MAX_TEXT_LENGTH
from tests.docs.pages import ROOT
from tests.docs.test_docs import generator

PAGE = ROOT / "docs" / "events.md"
REFERENCE = ROOT / "docs" / "reference" / "events.md"


def test_the_tables_are_current() -> None:
    assert generator("gen_events").main(["--check"]) == 0, "run: python -m docs.gen_events"


def test_a_table_that_is_not_current_is_found() -> None:
    module = generator("gen_events")
    text = REFERENCE.read_text(encoding="utf-8")
    assert module.render(text.replace("| `turn_id` |", "| `turn_number` |")) == text
    with pytest.raises(ValueError, match="there is no place for columns"):
        module.render(text.replace("<!-- generated: columns -->", ""))


def test_every_kind_has_its_detail() -> None:
    section = REFERENCE.read_text(encoding="utf-8").partition("## Detail")[2]
    described = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert {*described, "step"} == set(EVENT_KINDS), "a step has no detail"


def test_the_maximum_length_of_a_string_is_the_limit() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Choose the content")[2].partition("\n## ")[0]
    assert f"{MAX_TEXT_LENGTH:,}" in section


def test_columns_in_sql_exist() -> None:
    names = {column.name for column in EVENT_COLUMNS}
    (select,) = re.findall(r"SELECT (.*?) FROM events", PAGE.read_text(encoding="utf-8"))
    assert {name.strip(" `") for name in select.split(",")} <= names
