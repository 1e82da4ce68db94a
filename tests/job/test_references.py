"""References to environment variables and files: what is replaced where, what stays, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.documents import DocumentError
from flink_skills.job import read_job
from tests.job.files import PLAIN, problems_of, read, write_job


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC", "it's; secret")
    monkeypatch.setenv("TURN_TIMEOUT", "3 min")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NOT_SET", raising=False)


def test_any_value_may_be_a_reference(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pl4nted\n")
    job = read(
        tmp_path,
        name="job-${env:NOT_SET:-of ${job:dir}}",
        options="{skills.turn.timeout: '${env:TURN_TIMEOUT}'}",
        flink=f"{{a.b: '${{file:{tmp_path}/password}}', c: '$${{env:TOPIC}}', d: '${{env:EMPTY:-full}}', "
        "e: '${env:TOPIC}'}",
    )
    assert job.job.name == f"job-of {tmp_path}"
    assert job.settings.skills.get("skills.turn.timeout") == 180
    assert job.settings.flink == {"a.b": "pl4nted", "c": "${env:TOPIC}", "d": "full", "e": "it's; secret"}
    assert job.references.hide("the pl4nted one, it%27s%3B%20secret") == (
        f"the ${{file:{tmp_path}/password}} one, ${{env:TOPIC}}"
    )


def test_in_sql_a_value_stays_inside_of_its_quotes(tmp_path: Path) -> None:
    text = PLAIN.replace("'blackhole'", "'${env:TOPIC}'", 1)
    job = read(tmp_path, text)
    assert len(job.statements) == 3
    assert "'connector' = 'it''s; secret'" in job.statements[1].text
    assert job.references.hide(job.statements[1].text) == text.splitlines()[4].strip().rstrip(";").replace("  ", " ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN.replace("id INT, job", "${env:TOPIC} INT, job"), "job.yaml:4: tables: ${env:TOPIC} is outside quotes"),
        (PLAIN.replace("table: events", "query: \"SELECT '${env:TOPIC}'\""), "would be seen in the job's plan"),
        (PLAIN.replace("'blackhole'", "'${env:NOT_SET}'"), "job.yaml:5: tables: the environment variable 'NOT_SET'"),
        (PLAIN.replace("'blackhole'", "'${env:TOPIC'"), "job.yaml:5: tables: ${env:TOPIC is never closed"),
        (PLAIN.replace("name: plain", "name: '${evn:A}'", 1), "unknown kind of reference 'evn'"),
        (PLAIN.replace("name: plain", "name: '${job:name}'", 1), "write ${job:dir}, the folder of the job file"),
        (PLAIN.replace("name: plain", "name: '${file:rel}'", 1), "has no absolute path"),
        (PLAIN.replace("name: plain", "name: '${file:/none/there}'", 1), "does not exist"),
    ],
)
def test_what_cannot_be_replaced_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    found = problems_of(tmp_path, text)
    assert any(said in problem for problem in found), found


def test_all_that_is_missing_is_named_at_once_and_a_check_elsewhere_goes_on(tmp_path: Path) -> None:
    replaced = {"options": "{skills.lock: '${env:NOT_SET}'}", "name": "'${env:NOT_SET_EITHER}'"}
    found = problems_of(tmp_path, **replaced)
    assert [problem.partition("'")[2].partition("'")[0] for problem in found] == ["NOT_SET_EITHER", "NOT_SET"]
    job = read_job(write_job(tmp_path, **replaced), lenient=True)
    assert job.job.name == "${env:NOT_SET_EITHER}"
    assert len(job.missing) == 2


def test_what_workers_read_themselves_stays_a_reference(tmp_path: Path) -> None:
    job = read(
        tmp_path,
        skills="{paths: ['${env:EMPTY:-/opt}/skills'], urls: ['https://u:${env:TOPIC}@h/${env:NOT_SET:-a}.zip']}",
        options="{skills.env.report.TOKEN: '${env:NOT_SET}', skills.source.options: {s3: {secret: '${env:TOPIC}'}}, "
        "skills.shell.remote.token: '${env:TOPIC:-${env:NOT_SET}}', skills.user.key: '${env:TOPIC}-$${x}', "
        "skills.user.hosts: ['${env:TOPIC}', b, 1]}",
    )
    assert job.job.skills is not None
    assert job.job.skills.paths == ["/opt/skills"]
    assert job.job.skills.urls == ["https://u:${env:TOPIC}@h/a.zip"]
    assert job.settings.skills.to_json() == {
        "skills.env.report.TOKEN": "${env:NOT_SET}",
        "skills.shell.remote.token": "${env:TOPIC}",
        "skills.source.options": '{"s3": {"secret": "${env:TOPIC}"}}',
        "skills.user.hosts": '["${env:TOPIC}", "b", 1]',
        "skills.user.key": "${env:TOPIC}-$${x}",
    }


def test_no_message_shows_what_a_reference_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "pl4nted")
    monkeypatch.setenv("SHORT", "xyz")
    replaced = {
        "options": "{skills.turn.timeout: '${env:PLANTED}', skills.strict: '${env:SHORT}'}",
        "agent": "{model: offline, output_type: {a: '${env:PLANTED}'}}",
    }
    with pytest.raises(DocumentError) as caught:
        read(tmp_path, **replaced)
    assert "pl4nted" not in str(caught.value)
    assert "xyz" not in str(caught.value)
    assert "what ${env:SHORT} stands for cannot be used: write 'true' or 'false'" in str(caught.value)
