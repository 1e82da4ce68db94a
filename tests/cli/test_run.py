"""``flink-skills run``: records, files and exit codes, in this process and in a mini cluster."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.testing import Call, Reply, Rule
from tests.cli.command import ROOT, Command, by_key, run
from tests.cli.conftest import FlinkSkills
from tests.kit.models import ServerFactory, model_servers
from tests.kit.waiting import wait_until

INCIDENTS = ROOT / "examples" / "log_triage" / "incidents.jsonl"
LOCAL_AND_MINICLUSTER = [
    pytest.param(("--local",), id="local"),
    pytest.param((), id="minicluster", marks=pytest.mark.flink),
]
FIELDS = ["agent", "key", "turn", "output", "error", "skills", "tool_calls", "usage"]

CHATTY = """
print("a module that prints when it is imported")

from flink_skills import Agent


class Chatty(Agent):
    async def on_event(self, event, ctx):
        print("an agent that prints", event)
        ctx.emit_to("audit", "not a record of the command line")
        if event["n"] < 0:
            raise ValueError(f"{event['n']} is below zero")
        ctx.emit(event["n"])
        return {"double": 2 * event["n"]}
"""

YAML = """
name: from-yaml
instructions: Triage the incident.
model: offline
skills:
  paths: [SKILLS]
"""


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Two keys, one turn that the agent ``Chatty`` fails."""
    file = tmp_path / "events.jsonl"
    lines = [{"k": "a", "n": 1}, {"k": "b", "n": -2}, {"k": "a", "n": 3}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture
def agent_folder(tmp_path: Path) -> Path:
    (tmp_path / "chatty.py").write_text(CHATTY)
    return tmp_path


@pytest.fixture
def serve() -> Iterator[ServerFactory]:
    with model_servers() as start:
        yield start


@pytest.fixture
def start(run_here: FlinkSkills, tmp_path: Path) -> Callable[..., Any]:
    """Run the command: with ``--local`` in the process of the test, and otherwise in another one."""

    def call(*words: str, **given: str) -> Any:
        return run_here(*words, **given) if "--local" in words else run(*words, cwd=tmp_path, **given)

    return call


@pytest.mark.flink
@pytest.mark.both_versions
def test_real_incidents_give_the_same_records_locally_and_in_a_mini_cluster(tmp_path: Path) -> None:
    lines = INCIDENTS.read_text(encoding="utf-8").splitlines()[:10]
    (tmp_path / "incidents.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("--input", "incidents.jsonl", "--key", "job", "--skills", str(ROOT / "skills"), "--model", "offline")
    local = run(*words, "--local", cwd=tmp_path)
    (tmp_path / "flink").mkdir()
    flinks = ("--parallelism", "2", "--set", f"io.tmp.dirs={tmp_path / 'flink'}")
    cluster = run(*words, *flinks, cwd=tmp_path)
    left = [path.name for path in (tmp_path / "flink").rglob("*") if "flink-skills" in path.name]
    assert [name for name in left if not name.startswith("flink-skills-store")] == []
    assert (local.code, cluster.code) == (0, 0), cluster.stderr
    assert by_key(cluster.records) == by_key(local.records)
    assert len(local.records) == len(lines)
    for record in local.records:
        assert list(record) == [*FIELDS, "finish_reason"]
        assert record["skills"] != []
        assert record["output"] is not None
    # Warnings of packages are for their developers.
    started, summary = (line for line in cluster.stderr.splitlines() if " of 10 turns, " not in line)
    assert started == "10 events; starting a Flink MiniCluster"
    assert summary.startswith("10 events, 10 turns, 10 outputs, 0 errors; the log is /")


@pytest.mark.parametrize("where", LOCAL_AND_MINICLUSTER)
def test_an_agent_that_prints_and_fails_and_lines_that_are_no_events(
    where: tuple[str, ...], agent_folder: Path, events: Path
) -> None:
    good = events.read_text().splitlines()
    text = "\n".join([good[0], "", "{not json", good[1], "[1, 2]", '{"n": 1}', good[2]]) + "\n"
    events.write_text("\ufeff" + text.replace("\n", "\r\n"))
    words = ("chatty:Chatty", "--input", str(events), "--key", "k", *where)
    done = run(*words, cwd=agent_folder)
    assert done.code == 3, done.stderr
    assert "Traceback" not in done.stderr.partition("agent chatty")[0]
    outputs = [record for record in done.records if record["error"] is None]
    assert [(r["key"], r["turn"], r["output"]) for r in outputs] == [
        ("a", 1, 1),
        ("a", 1, {"double": 2}),
        ("a", 2, 3),
        ("a", 2, {"double": 6}),
    ]
    failed = [record for record in done.records if record["error"] is not None]
    assert len(failed) == 4
    (of_turn,) = [record for record in failed if record["turn"] is not None]
    assert (of_turn["key"], of_turn["turn"], of_turn["output"]) == ("b", 1, None)
    assert of_turn["error"] == "ValueError: -2 is below zero"
    of_lines = sorted(record["error"] for record in failed if record["turn"] is None)
    assert [error.partition(":")[0] for error in of_lines] == ["line 3", "line 5", "line 6"]
    assert "not valid JSON" in of_lines[0]
    assert "expected a JSON object, got an array" in of_lines[1]
    assert "no key field 'k'" in of_lines[2]
    for error in of_lines:
        number = error.partition(":")[0]
        assert f"events.jsonl, {number}: " in done.stderr
    assert "3 events, 3 turns, 4 outputs, 4 errors (3 unusable, 1 ValueError)" in done.stderr
    assert "an agent that prints" not in done.stdout


@pytest.mark.flink
def test_on_a_terminal_prints_are_lines_above_the_bar(agent_folder: Path, events: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    words = ("chatty:Chatty", "--input", str(events), "--key", "k", "--set", "skills.worker.processes=1")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "flink_skills.cli", "run", *words],
        cwd=agent_folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while found := os.read(ours, 1 << 16):
            written += found
    os.close(ours)
    assert process.wait(240) == 3
    # Without the sequences that move the cursor and set colors.
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode()))
    printed = [line.strip() for line in lines if "an agent that prints" in line]
    assert len(printed) == 3
    assert all(line.startswith("an agent that prints {") for line in printed), printed
    assert not any("end of prints" in line for line in lines)


