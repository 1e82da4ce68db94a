"""Values that references stand for are in no message, however it writes them.

Examines the internals of job.job_references on purpose.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flink_skills.errors import SkillsError
from flink_skills.job import check_job
from flink_skills.job.job_references import InsertedValues
from flink_skills.texts import visible
from tests.job.files import PLAIN, read, write_job

LINES = 'org.apache.kafka.Login required\n  username="u"\n  password="pl4nted-in-lines";'
QUOTED = 'it\'s "pl4nted" \x1b[31m'


@pytest.mark.parametrize("value", [LINES, "pl4nted  with   blanks", QUOTED, "pl4nted\\with\tall 'of' \"it\"\r\n\u202e"])
@pytest.mark.parametrize(
    "write",
    [
        str,
        lambda value: " ".join(value.split()),
        lambda value: value.replace("\n", "\r\n"),
        repr,
        lambda value: repr(f'a "text" that\'s around {value}'),
        lambda value: repr(json.dumps(value)),
        json.dumps,
        visible,
        lambda value: f"""Encountered "{json.dumps(value.replace("'", "''"))[1:-1].replace("'", chr(92) + "'")}" at""",
    ],
)
def test_hides_every_way_in_which_messages_write_a_value(value: str, write: object) -> None:
    assert callable(write)
    inserted = InsertedValues()
    inserted.add(value, "${env:A}")
    hidden = inserted.hide(f"Could not parse {write(value)} there")
    assert "pl4nted" not in hidden
    assert "${env:A}" in hidden


def test_hides_long_lines_alone_and_nothing_twice() -> None:
    inserted = InsertedValues()
    inserted.add(LINES, "${file:/jaas}")
    inserted.add("file:/jaas", "${env:WHERE}")
    once = inserted.hide("line 3 is 'password=\"pl4nted-in-lines\";'")
    assert once == "line 3 is '${file:/jaas}'"
    assert inserted.hide(once) == once
    assert inserted.hide('username="u"') == 'username="u"', "a short line is found in other texts as well"


def test_a_value_that_begins_a_longer_one_leaves_nothing_of_it() -> None:
    inserted = InsertedValues()
    inserted.add("pl4nted", "${env:SHORT}")
    inserted.add("pl4nted-and-more", "${env:LONG}")
    assert inserted.hide("pl4nted-and-more pl4nted") == "${env:LONG} ${env:SHORT}"


def test_errors_of_a_read_job_hide_what_was_inserted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", LINES)
    job = read(tmp_path, flink="{a.b: '${env:PASSWORD}'}")
    with pytest.raises(SkillsError) as raised, job.hiding():
        raise SkillsError(f"cannot use {' '.join(LINES.split())}")
    assert str(raised.value) == "cannot use ${env:PASSWORD}"


@pytest.mark.flink
def test_a_check_hides_values_in_what_is_sound_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT", "pl4nted-agent")
    file = write_job(tmp_path, agent="{name: '${env:AGENT}', model: offline}")
    said = []
    report = check_job(file, note=lambda check: said.append(check.message))
    assert any("${env:AGENT}" in message for message in said)
    assert "pl4nted" not in "\n".join(said) + json.dumps(report.to_json())


@pytest.mark.flink
@pytest.mark.parametrize(
    "option",
    ["'number-of-rows' = '${env:PASSWORD}'", "'rows-per-second' = '${env:PASSWORD}'", "'${env:PASSWORD}' = '1'"],
)
def test_a_check_hides_values_in_errors_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setenv("PASSWORD", LINES)
    report = check_job(write_job(tmp_path, PLAIN.replace("'number-of-rows' = '1'", option)))
    wrong = [check.message for check in report.checks if check.status == "error"]
    assert any("${env:PASSWORD}" in message for message in wrong), wrong
    assert "pl4nted" not in json.dumps(report.to_json())
