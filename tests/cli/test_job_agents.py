"""Agents of a job file without Flink: ``flink-skills run JOB --local``, ``flink-skills chat JOB``."""

from __future__ import annotations

import io
import json
import sys
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import FlinkSkills
from tests.job.files import PLAIN, write_job
from tests.kit.skills import write_skill

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


@pytest.mark.row("K7")
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


@pytest.mark.row("K7")
def test_one_agent_of_the_job_gets_the_events(job: Path, flink_skills: FlinkSkills) -> None:
    events(job.parent, {"id": 7, "said": "x"})
    done = flink_skills(
        "run", "job.yaml", "--local", "--input", "events.jsonl", "--agent", "reviewer", "--output", "out.jsonl"
    )
    assert done.code == 0
    (record,) = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert (record["agent"], record["key"], record["output"]) == ("reviewer", 7, "No skill fits this event.")


@pytest.mark.row("K7")
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


@pytest.mark.row("K7")
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


@pytest.mark.row("K7")
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


@pytest.mark.row("K7")
def test_chat_finds_tools_beside_the_file(
    shop: Path, flink_skills: FlinkSkills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    done = flink_skills("chat", "shop/job.yaml")
    assert done.code == 0, done.stderr


@pytest.mark.row("K7")
@pytest.mark.flink
@pytest.mark.parametrize("words", [("--check",), ("--explain",), ()])
def test_jobs_find_tools_beside_the_file(shop: Path, flink_skills: FlinkSkills, words: list[str]) -> None:
    done = flink_skills("run", "shop/job.yaml", *words)
    assert done.code == 0, done.stderr


@pytest.mark.row("K7")
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


TOOLS = '''
from flink_skills import tool


def pay_refund(cents: int) -> str:
    """Pay a refund."""
    return "paid"


@tool(approve=True)
def pay_card(cents: int) -> str:
    """Pay."""
    return "paid"


def allow(request):
    return True
'''
SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"


def job_with_names(folder: Path, approve: str = "pay_*", options: str = "", more: str = "") -> None:
    (folder / "tools_to_pay.py").write_text(TOOLS)
    agent = (
        "{name: refunds, model: offline, tools: ['tools_to_pay:pay_refund', 'tools_to_pay:pay_card'], "
        f"approve: {{by: 'tools_to_pay:allow', tools: ['{approve}']}}{more}}}"
    )
    write_job(folder, PLAIN, agent=agent, options=f"{{{options}}}")


@pytest.mark.flink
def test_the_check_and_the_explanation_show_what_each_pattern_matches(
    tmp_path: Path, flink_skills: FlinkSkills
) -> None:
    job_with_names(tmp_path, options="skills.tool.timeout.pay_refund: 3 s, skills.tools.approve: '*_refund'")
    checked = flink_skills("run", "job.yaml", "--check")
    assert checked.code == 0, checked.stdout
    lines = checked.stdout.splitlines()
    assert (
        "✓ approvals: *_refund (pay_refund), pay_* (pay_card, pay_refund), pay_card: tools_to_pay:allow decides"
        in lines
    )
    assert "✓ names: option skills.tool.timeout.pay_refund: pay_refund" in lines
    explained = flink_skills("run", "job.yaml", "--explain")
    assert "names option skills.tools.approve: *_refund → pay_refund" in explained.stdout.splitlines()
    assert "names approve.tools: pay_* → pay_card, pay_refund" in explained.stdout.splitlines()
    data = flink_skills("run", "job.yaml", "--explain", "--format", "json").json
    assert {"in": "approve.tools", "name": "pay_*", "matches": ["pay_card", "pay_refund"], "problem": None} in data[
        "names"
    ]


@pytest.mark.flink
@pytest.mark.parametrize(
    ("approve", "options", "line"),
    [
        ("pay_refnd", "", "agent.approve.tools[0]: 'pay_refnd' matches no tool of agent 'refunds'. Did you mean"),
        ("pay_*", "skills.tools.approve: pay-refund", "options.skills.tools.approve: 'pay-refund' matches no tool of"),
        ("pay_*", "skills.tools.approve: PayRefund", "options.skills.tools.approve: 'PayRefund' matches no tool of"),
        ("pay_*", "skills.tool.lost-calls.pay_refnd: refuse", "lost-calls.pay_refnd: 'pay_refnd' matches no tool of"),
        ("pay_*", "skills.tool.timeout.pay_refnd: 3 s", "skills.tool.timeout.pay_refnd: 'pay_refnd' matches no tool"),
        ("pay_*", "skills.env.reprt.TOKEN: '${env:HOME}'", "skills.env.reprt.TOKEN: 'reprt' matches no skill of"),
    ],
)
def test_a_misspelled_name_is_an_error_at_its_place(
    approve: str, options: str, line: str, tmp_path: Path, flink_skills: FlinkSkills
) -> None:
    job_with_names(tmp_path, approve, options)
    for words in (("--check",), ("--explain",), ()):
        done = flink_skills("run", "job.yaml", *words)
        assert done.code != 0, words
        said = done.stdout + done.stderr
        assert line in said, (words, said)
        if words == ("--check",):
            assert "approvals: pay_refnd" not in said
            assert any(found.startswith("✗") and line in found for found in said.splitlines())


@pytest.mark.flink
def test_the_tools_of_a_server_are_known_when_it_is_reached(tmp_path: Path, flink_skills: FlinkSkills) -> None:
    command = json.dumps([sys.executable, str(SERVER)])
    more = f", mcp_servers: {{shop: {{command: {command}, sandbox: false, prefix: shop_}}}}"
    job_with_names(tmp_path, "count", more=more)
    # Without a connection: no tool of a server with a prefix has this name.
    checked = flink_skills("run", "job.yaml", "--check")
    assert (checked.code, "'count' matches no tool of agent 'refunds'" in checked.stdout) == (1, True)
    for name, code in (("shop_count", 0), ("shop_cuont", 1)):
        job_with_names(tmp_path, name, more=more)
        checked = flink_skills("run", "job.yaml", "--check")
        assert checked.code == 0
        said = f"! warning: approve.tools: '{name}' matches no tool of agent 'refunds' yet. MCP server 'shop' can"
        assert any(line.startswith(said) for line in checked.stdout.splitlines()), checked.stdout
        assert f"approvals: {name} (no tool yet)" in checked.stdout
        explained = flink_skills("run", "job.yaml", "--explain")
        assert f"! approve.tools: '{name}' matches no tool of agent 'refunds' yet." in explained.stdout
        reached = flink_skills("run", "job.yaml", "--check", "--reach")
        assert reached.code == code, reached.stdout
    assert "'shop_cuont' matches no tool of agent 'refunds'. Did you mean 'shop_count'?" in reached.stdout


@pytest.mark.flink
def test_an_agent_without_an_approver_is_a_warning(tmp_path: Path, flink_skills: FlinkSkills) -> None:
    (tmp_path / "tools_to_pay.py").write_text(TOOLS)
    write_job(tmp_path, PLAIN, agent="{name: refunds, model: offline, tools: ['tools_to_pay:pay_card']}")
    checked = flink_skills("run", "job.yaml", "--check")
    said = "! approvals: pay_card: the calls are refused, because the agent has no 'approve'"
    assert (checked.code, said in checked.stdout.splitlines()) == (0, True), checked.stdout
