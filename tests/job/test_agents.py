"""Jobs with several agents: who feeds whom, what is wrong with it, and whole jobs in a mini cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flink_skills.agents import AgentSpec
from flink_skills.job import check_job, explain_job, run_job_file
from tests.job.files import problems_of, read, rows
from tests.kit.cases import read_rows

DESK = Path(__file__).parents[2] / "examples" / "incident_desk"

AGENTS = """
from flink_skills import Agent


class Router(Agent):
    async def on_event(self, event, ctx):
        if event["text"] == "fail":
            raise ValueError("cannot route")
        if event["text"] == "misfit":
            return {"team": "desk", "turn": "many"}
        return {"team": "billing" if "bill" in event["text"] else "desk", "turn": ctx.turn}


class Reviewer(Agent):
    session = "key"

    async def on_event(self, event, ctx):
        seen = ctx.state.setdefault("seen", [])
        seen.append(event.id)
        return {"review": f"{event['team']} {event['text']}", "seen": list(seen)}
"""

JOB = """\
name: support
flink: {parallelism.default: 2}
options: {skills.worker.processes: 1}
tables: |
  CREATE TABLE tickets (
    id INT, customer STRING, text STRING, price DECIMAL(10, 2), ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
  ) WITH ('connector' = 'filesystem', 'path' = '${job:dir}/tickets.json', 'format' = 'json');
  CREATE TABLE reviews (id INT, team STRING, review STRING, seen ARRAY<INT>, price DECIMAL(10, 2), ts TIMESTAMP(3))
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/reviews', 'format' = 'json');
  CREATE TABLE routed (id INT, team STRING, turn INT)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/routed', 'format' = 'json');
  CREATE TABLE failures (agent STRING, id INT, error STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/failures', 'format' = 'json');
agents:
  router:
    agent: agents_of_a_job:Router
    input: {table: tickets, key: customer}
    output: {table: routed, agent: reviewer}
  reviewer:
    agent: agents_of_a_job:Reviewer
    input: {agent: router, key: team}
    output: {table: reviews}
errors: {table: failures}
"""


def ticket(number: int, customer: str, text: str) -> dict[str, Any]:
    return {"id": number, "customer": customer, "text": text, "price": 1.25, "ts": f"2026-02-03 10:00:0{number}"}


@pytest.mark.row("K7")
@pytest.mark.flink
@pytest.mark.both_versions
def test_outputs_of_an_agent_are_the_events_of_another_one(tmp_path: Path) -> None:
    (tmp_path / "agents_of_a_job.py").write_text(AGENTS)
    tickets = [
        ticket(1, "ann", "the bill"),
        ticket(2, "ann", "fail"),
        ticket(3, "bob", "a bill"),
        ticket(4, "bob", "x"),
        ticket(5, "bob", "misfit"),
    ]
    (tmp_path / "tickets.json").write_text("".join(json.dumps(of) + "\n" for of in tickets))
    (tmp_path / "job.yaml").write_text(JOB)
    summary: list[str] = []
    failed = run_job_file(tmp_path / "job.yaml", local=True, warn=lambda warning: None, summarize=summary.append)
    assert failed == len(rows(tmp_path / "failures"))
    (line,) = summary
    assert "router: " in line

    assert sorted((row["id"], row["team"], row["turn"]) for row in rows(tmp_path / "routed")) == [
        (1, "billing", 1),
        (3, "billing", 1),
        (4, "desk", 2),
    ]
    reviews = {row["id"]: row for row in rows(tmp_path / "reviews")}
    assert sorted(reviews) == [1, 3, 4]
    # Columns of the table reach the agent behind with their types.
    assert reviews[1]["price"] == 1.25
    assert reviews[1]["ts"] == "2026-02-03 10:00:01"
    assert reviews[3]["review"] == "billing a bill"
    # The key of the reviewer is a field of the router's output: both bills are of one key.
    assert max((reviews[1]["seen"], reviews[3]["seen"]), key=len) in ([1, 3], [3, 1])
    assert reviews[4]["seen"] == [4]
    failed = {row["id"]: (row["agent"], row["error"]) for row in rows(tmp_path / "failures")}
    assert sorted(failed) == [2, 5]
    assert failed[2] == ("router", "ValueError: cannot route")
    # It is in no table, and the reviewer has no event for it.
    assert failed[5][0] == "router"
    assert "expected a number, got 'many'" in failed[5][1]


PLAIN = """\
name: support
tables: |
  CREATE TABLE tickets (id INT, customer STRING, text STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
  CREATE TABLE answers (id INT, customer STRING, answer STRING) WITH ('connector' = 'blackhole');
agents:
  router:
    model: offline
    input: {table: tickets, key: customer}
    output: {agent: reviewer}
    agent_tools: {ask: specialist}
  specialist: {model: offline}
  reviewer:
    model: offline
    output: {table: answers}
"""


def agents(**replaced: str) -> str:
    """The plain job with other agents; each of ``replaced`` is an agent in flow form, "" for none."""
    head, _, rest = PLAIN.partition("agents:\n")
    written: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if line.startswith("    "):
            written[name] += line + "\n"
        else:
            name = line.strip().partition(":")[0]
            written[name] = line + "\n"
    for name, text in replaced.items():
        written[name] = f"  {name}: {text}\n" if text else ""
    return head + "agents:\n" + "".join(written.values())


@pytest.mark.row("K7")
def test_sources_come_before_targets_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    job = read(
        tmp_path,
        agents(
            router="",
            specialist="",
            last="{model: offline, input: {agent: reviewer}, output: {table: answers}}",
            first="{model: offline, input: {table: tickets, key: id}, output: {agent: reviewer}}",
            reviewer="{model: offline, output: {agent: last}}",
        ),
    )
    assert [(stage.name, stage.sources, stage.targets) for stage in job.stages] == [
        ("first", (), ("reviewer",)),
        ("reviewer", ("first",), ("last",)),
        ("last", ("reviewer",), ()),
    ]


@pytest.mark.row("K7")
@pytest.mark.parametrize(
    ("replaced", "said"),
    read_rows(__file__, "connections.yaml"),
)
def test_what_is_wrong_with_how_agents_are_connected(tmp_path: Path, replaced: dict[str, str], said: str) -> None:
    problems = problems_of(tmp_path, agents(**replaced))
    assert any(said in problem for problem in problems), problems
    assert all(problem.startswith("job.yaml:") for problem in problems)


@pytest.mark.row("K7")
def test_one_agent_or_several(tmp_path: Path) -> None:
    both = problems_of(tmp_path, PLAIN + "agent: x.yaml\ninput: {table: tickets, key: id}\n")
    assert [problem.partition(": ")[2] for problem in both] == [
        "agent: the section cannot be combined with 'agents'; move it into the agent that it belongs to",
        "input: the section cannot be combined with 'agents'; move it into the agent that it belongs to",
    ]
    assert any(
        "agents: the list is empty" in problem
        for problem in problems_of(tmp_path, PLAIN.partition("agents:")[0] + "agents:\n")
    )


def checked(folder: Path, text: str) -> list[str]:
    (folder / "job.yaml").write_text(text)
    return [
        f"{check.name}: {check.message}" for check in check_job(folder / "job.yaml").checks if check.status == "error"
    ]


@pytest.mark.row("K7")
@pytest.mark.flink
@pytest.mark.parametrize(
    ("replaced", "said"),
    read_rows(__file__, "checked_agents.yaml"),
)
def test_check_names_the_agent_and_the_place(tmp_path: Path, replaced: dict[str, str], said: str) -> None:
    problems = checked(tmp_path, agents(**replaced))
    assert (problems == []) if not said else any(said in problem for problem in problems), problems


@pytest.mark.row("K7")
@pytest.mark.flink
def test_shared_models_connections_and_prompts_are_checked_at_their_places(tmp_path: Path) -> None:
    text = PLAIN.replace("model: offline", "session: event") + (
        "connections: {gw: {clazz: openai-compatible.connection, base_url: 'http://h/v1'}}\n"
        "models: {main: {clazz: openai-compatible.setup, connection: gww, model: m, prompt: tone, temprature: 1}}\n"
        "prompts: {tone: Be brief.}\n"
    )
    problems = checked(tmp_path, text)
    assert any("models.main.connection: unknown connection 'gww'" in problem for problem in problems), problems
    assert any("models.main.temprature: unknown key 'temprature'" in problem for problem in problems), problems
    assert checked(tmp_path, text.replace("gww", "gw").replace(", temprature: 1", "")) == []


@pytest.mark.row("K7")
@pytest.mark.flink
def test_explain_shows_each_agent_with_its_uid_input_and_output(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(PLAIN)
    found = explain_job(tmp_path / "job.yaml", flink_plan=True)
    router, reviewer = found["agents"]["router"], found["agents"]["reviewer"]
    assert list(found["agents"]) == ["router", "reviewer"]
    assert (router["agent"]["uid"], router["input"]["from"], router["next"]) == (
        "agent-router",
        "tickets",
        ["reviewer"],
    )
    assert list(router["agent"]["agents"]) == ["ask"]
    assert (reviewer["agent"]["uid"], reviewer["input"]["from"]) == ("agent-reviewer", "agent router")
    assert reviewer["input"]["key"] == ["customer"]
    assert reviewer["input"]["columns"] == {
        "id": "INT",
        "customer": "STRING",
        "text": "STRING",
        "output": "output of router",
    }
    assert reviewer["output"]["columns"]["answer"]["from"] == "output"
    names = [node["type"] for node in found["flink"]["nodes"]]
    assert any("agent router" in name for name in names)


FAN = """\
name: fan
flink: {parallelism.default: 1}
options: {skills.worker.processes: 1}
models: {main: {clazz: offline.setup}}
tables: |
  CREATE TABLE few (id INT, who STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/few', 'format' = 'json');
  CREATE TABLE more (id INT, who STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/more', 'format' = 'json');
  CREATE TABLE found (id INT, team STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/out', 'format' = 'json');
agents:
  first: {input: {table: few, key: id}, output: {agent: [both, other], columns: {id: event.id, who: event.who}}}
  second: {input: {table: more, key: id}, output: {agent: both}}
  both: {input: {agent: [first, second]}, output: {table: found, columns: {team: agent}}}
  other: {input: {agent: first, key: who}, output: {table: found, columns: {team: agent}}}
"""


@pytest.mark.row("K7")
@pytest.mark.flink
def test_agents_have_several_sources_and_several_targets(tmp_path: Path) -> None:
    (tmp_path / "few").write_text('{"id": 1, "who": "ann"}\n')
    (tmp_path / "more").write_text('{"id": 2, "who": "bob"}\n{"id": 3, "who": "bob"}\n')
    (tmp_path / "job.yaml").write_text(FAN)
    run_job_file(tmp_path / "job.yaml", local=True, warn=lambda warning: None)
    found = [(row["team"], row["id"]) for row in rows(tmp_path / "out")]
    assert sorted(found) == [("both", 1), ("both", 2), ("both", 3), ("other", 1)]


@pytest.mark.row("K7")
@pytest.mark.flink
def test_the_incident_desk_reviews_every_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_OUTPUT", str(tmp_path))
    told: list[str] = []
    run_job_file(DESK / "job.yaml", local=True, warn=told.append)
    incidents = (DESK.parent / "log_triage" / "incidents.jsonl").read_text(encoding="utf-8").splitlines()
    reviews = rows(tmp_path / "reviews")
    assert sorted(row["incident"] for row in reviews) == sorted(json.loads(line)["incident"] for line in incidents)
    assert all(row["approved"] for row in reviews)
    assert rows(tmp_path / "failures") == []
    assert told == []


def accepted(key: str, value: Any) -> bool:
    try:
        AgentSpec.model_validate({key: value})
    except ValidationError:
        return False
    return True


def test_keys_of_tools_and_of_code() -> None:
    assert accepted("run_code", True)
    assert not accepted("run_code", "sometimes")
    assert accepted("mcp_servers", {"shop": {"url": "http://shop:8000/mcp", "tools": ["price"]}})
    assert not accepted("mcp_servers", ["http://shop:8000/mcp"])
    assert accepted("chat_model_setups", {"a": {"clazz": "offline.setup", "run_code": True}})
