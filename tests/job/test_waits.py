"""Questions and answers of a job file: tables, checks, and approvals without code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flink_skills import SkillsError, load_agent_yaml
from flink_skills.job import check_job, explain_job, run_job_file
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.job.checks import errors, found
from tests.job.checks import found as checks_of
from tests.job.files import problems_of, rows, write_job

TOOLS = '''
def pay(order: str, cents: int) -> str:
    """Pay a refund."""
    return f"paid {cents} for {order}"
'''

JOB = """\
name: refunds
flink: {parallelism.default: 1}
options: {skills.worker.processes: 1}
agent:
  tools: [tools_of_refunds:pay]
  approve: {tools: [pay], by: answers, timeout: 2 s, on_timeout: refuse, question: 'Pay this refund?'}
  chat_model_setups:
    clerk: {clazz: "openai-compatible:m", base_url: URL}
tables: |
  CREATE TABLE orders (`order` STRING, cents INT)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/orders.json', 'format' = 'json');
  CREATE TABLE decisions (`order` STRING, wait STRING, approved BOOLEAN, reason STRING, arguments STRING, who STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/decisions.json', 'format' = 'json');
  CREATE VIEW answers AS SELECT `order`, wait, approved, reason, arguments, who AS `by` FROM decisions;
  CREATE TABLE results (`order` STRING, answer STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/results', 'format' = 'json');
  CREATE TABLE questions (wait_id STRING, `order` STRING, status STRING, question STRING, tool STRING, arguments STRING,
    deadline TIMESTAMP_LTZ(3), since BIGINT, `by` STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/questions', 'format' = 'json');
input: {table: orders, key: order}
answers: {table: answers, key: order, wait_id: wait}
output: {table: results}
waits: {table: questions, columns: {order: key}}
"""


def model(body: Mapping[str, Any]) -> Reply:
    """Pay the order of the event, and answer with the result."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return Reply(last["content"])
    event = json.loads(last["content"][last["content"].index("{") :])
    return Reply(tool_calls=(Call("pay", {"order": event["order"], "cents": event["cents"]}),))


def lines(file: Path, *records: Mapping[str, Any]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools_of_refunds.py").write_text(TOOLS)
    lines(tmp_path / "orders.json", *({"order": f"A-{number}", "cents": 100 * number} for number in range(1, 5)))
    return tmp_path


@pytest.mark.row("K14")
@pytest.mark.flink
@pytest.mark.both_versions
def test_people_approve_refuse_and_change_calls_of_an_agent_without_code(folder: Path) -> None:
    decisions: list[dict[str, Any]] = [
        {"order": "A-1", "approved": True, "who": "ann"},
        {"order": "A-2", "approved": False, "reason": "too late", "who": "bob"},
        {"order": "A-3", "approved": True, "arguments": '{"order": "A-3", "cents": 7}', "who": "eve"},
    ]
    lines(folder / "decisions.json")
    told: list[str] = []
    with ScriptedModelServer(model) as server:
        (folder / "job.yaml").write_text(JOB.replace("URL", server.url))
        assert run_job_file(folder / "job.yaml", local=True, warn=told.append) == 0
        # The ids are the same in each run with these events.
        ids = {row["order"]: row["wait_id"] for row in rows(folder / "questions")}
        lines(folder / "decisions.json", *({**of, "wait": ids[of["order"]]} for of in decisions))
        for output in ("results", "questions"):
            shutil.rmtree(folder / output)
        assert run_job_file(folder / "job.yaml", local=True, warn=told.append) == 0
    answers = {row["order"]: row["answer"] for row in rows(folder / "results")}
    assert answers["A-1"] == "paid 100 for A-1"
    assert "the call was not approved: too late" in answers["A-2"]
    assert answers["A-3"].endswith("paid 7 for A-3")
    assert answers["A-3"].startswith("eve approved the call with other arguments")
    assert "There was no decision before the deadline" in answers["A-4"]
    questions = rows(folder / "questions")
    opened = [row for row in questions if row["status"] == "open"]
    asked = [(row["question"], row["tool"], json.loads(row["arguments"])["cents"]) for row in opened]
    assert sorted(asked) == [("Pay this refund?", "pay", 100 * number) for number in range(1, 5)]
    assert all(row["deadline"].endswith("Z") and row["since"] > 1_700_000_000_000 for row in opened)
    ends = {row["order"]: (row["status"], row["by"]) for row in questions if row["status"] != "open"}
    assert [ends[f"A-{number}"] for number in (1, 2, 3)] == [("answered", who) for who in ("ann", "bob", "eve")]
    assert ends["A-4"][0] in ("timed_out", "input_ended")


@pytest.mark.flink
def test_the_check_shows_answers_and_questions(folder: Path) -> None:
    lines(folder / "decisions.json")
    (folder / "job.yaml").write_text(JOB.replace("URL", "http://127.0.0.1:1"))
    report = check_job(folder / "job.yaml")
    assert [check.message for check in report.checks if check.status == "error"] == []
    said = {check.message for check in report.checks}
    assert "key order, wait wait" in said
    assert any(message.startswith("questions: wait_id ← wait_id, order ← key, status ← status") for message in said)


@pytest.mark.flink
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "answers: {table: answers",
            "answers: {table: answer",
            "answers.table: unknown table 'answer' in tables",
        ),
        (", wait_id: wait}", "}", "answers: unknown column 'wait_id' in table answers"),
        ("wait_id: wait", "wait_id: waits", "answers.wait_id: unknown column 'waits' in table answers: did you mean"),
        ("key: order, wait_id", "key: [ordr], wait_id", "answers.key[0]: unknown key column 'ordr' in table answers"),
        ("key: order, wait_id", "key: [order, wait], wait_id", "answers.key: the key has 2 columns and the key of the"),
        (
            "orders (`order` STRING",
            "orders (`order` INT",
            "answers.key: key column 'order' of table answers is STRING, and 'order' of the input is INT, so no answer",
        ),
        (
            "{table: answers, key: order, wait_id: wait}",
            "{table: orders, key: order, wait_id: cents}",
            "answers.table: 'orders' is also the table of the input, so each event would be an answer",
        ),
        ("{order: key}", "{order: keys}", "column 'order' of questions: unknown field 'keys' in a wait"),
        ("\nanswers:", "\n#", "agent.approve.by: approve.by is 'answers', and the agent has no answers"),
        ("\nwaits:", "\n#", "there is no 'waits' table, so people cannot see which calls need their approval"),
        (
            "`by` FROM decisions",
            "`by` FROM decisions JOIN orders USING (`order`)",
            "'input' and 'answers' both read orders, so the author of an event can approve its calls",
        ),
    ],
)
def test_the_check_finds_mistakes_of_answers_and_questions(folder: Path, old: str, new: str, message: str) -> None:
    lines(folder / "decisions.json")
    text = JOB.replace("URL", "http://127.0.0.1:1")
    assert old in text
    (folder / "job.yaml").write_text(text.replace(old, new))
    found = [check.message for check in check_job(folder / "job.yaml").checks if check.status in ("error", "warning")]
    assert any(message in text for text in found), found


def test_sections_of_waits_are_checked_without_flink(tmp_path: Path) -> None:
    assert problems_of(tmp_path, answers="{table: a, query: b}") == [
        "job.yaml:10:10: answers: give 'table' or 'query', not both"
    ]
    assert problems_of(tmp_path, answers="{key: id}") == [
        "job.yaml:10:10: answers: give 'table', or 'query' with a SELECT"
    ]
    assert problems_of(tmp_path, waits="{columns: {}}") == [
        "job.yaml:10:8: waits: 'table' is missing: table that receives a row for each question, and one when its wait "
        "ends."
    ]


@pytest.mark.parametrize(
    ("approve", "message"),
    [
        ("by: answers, on_timeout: later", "on_timeout"),
        ("by: answers, timeout: soon", "approve.timeout: is 'soon': write a duration such as '30 s'"),
        ("by: answers, timeout: 0", "approve.timeout: is 0: write a time above 0, such as '2 d'"),
        ("by: 'json:dumps', timeout: 1", "approve.timeout: only people have it, and by is 'json:dumps': write 'by:"),
    ],
)
def test_mistakes_of_an_approval(tmp_path: Path, approve: str, message: str) -> None:
    text = f"name: refunds\nmodel: offline\ntools: ['json:dumps']\napprove: {{tools: [dumps], {approve}}}\n"
    (tmp_path / "agent.yaml").write_text(text)
    with pytest.raises(SkillsError) as caught:
        load_agent_yaml(tmp_path / "agent.yaml")
    assert message in str(caught.value)


SEVERAL = """\
name: desks
agents:
  first:
    model: offline
    input: {table: events, key: job}
    output: {table: results}
    answers: {table: decisions, key: job}
  second:
    model: offline
    input: {table: events, key: job}
    output: {table: results}
    waits: {table: own}
tables: |
  CREATE TABLE events (id INT, job STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
  CREATE TABLE decisions (job STRING, wait_id STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
  CREATE TABLE results (id INT, answer STRING) WITH ('connector' = 'blackhole');
  CREATE TABLE questions (wait_id STRING) WITH ('connector' = 'blackhole');
  CREATE TABLE own (wait_id STRING) WITH ('connector' = 'blackhole');
waits: {table: questions}
"""


@pytest.mark.flink
def test_each_agent_has_its_answers_and_the_job_has_a_table_of_questions(tmp_path: Path) -> None:
    stages = explain_job(write_job(tmp_path, SEVERAL))["agents"]
    found = {name: (stage["answers"], stage["waits"]["table"]) for name, stage in stages.items()}
    assert found == {
        "first": ({"from": "decisions", "key": ["job"], "wait_id": "wait_id"}, "questions"),
        "second": (None, "own"),
    }


def test_answers_belong_to_one_agent(tmp_path: Path) -> None:
    assert problems_of(tmp_path, SEVERAL, answers="{table: decisions}") == [
        "job.yaml:20:1: answers: the section cannot be combined with 'agents'; move it into the agent that it "
        "belongs to"
    ]


CALLED = """\
name: desks
agents:
  desk:
    model: offline
    input: {table: events, key: job}
    output: {table: results}
    agent_tools: {ask_clerk: clerk}
  clerk:
    agent: clerk.yaml
tables: |
  CREATE TABLE events (id INT, job STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
  CREATE TABLE decisions (job STRING, wait_id STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
  CREATE TABLE results (id INT, answer STRING) WITH ('connector' = 'blackhole');
"""


@pytest.mark.flink
def test_the_caller_needs_answers_for_the_approvals_of_an_agent_that_it_calls(tmp_path: Path) -> None:
    (tmp_path / "clerk.yaml").write_text(
        "name: clerk\nmodel: offline\ntools: ['json:dumps']\napprove: {tools: [dumps], by: answers}\n"
    )
    found = errors(checks_of(tmp_path, CALLED))
    assert found == [
        "clerk.yaml:4:31: approve.by: approve.by is 'answers', and agent desk has no answers: add the section "
        "'answers' to agents.desk"
    ]
    text = CALLED.replace("    agent_tools:", "    answers: {table: decisions}\n    agent_tools:")
    assert errors(checks_of(tmp_path, text)) == []


@pytest.mark.flink
def test_the_check_and_the_explanation_show_approvals(folder: Path) -> None:
    lines(folder / "decisions.json")
    text = JOB.replace("URL", "http://127.0.0.1:1")
    (folder / "job.yaml").write_text(text.replace("options: {", "options: {skills.tools.approve: 'p*', "))
    said = [check.message for check in check_job(folder / "job.yaml").checks if check.name == "approvals"]
    assert said == ["p* (pay), pay: people decide; after 2 s the call is refused"]
    assert explain_job(folder / "job.yaml")["approvals"] == [
        {
            "agent": "refunds",
            "tools": {"p*": ["pay"], "pay": ["pay"]},
            "by": "answers",
            "timeout": "2 s",
            "on_timeout": "refuse",
            "question": "Pay this refund?",
        }
    ]
    (folder / "decide.py").write_text("def decide(request):\n    return True\n")
    section = text[text.index("approve: {") : text.index("}", text.index("approve: {")) + 1]
    (folder / "job.yaml").write_text(text.replace(section, "approve: {tools: [pay], by: 'decide:decide'}"))
    said = [check.message for check in check_job(folder / "job.yaml").checks if check.name == "approvals"]
    assert said == ["pay: decide:decide decides"]
    (folder / "job.yaml").write_text(
        text.replace(section, "").replace("options: {", "options: {skills.tools.approve: pay, ")
    )
    said = [check.message for check in check_job(folder / "job.yaml").checks if check.name == "approvals"]
    assert said == ["pay: the calls are refused, because the agent has no 'approve'"]


CODE = """
from flink_skills import Agent


class Asking(Agent):
    name = "asking"

    async def on_event(self, event, ctx):
        found = await ctx.wait("size")
        return f"{event['order']}: {found}"


class Checking(Agent):
    name = "checking"

    async def on_event(self, event, ctx):
        found = await ctx.wait("check")
        return f"{event['answer']}, {found['report']['by']} {found['report']['marks']}"
"""

BEHIND = """\
name: desks
flink: {parallelism.default: 1}
options: {skills.worker.processes: 1}
agents:
  asking:
    agent: desks_of_people:Asking
    input: {query: "SELECT `order` FROM rows_in WHERE wait IS NULL", key: order}
    answers: {query: "SELECT `order`, wait AS wait_id, size AS answer FROM rows_in WHERE wait IS NOT NULL", key: order}
    output: {agent: checking, columns: {order: key, answer: output}}
  checking:
    agent: desks_of_people:Checking
    input: {agent: asking, key: order}
    answers: {table: checks}
    output: {table: results, columns: {answer: output}}
tables: |
  CREATE TABLE rows_in (`order` STRING, wait STRING, size INT)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/rows.json', 'format' = 'json');
  CREATE TABLE checks (`order` STRING, wait_id STRING, report ROW<`by` STRING, marks ARRAY<INT>>)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/checks.json', 'format' = 'json');
  CREATE TABLE results (answer STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/results', 'format' = 'json');
  CREATE TABLE questions (wait_id STRING, name STRING)
  WITH ('connector' = 'filesystem', 'path' = '${job:dir}/questions', 'format' = 'json');
waits: {table: questions}
"""


@pytest.mark.flink
def test_answers_come_from_the_table_of_the_events_and_reach_an_agent_behind_another(tmp_path: Path) -> None:
    (tmp_path / "desks_of_people.py").write_text(CODE)
    (tmp_path / "job.yaml").write_text(BEHIND)
    ids = {"size": "", "check": ""}
    # The ids are the same in each run. The second question is asked after the answer to the first one.
    for _ in range(3):
        lines(tmp_path / "rows.json", {"order": "A"}, {"order": "A", "wait": ids["size"], "size": 7})
        report = {"by": "ann", "marks": [1, 2]}
        lines(tmp_path / "checks.json", {"order": "A", "wait_id": ids["check"], "report": report})
        for output in ("results", "questions"):
            shutil.rmtree(tmp_path / output, ignore_errors=True)
        failed = run_job_file(tmp_path / "job.yaml", local=True, warn=print)
        ids |= {row["name"]: row["wait_id"] for row in rows(tmp_path / "questions")}
    assert failed == 0
    assert [row["answer"] for row in rows(tmp_path / "results")] == ["A: 7, ann [1, 2]"]


AGENT = """
  name: plain
  route: {{field: {field}, models: {{billing: {large}}}, default: {small}}}
  chat_model_setups:
    large: {{clazz: offline.setup, fallback: [{fallback}]}}
"""
MODELS = """
  small: {clazz: "openai-compatible:tiny", base_url: "http://localhost:1/v1", fallback: [spare]}
  spare: {clazz: offline.setup}
"""


def agent(field: str = "job", large: str = "large", small: str = "small", fallback: str = "spare") -> str:
    return AGENT.format(field=field, large=large, small=small, fallback=fallback)


@pytest.mark.flink
def test_the_check_names_fallbacks_and_the_route(tmp_path: Path) -> None:
    checks = found(tmp_path, agent=agent(), models=MODELS)
    assert errors(checks) == []
    assert checks["agent"] == [
        (
            "ok",
            "agent plain: large (offline, then spare), small (openai-compatible:tiny, then spare), spare (offline); "
            "by job: billing → large, else small",
        )
    ]


@pytest.mark.flink
def test_problems_are_at_their_keys(tmp_path: Path) -> None:
    wrong = agent(field="jib", large="larg", small="smal", fallback="spar, large")
    said = errors(found(tmp_path, agent=wrong, models=MODELS.replace("[spare]", "[spore]")))
    at = [message.split(": ")[:2] for message in said if message.startswith("job.yaml")]
    assert at == [
        ["job.yaml:16:90", "models.small.fallback[0]"],
        ["job.yaml:4:41", "agent.route.models.billing"],
        ["job.yaml:4:57", "agent.route.default"],
        ["job.yaml:6:35", "agent.chat_model_setups.large.fallback"],
        ["job.yaml:6:46", "agent.chat_model_setups.large.fallback[0]"],
        ["job.yaml:4:18", "agent.route.field"],
    ]
    assert "unknown chat model 'spar': did you mean 'spare'? (there are: large, small, spare)" in said[4]
    assert "'large' is the model itself" in said[3]


@pytest.mark.flink
def test_a_nested_field_needs_its_column(tmp_path: Path) -> None:
    assert errors(found(tmp_path, agent=agent(field="job.name"), models=MODELS)) == []
    (said,) = errors(found(tmp_path, agent=agent(field="jab.name"), models=MODELS))
    assert "agent.route.field: unknown column 'jab.name'" in said


def test_the_schema_wants_all_keys_of_a_route(tmp_path: Path) -> None:
    (said,) = problems_of(tmp_path, agent="{name: plain, model: offline, route: {field: job, models: {a: model}}}")
    assert "route" in said and "'default' is missing" in said


@pytest.mark.flink
def test_the_explanation_has_both(tmp_path: Path) -> None:
    explained = explain_job(write_job(tmp_path, agent=agent(), models=MODELS))["agent"]
    assert explained["models"]["large"]["fallback"] == ["spare"] and explained["models"]["spare"]["fallback"] == []
    assert explained["route"] == {"field": "job", "models": {"billing": "large"}, "default": "small"}


@pytest.mark.flink
def test_reach_asks_fallbacks_that_are_no_models_of_the_agent(tmp_path: Path) -> None:
    with ScriptedModelServer([Rule(Reply("yes"))]) as server:
        setup = f'{{clazz: "openai-compatible:large", base_url: "{server.url}", fallback: ["openai-compatible:tiny"]}}'
        said = found(tmp_path, reach=True, agent=f"{{name: plain, chat_model_setups: {{main: {setup}}}}}")["models"]
        assert [message.partition(" answered")[0] for _, message in said] == [
            "model main (openai-compatible:large)",
            "model openai-compatible:tiny (openai-compatible:tiny)",
        ]
        assert [request["model"] for request in server.requests] == ["large", "tiny"]
