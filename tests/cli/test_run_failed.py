"""``flink-skills run --input errors.jsonl``: what has failed is run again, for agents and for job files."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import run
from tests.cli.conftest import FlinkSkills

AGENT = """
import os
from pathlib import Path

from flink_skills import Agent


class Moody(Agent):
    async def on_event(self, event, ctx):
        if not Path("fixed").exists() and event != "fine":
            raise ValueError("the machine behind it is down")
        return [ctx.key, type(event).__name__, event]


class Clerk(Agent):
    async def on_event(self, event, ctx):
        if not Path(event["flag"]).exists() and event["id"] != 1:
            raise ValueError("the machine behind it is down")
        return {"what": f"{event['price'] + 1} {event['ts']} {event['day']} {event['labels']} {event['note']}"}
"""

JOB = """\
name: orders
flink: {parallelism.default: 1}
options: {skills.worker.processes: 1}
agent: moody:Clerk
tables: |
  CREATE TABLE orders (
    id INT, customer STRING, `day` DATE, price DECIMAL(10, 2), ts TIMESTAMP(3), labels ARRAY<STRING>, flag STRING,
    note ROW<made TIMESTAMP_LTZ(3), who STRING>, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
  ) WITH ('connector' = 'filesystem', 'path' = '${job:dir}/orders.json', 'format' = 'json');
  CREATE TABLE answers (id INT, seen TIMESTAMP_LTZ(3), what STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/answers', 'format' = 'json');
  CREATE TABLE failures (id INT, error STRING, failed STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/failures', 'format' = 'json');
input: {table: orders, key: customer}
output: {table: answers, columns: {seen: timestamp}}
errors: {table: failures, columns: {failed: event}}
"""


def record(key: Any, event: Any, *, error: str | None = "ValueError: down", turn: int | None = 3) -> dict[str, Any]:
    return {"key": key, "turn": turn, "output": None, "error": error, "event": event}


def write(path: Path, records: list[Any]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in records))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "moody.py").write_text(AGENT)
    return tmp_path


@pytest.mark.parametrize("where", [("--local",), pytest.param((), marks=pytest.mark.flink, id="minicluster")])
def test_failed_events_of_all_kinds_run_again_with_their_keys(
    folder: Path, where: tuple[str, ...], run_here: FlinkSkills
) -> None:
    start = run_here if where else functools.partial(run, cwd=folder)
    failed = [("a", {"n": 1}), (None, "text"), (7, [1, "x"]), (["a", 1], 2.5), (True, None)]
    write(folder / "errors.jsonl", [*(record(key, event) for key, event in failed), record("a", "fine", error=None)])
    words = ("moody:Moody", "--input", "errors.jsonl", *where)
    again = start(*words, "--errors", "still.jsonl")
    assert (again.code, again.records) == (3, []), again.stderr
    # What fails again is as good for the next time.
    (folder / "fixed").touch()
    done = start("moody:Moody", "--input", "still.jsonl", *where)
    assert done.code == 0, done.stderr
    assert "5 events, 5 turns, 5 outputs, 0 errors" in done.stderr
    found = sorted(json.dumps(r["output"]) for r in done.records)
    kinds = ["Record", "str", "list", "float", "NoneType"]
    wanted = [[key, kind, event] for (key, event), kind in zip(failed, kinds, strict=True)]
    assert found == sorted(json.dumps(each) for each in wanted)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"k": 1}\n', "line 1: the line is not an error record: field 'key' is missing. Pass --key FIELD if"),
        ("[1]\n", "line 1: the line is not an error record: field 'key' is missing"),
        ("{\n", "line 1: the line is not valid JSON ("),
        ("\n", "the file has no error records to rerun"),
        (json.dumps(record("a", 1, error=None)), "the file has no error records"),
        (
            '\n{"key": 1, "turn": 1, "error": "x"}\n',
            "line 2: the line is not an error record: field 'event' is missing",
        ),
        (None, "No such file or directory"),
    ],
)
def test_what_are_no_error_records_is_said_in_one_line(
    folder: Path, content: str | None, said: str, run_here: FlinkSkills
) -> None:
    if content is not None:
        (folder / "errors.jsonl").write_text(content)
    done = run_here("moody:Moody", "--input", "errors.jsonl", "--local")
    assert (done.code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


@pytest.mark.flink
def test_a_job_file_runs_the_rows_of_its_error_table_again(folder: Path) -> None:
    orders = [
        {
            "id": number,
            "customer": "ann",
            "day": "2026-02-03",
            "price": 1.25,
            "ts": f"2026-02-03 10:00:0{number}.5",
            "labels": ["é", "'"],
            "flag": str(folder / "fixed"),
            "note": {"made": "2026-02-03 11:00:00Z", "who": "bob"},
        }
        for number in (1, 2, 3)
    ]
    write(folder / "orders.json", orders)
    (folder / "job.yaml").write_text(JOB)
    first = run("job.yaml", cwd=folder)
    assert first.code == 3, first.stderr
    whole = rows(folder / "answers")
    assert [row["id"] for row in whole] == [1]
    assert [row["id"] for row in rows(folder / "failures")] == [2, 3]

    (folder / "fixed").touch()
    again = run("job.yaml", "--input", "failures", cwd=folder)
    assert again.code == 0, again.stderr
    assert len(rows(folder / "failures")) == 2
    _, second, third = rows(folder / "answers")
    # The same values of the same types as those that came from the source.
    assert (second["id"], second["seen"]) == (2, "2026-02-03 10:00:02.5Z")
    assert second["what"] == whole[0]["what"].replace("10:00:01", "10:00:02")
    assert third["id"] == 3


@pytest.mark.flink
def test_error_records_of_another_job_are_refused_with_their_line(
    folder: Path, flink_skills: FlinkSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "job.yaml").write_text(JOB)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for content, said in {
        '{"id": 1, "error": "x"}': "line 1: no error record of this job: it has no 'failed', where the event would be",
        '{"failed": "{\\"custom"}': "line 1: the event in 'failed' is not JSON",
        '{"failed": "{\\"id\\": 1}"}': "line 1: the event has no key column 'customer', it has: id",
        "": "the file has no error records",
    }.items():
        (folder / "errors.jsonl").write_text(content + "\n")
        # In this process, whose JVM serves all of them.
        done = flink_skills("run", "job.yaml", "--input", "errors.jsonl")
        assert done.code == 2, done.stderr
        assert said in done.stderr.splitlines()[-1]


def rows(folder: Path) -> list[dict[str, Any]]:
    files = [file for file in folder.iterdir() if not file.name.startswith(".")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda row: row["id"])