@pytest.mark.parametrize("where", LOCAL_AND_MINICLUSTER)
def test_output_and_errors_go_to_files_and_stdout_stays_empty(
    where: tuple[str, ...], agent_folder: Path, events: Path
) -> None:
    output, errors = agent_folder / "out.jsonl", agent_folder / "err.jsonl"
    words = ("chatty:Chatty", "--input", "-", "--key", "k", "--output", str(output), "--errors", str(errors), *where)
    done = run(*words, cwd=agent_folder, stdin=events.read_text())
    assert (done.code, done.stdout) == (3, "")
    assert [json.loads(line)["output"] for line in output.read_text().splitlines()] == [
        1,
        {"double": 2},
        3,
        {"double": 6},
    ]
    assert [json.loads(line)["key"] for line in errors.read_text().splitlines()] == ["b"]


@pytest.mark.parametrize("where", LOCAL_AND_MINICLUSTER)
def test_on_error_fail_is_exit_code_1_and_one_message(
    where: tuple[str, ...], agent_folder: Path, events: Path, start: Callable[..., Any]
) -> None:
    words = ("chatty:Chatty", "--input", str(events), "--key", "k", "--set", "skills.turn.on-error=fail", *where)
    done = start(*words)
    assert done.code == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("flink-skills: ")]
    assert said == [
        'flink-skills: the job failed: agent chatty.Chatty, key "b", turn 1 failed: ValueError: -2 is below zero'
    ]


