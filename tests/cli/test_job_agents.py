"""Agents of a job file without Flink: ``flink-skills run JOB --local``, ``flink-skills chat JOB``."""

from __future__ import annotations

import io
import json
import sys
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill

pytestmark = pytest.mark.row("K7")

JOB = """\
name: support
skills: {paths: [skills]}
models: {main: {clazz: offline.setup}}
tables: |
  CREATE TABLE tickets (id INT, customer STRING) WITH ('connector' = 'kafka', 'topic' = 'tickets');
  CREATE TABLE answers (id INT, answer STRING) WITH ('connector' = 'kafka', 'topic' = 'answers');
agents:
  router:
    skill_names: []
    input: {table: tickets, key: [customer, team]}
    output: {agent: reviewer, columns: {id: event.id, said: output, customer: event.customer}}
    agent_tools: {ask: {agent: specialist, description: Ask about tickets and their text.}}
  specialist: {skill_names: [shout]}
  reviewer:
    skill_names: []
    input: {agent: router, key: id}
    output: {table: answers}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_skill(
        tmp_path / "skills" / "shout",
        description="Shouts the text of tickets.",
        body="Run:\n\n```bash\ntr a-z A-Z\n```",
    )
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "job.yaml"


def events(folder: Path, *lines: object) -> None:
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_events_pass_all_agents_and_records_name_theirs(job: Path, flink_skills: FlinkSkills) -> None:
    ticket = {"id": 7, "customer": "ann", "team": "x", "text": "tickets"}
    events(job.parent, ticket, {"id": 8, "customer": "bob"}, ["no", "event"])
    done = flink_skills("run", "job.yaml", "--local", "--input", "events.jsonl", "--output", "out.jsonl")
    assert done.code == 3
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    good, *bad = sorted(records, key=lambda record: record["error"] is not None)
    assert (good["agent"], good["key"], good["turn"], good["error"]) == ("reviewer", 7, 1, None)
    assert [record["agent"] for record in bad] == ["router", "router"]
    assert "the event has no key field 'team'" in bad[0]["error"]
    assert "expected a JSON object, got an array" in bad[1]["error"]
    assert "1 event, 2 turns, 1 output, 2 errors (2 unusable)" in done.stderr


def test_one_agent_of_the_job_gets_the_events(job: Path, flink_skills: FlinkSkills) -> None:
    events(job.parent, {"id": 7, "said": "x"})
    done = flink_skills(
        "run", "job.yaml", "--local", "--input", "events.jsonl", "--agent", "reviewer", "--output", "out.jsonl"
    )
    assert done.code == 0
    (record,) = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert (record["agent"], record["key"], record["output"]) == ("reviewer", 7, "No skill fits this event.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("run", "job.yaml", "--local"),
            "--input is missing. Pass --input FILE with the events for the agents of job.yaml.",
        ),
        (("run", "job.yaml", "--local", "--input", "e", "--agent", "reviewr"), "did you mean 'reviewer'?"),
        (("run", "job.yaml", "--local", "--input", "e", "--key", "id"), "--key cannot be combined with the job file"),
        (("run", "job.yaml", "--agent", "router"), "Set the values in the file, or add --local"),
        (("run", "--input", "e", "--key", "id", "--agent", "x"), "--agent requires a job file"),
        (("run", "job.yaml", "--local", "--input", "e", "--check"), "--local cannot be combined with --check"),
        (("chat", "job.yaml"), "several agents. Select one with --agent router | specialist | reviewer"),
        (("chat", "job.yaml", "--agent", "rooter"), "did you mean 'router'?"),
        (("chat", "job.yaml", "--agent", "router", "--skills", "x"), "--skills cannot be combined with the job file"),
    ],
)
def test_bad_usage_is_explained(job: Path, flink_skills: FlinkSkills, words: tuple[str, ...], said: str) -> None:
    done = flink_skills(*words)
    assert done.code == 2
    assert said in done.stderr


def test_chat_talks_to_an_agent_that_is_a_tool(
    job: Path, flink_skills: FlinkSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two tickets\n"))
    done = flink_skills("chat", "job.yaml", "--agent", "specialist")
    assert (done.code, done.stdout.strip()) == (0, "TWO TICKETS")
    assert "agent specialist, model offline, 1 skill" in done.stderr


PRICES = """
def price(item: str) -> str:
    '''Return the price of an item.'''
    return f"{item} costs 7"
"""
SHOP = """\
name: shop
agent: {name: clerk, model: offline, tools: ['MODULE:price']}
tables: |
  CREATE TABLE orders (id INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
  CREATE TABLE answers (id INT, answer STRING) WITH ('connector' = 'blackhole');
input: {table: orders, key: id}
output: {table: answers}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job file with a module of tools next to it, in another folder than the current one."""
    module = f"prices_{uuid.uuid4().hex}"  # modules of other tests stay imported
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / f"{module}.py").write_text(PRICES)
    (folder / "job.yaml").write_text(SHOP.replace("MODULE", module))
    (folder / "agent.yaml").write_text(f"model: offline\ntools: ['{module}:price']\n")
    events(tmp_path, {"id": 1})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    return folder / "job.yaml"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "shop/job.yaml", "--local", "--input", "events.jsonl"),
        ("run", "shop/agent.yaml", "--local", "--input", "events.jsonl", "--key", "id"),
        ("prompt", "--agent", "shop/agent.yaml"),
    ],
)
def test_tools_in_a_module_beside_the_file_are_found(shop: Path, flink_skills: FlinkSkills, words: list[str]) -> None:
    done = flink_skills(*words)
    assert done.code == 0, done.stderr


def test_chat_finds_tools_beside_the_file(
    shop: Path, flink_skills: FlinkSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    done = flink_skills("chat", "shop/job.yaml")
    assert done.code == 0, done.stderr


@pytest.mark.flink
@pytest.mark.parametrize("words", [("--check",), ("--explain",), ()])
def test_jobs_find_tools_beside_the_file(shop: Path, flink_skills: FlinkSkills, words: list[str]) -> None:
    done = flink_skills("run", "shop/job.yaml", *words)
    assert done.code == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nothing_like_this", "cannot import 'MODULE:price' (No module named 'nothing_like_this')"),
        ("def price(", "importing 'MODULE:price' failed: SyntaxError"),
        ("raise SystemExit(3)", "importing 'MODULE:price' failed: SystemExit: 3"),
    ],
)
def test_a_module_of_tools_that_cannot_be_imported(shop: Path, flink_skills: FlinkSkills, code: str, said: str) -> None:
    module = next(shop.parent.glob("*.py"))
    module.write_text(code)
    done = flink_skills("run", "shop/job.yaml", "--local", "--input", "events.jsonl")
    assert done.code == 2
    assert f"job.yaml:2:45: agent.tools: {said.replace('MODULE', module.stem)}" in done.stderr