def test_a_yaml_agent_with_its_own_skills(tmp_path: Path, run_here: FlinkSkills) -> None:
    (tmp_path / "agent.yaml").write_text(YAML.replace("SKILLS", str(ROOT / "skills")))
    event = INCIDENTS.read_text(encoding="utf-8").splitlines()[0]
    done = run_here("agent.yaml", "--input", "-", "--key", "job", "--local", stdin=event)
    assert done.code == 0, done.stderr
    (record,) = done.records
    assert record["key"] == json.loads(event)["job"]
    assert record["skills"]
    assert json.loads(record["output"])["diagnosis"]


@pytest.mark.parametrize("where", LOCAL_AND_MINICLUSTER)
def test_a_provider_at_a_base_url_with_the_usual_key(
    where: tuple[str, ...], start: Callable[..., Any], serve: ServerFactory
) -> None:
    rules = [
        Rule(Reply(tool_calls=(Call("load_skill", {"name": "log-triage"}),)), messages=1),
        Rule(Reply("triaged", input_tokens=7, output_tokens=2), messages=3),
    ]
    server = serve(rules)
    words = ("--instructions", "Be brief.", "--model", "openai:gpt-x", "--base-url", server.url)
    words = (*words, "--skills", str(ROOT / "skills"), "--input", "-", "--key", "k", *where)
    done = start(*words, stdin='{"k": "a"}\n', OPENAI_API_KEY="a-key")
    assert done.code == 0, done.stderr
    assert done.records == [
        {
            "agent": "plain",
            "key": "a",
            "turn": 1,
            "output": "triaged",
            "error": None,
            "skills": ["log-triage"],
            "tool_calls": [{"name": "load_skill", "arguments": {"name": "log-triage"}, "error": False}],
            "usage": {"input_tokens": 17, "output_tokens": 7, "requests": 2},
            "finish_reason": "stop",
        }
    ]
    first = server.requests[0]
    assert first["model"] == "gpt-x"
    assert "Be brief." in str(first["messages"][0])
    assert "a-key" not in done.stderr


def test_set_gives_options_to_the_job(run_here: FlinkSkills, serve: ServerFactory) -> None:
    server = serve(Reply(tool_calls=(Call("load_skill", {"name": "log-triage"}),)))
    words = ("--model", "openai-compatible:x", "--base-url", server.url, "--skills", str(ROOT / "skills"))
    limit = ("--set", "skills.turn.max-steps=4", "--set", "skills.model.strategy=native")
    done = run_here(*words, *limit, "--input", "-", "--key", "k", "--local", stdin='{"k": "a"}')
    assert done.code == 3, done.stderr
    assert "skills.turn.max-steps = 4" in done.records[0]["error"]
    assert len(server.requests) == 2


def test_no_events_are_no_records(run_here: FlinkSkills) -> None:
    done = run_here("--input", "-", "--key", "k", "--local")
    assert (done.code, done.stdout) == (0, "")


BACKGROUND = (signal.SIGINT, signal.SIGQUIT)


@pytest.mark.parametrize(
    ("where", "number", "ignored"),
    [
        *(
            pytest.param(*case.values, signal.SIGINT, (), marks=case.marks, id=case.id)
            for case in LOCAL_AND_MINICLUSTER
        ),
        pytest.param(("--local",), signal.SIGTERM, BACKGROUND, id="background-job"),
    ],
)
def test_a_signal_ends_everything(
    where: tuple[str, ...],
    number: signal.Signals,
    ignored: tuple[signal.Signals, ...],
    tmp_path: Path,
    serve: ServerFactory,
) -> None:
    server = serve(Reply(hang=True))
    words = ("--model", "openai-compatible:x", "--base-url", server.url, "--input", "-", "--key", "k", *where)
    command = Command(words, tmp_path, ignored=ignored)
    assert command.process.stdin is not None
    command.process.stdin.write('{"k": "a"}\n')
    command.process.stdin.close()
    command.process.stdin = None
    wait_until(lambda: server.requests or command.process.poll() is not None, "the turn to begin", within=120)
    assert command.process.poll() is None
    for sent in (*ignored, number):
        command.process.send_signal(sent)
    done = command.finish(timeout=60)
    assert done.code == 128 + number, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


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
