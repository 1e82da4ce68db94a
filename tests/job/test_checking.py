"""``--check`` and ``--explain``: what can be known of a job before it is submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentSkillManager
from flink_skills.job import explain_job
from flink_skills.manager import SkillLock
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.job.checks import errors, found
from tests.job.files import PLAIN, write_job
from tests.kit.cases import read_rows
from tests.kit.skills import write_skill
from tests.sources.git_server import needs_git
from tests.sources.publishers import KINDS, write_skills
from tests.sources.web import ALLOWED

pytestmark = pytest.mark.flink

ROOT = Path(__file__).parents[2]
SKILLS = f"{{paths: ['{ROOT}/skills']}}"


def test_a_sound_job(tmp_path: Path) -> None:
    checks = found(tmp_path, skills=SKILLS)
    assert {name: {status for status, _ in of} for name, of in checks.items()} == {
        "file": {"ok"},
        "flink": {"ok"},
        "tables": {"ok"},
        "input": {"ok"},
        "agent": {"ok"},
        "skills": {"ok"},
        "columns": {"ok"},
        "connectors": {"ok"},
        "warning": {"warning"},
    }
    assert checks["columns"] == [
        ("ok", "answers: id ← event.id, answer ← output"),
        ("ok", "failures: id ← event.id, error ← error"),
    ]
    assert "log-triage" in checks["skills"][0][1]
    lost, disabled = [message for _, message in checks["warning"]]
    assert lost == (
        "table failures of 'errors' has no column for the event, so failed events cannot run again: add the column "
        "'event STRING', or set 'columns: {NAME: event}'"
    )
    assert "checkpoints are disabled" in disabled


def test_a_tool_that_models_learn_too_little_about_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checks = found(tmp_path, agent="{name: plain, model: offline, tools: ['json:loads']}")
    named = [message for _, message in checks["warning"] if "json" in message or "loads" in message]
    assert len(named) == 1, checks["warning"]
    assert named[0].startswith("agent plain: tool loads: models do not learn the types of its arguments (s, ")
    assert not any("loads" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("name", ["event STRING", "`event` ROW<id INT>", "-- The event.\n    EVENT STRING"])
def test_a_table_of_errors_with_the_event_has_no_warning(tmp_path: Path, name: str) -> None:
    checks = found(tmp_path, PLAIN.replace("(id INT, error STRING", f"(id INT, {name}, error STRING"), skills=SKILLS)
    assert ["column for the event" in message for _, message in checks["warning"]] == [False]


@pytest.mark.parametrize(
    ("columns", "mapped", "missing"),
    [
        ("kind STRING, `at` TIMESTAMP_LTZ(3), agent STRING, key STRING, turn BIGINT", "", ""),
        ("what STRING, `at` BIGINT, agent STRING, key STRING, turn BIGINT", ", columns: {what: kind}", ""),
        ("kind STRING, agent STRING, tool STRING", "", "at, key, turn"),
        ("kind STRING, `at` BIGINT, agent STRING, key STRING, turn STRING", ", columns: {turn: turn_id}", "turn"),
    ],
)
def test_a_table_of_events_has_the_columns_of_turns(tmp_path: Path, columns: str, mapped: str, missing: str) -> None:
    table = f"  CREATE TABLE audit ({columns}) WITH ('connector' = 'blackhole');\n"
    text = PLAIN.replace("error STRING)", "error STRING, event STRING)").replace("input:", f"{table}input:", 1)
    checks = found(tmp_path, f"{text}events: {{table: audit{mapped}}}\n", skills=SKILLS)
    messages = [message for _, message in checks["warning"] if "flink-skills turns" in message]
    assert messages == (
        [
            f"table audit of 'events' has no column for {missing}, so flink-skills turns cannot show its turns: add "
            "the columns, or set 'columns: {NAME: FIELD}'"
        ]
        if missing
        else []
    )


@pytest.mark.parametrize(
    ("replaced", "name", "said"),
    read_rows(__file__, "wrong_sections.yaml"),
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, replaced: dict[str, str], name: str, said: str) -> None:
    checks = found(tmp_path, **replaced)
    assert any(status == "error" and said in message for status, message in checks[name]), checks


def test_statements_that_flink_does_not_take_are_all_named_with_their_lines(tmp_path: Path) -> None:
    text = PLAIN.replace("(id INT, answer", "(id INTT,\n    answer").replace("(id INT, error", "(day INT, error")
    checks = found(tmp_path, text)
    assert [message for status, message in checks["tables"]] == [
        "job.yaml:5: tables: CREATE TABLE answers: Unknown identifier 'INTT'",
        "job.yaml:7: tables: CREATE TABLE failures: SQL does not expect 'day' here; a name that is a word of SQL is "
        "written in backticks",
    ]


@pytest.mark.parametrize(
    ("replaced", "name", "said"),
    [
        (
            {"agent": "{model: 'openai:gpt-5'}"},
            "machine",
            "job.yaml:2:8: agent: chat model 'model': model openai:gpt-5 needs an API key, and the environment "
            "variable OPENAI_API_KEY is not set",
        ),
        (
            {"skills": SKILLS, "options": "{skills.shell.backend: bwrapp}"},
            "machine",
            "options.skills.shell.backend: unknown execution backend 'bwrapp'",
        ),
        (
            {"skills": SKILLS, "options": "{skills.shell.min-isolation: REMOTE}"},
            "machine",
            "commands cannot be isolated at REMOTE on this machine",
        ),
        (
            {"skills": SKILLS, "options": "{skills.lock: /none/skills.lock}"},
            "machine",
            "options.skills.lock: skills.lock /none/skills.lock: the file cannot be read",
        ),
        (
            {"options": "{skills.artifacts.dir: 'nope://x'}"},
            "machine",
            "options.skills.artifacts.dir: option skills.artifacts.dir: 'nope://x': nothing here knows the protocol",
        ),
        (
            {"flink": "{state.backend.type: rocksbd}"},
            "flink",
            "flink.state.backend.type: unknown state backend 'rocksbd': did you mean 'rocksdb'?",
        ),
        (
            {"agent": "{model: offline, mcp_servers: {shop: {command: [no-such-program], sandbox: false}}}"},
            "servers",
            "the MCP server 'shop': there is no program 'no-such-program' on this machine",
        ),
    ],
)
def test_what_a_run_on_this_machine_would_not_find_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: dict[str, str], name: str, said: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    checks = found(tmp_path, **replaced)  # type: ignore[arg-type]
    assert any(status == "error" and said in message for status, message in checks[name]), checks


def test_modules_in_the_current_folder_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skill = tmp_path / "downloaded"
    (skill / "flink_skills").mkdir(parents=True)
    (skill / "flink_skills" / "__init__.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w').close()")
    monkeypatch.chdir(skill)
    checks = found(tmp_path, skills=SKILLS)
    assert not [message for status, message in checks.get("machine", []) if status == "error"]
    assert not (tmp_path / "run").exists()


def test_what_only_other_machines_may_have_is_unknown(tmp_path: Path) -> None:
    flink = "{python.executable: /none/python, execution.checkpointing.dir: 'nope://x/y'}"
    unknown = [message for status, message in found(tmp_path, flink=flink)["flink"] if status == "unknown"]
    assert [message.partition(" is not here")[0] for message in unknown] == [
        "the Python interpreter '/none/python'",
        "the file system 'nope://'",
    ]


def test_what_is_wrong_with_one_part_hides_nothing_of_the_others(tmp_path: Path) -> None:
    checks = found(
        tmp_path,
        input="{tabel: events, key: job}",
        output="{table: answers, columns: {nope: output}}",
        errors="{table: nix}",
        flink="{parallelism.default: x, execution.runtime-mode: BATCH, execution.checkpointing.intervall: 1 s}",
        jars="[no.jar]",
        agent="{name: a, modl: x, chat_model_setups: {m: {clazz: offline, skill_name: [a], temprature: 2}}}",
    )
    places = [message.partition(": ")[2].partition(": ")[0] for message in errors(checks)]
    assert places == [
        "agent.modl",
        "input",
        "input.tabel",
        "agent.chat_model_setups.m.clazz",
        "agent.chat_model_setups.m.skill_name",
        "agent.chat_model_setups.m.temprature",
        "flink.parallelism.default",
        "flink.execution.runtime-mode",
        "jars[0]",
        "output.columns.nope",
        "errors.table",
    ]
    said = " ".join(errors(checks))
    assert "unknown chat model setup 'offline' (did you mean 'offline.setup'?)" in said
    assert "unknown key 'skill_name' in chat model 'm': did you mean 'skill_names'?" in said
    warnings = [message for _, message in checks["warning"]]
    assert any(
        "'execution.checkpointing.intervall', did you mean 'execution.checkpointing.interval'" in w for w in warnings
    )


def test_sources_of_skills_and_the_rest_of_an_agent_are_checked_beside_other_problems(tmp_path: Path) -> None:
    rest = {"skills": "{paths: [nowhere]}", "output": "{table: nix}"}
    # A section that is missing or wrong, and what is reported of the agent beside it.
    for replaced, said in (
        ({"name": ""}, []),
        ({"flink": "[a]"}, []),
        ({"input": ""}, []),
        ({"agent": ""}, []),
        ({"agent": "nobody:Nobody"}, ["there is no module 'nobody'"]),
        ({"agent": "{modle: x, model: 'opneai:x', tools: ['nobody:f']}"}, ["'opneai'", "cannot import 'nobody:f'"]),
        ({"tables": "", "agent": "{model: 'opneai:x'}"}, ["unknown model provider 'opneai'"]),
        ({"models": "{a: {claz: x}, b: {clazz: oflline.setup}}"}, ["models.b.clazz: unknown model provider 'oflline'"]),
        ({"connections": "{a: {clazz: opnai.connection}}"}, ["connections.a.clazz: unknown model provider 'opnai'"]),
    ):
        checks = found(tmp_path, **{**rest, **replaced})
        assert [status for status, _ in checks["skills"]] == ["error"], (replaced, checks)
        assert "nowhere: does not exist" in checks["skills"][0][1]
        if "tables" not in replaced:
            assert "unknown table 'nix'" in checks["columns"][0][1], (replaced, checks)
        messages = [message for status, message in checks.get("agent", []) if status == "error"]
        assert len(messages) == len(said), (replaced, messages)
        assert all(part in message for part, message in zip(said, messages, strict=True)), (replaced, messages)
    own = found(tmp_path, agent="{modle: x, skills: {paths: [nowhere]}}")
    assert "nowhere: does not exist" in own["skills"][0][1]
    (agent,) = found(tmp_path, skills="{path: x}", agent="{model: 'opneai:x'}")["agent"]
    assert "agent.model: unknown model provider 'opneai'" in agent[1]


def test_a_wrong_agent_hides_nothing_of_the_others(tmp_path: Path) -> None:
    agents = """
  first: {modle: x, input: {table: events, key: job}, output: {agent: second}}
  second: {model: 'opneai:x', tools: ['nobody:f'], output: {table: answers}}
  third: {model: 'opneai:x', input: {table: evnts, key: job}, output: {table: nix}}"""
    checks = found(tmp_path, agents=agents, agent="", input="", output="", skills="{paths: [nowhere]}")
    said = " ".join(errors(checks))
    for part in (
        "agents.first.modle: unknown key 'modle'",
        "agents.second.tools: cannot import 'nobody:f'",
        "agents.third: unknown model provider 'opneai'",
        "agents.third.input.table: unknown table 'evnts'",
        "agents.third.output.table: unknown table 'nix'",
        "nowhere: does not exist",
    ):
        assert part in said, (part, errors(checks))


def test_numbers_and_their_nouns(tmp_path: Path) -> None:
    text = PLAIN.replace("(id INT, job STRING)", "(job STRING)").replace(
        "{table: answers}", "{table: answers, columns: {id: null}}"
    )
    checks = found(tmp_path, text, options="{skills.turn.timeout: 1 min}")
    assert checks["file"] == [("ok", "job.yaml: 3 statements, 1 option")]
    assert checks["input"] == [("ok", "1 column, key job")]


def test_every_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    checks = found(
        tmp_path, input="{table: a1, key: job}", output="{table: a2}", errors="{table: a3}", events="{table: a4}"
    )
    assert [message.partition("unknown table ")[2][:4] for message in errors(checks)] == [
        "'a1'",
        "'a2'",
        "'a3'",
        "'a4'",
    ]


def test_a_mistake_is_said_once_and_where_it_is(tmp_path: Path) -> None:
    (key,) = errors(found(tmp_path, input="{table: events, key: [job, nope]}"))
    assert key.startswith("job.yaml:7:35: input.key[1]: unknown key column 'nope'")
    (option,) = errors(found(tmp_path, PLAIN.replace("'blackhole'", "'blackhole', 'bogus' = 'x'", 1)))
    assert option.startswith("job.yaml:5: tables: CREATE TABLE answers: Unsupported options found for 'blackhole'")
    for text in (
        PLAIN.replace("'blackhole'", "'${env:NOT_SET}'", 1).replace("'datagen'", "'${file:/none/x}'"),
        PLAIN.replace("{table: answers}", "{table: '${env:NOT_SET}'}"),
    ):
        assert all(" asks for, " in message for message in errors(found(tmp_path, text)))


def unasked(checks: dict[str, list[tuple[str, str]]]) -> list[str]:
    return [message.partition(": ")[0] for _, message in checks["warning"] if "never asked" in message]


def test_a_chat_model_that_is_never_asked_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setups = "chat_model_setups: {one: {clazz: offline.setup}, two: {clazz: offline.setup}}"
    checks = found(tmp_path, agent=f"{{{setups}, model: offline}}")
    assert unasked(checks) == ["agent.chat_model_setups.two", "agent.model"]
    assert any("asks only its first chat model, 'one'" in message for _, message in checks["warning"])
    models = "{main: {clazz: offline.setup}, other: {clazz: offline.setup}}"
    assert unasked(found(tmp_path, agent="{name: a}", models=models)) == ["models.other"]
    assert unasked(found(tmp_path, agent="{name: a, model: other}", models=models)) == ["models.main"]
    # Code may ask any model.
    (tmp_path / "asking_agents.py").write_text(
        "from flink_skills import Agent\n\n\nclass Asking(Agent):\n    async def on_event(self, event, ctx):\n"
        "        return await ctx.chat(event, model=event['model'])\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert unasked(found(tmp_path, agent="asking_agents:Asking", models=models)) == []


def test_a_shared_chat_model_is_asked_by_one_of_several_agents(tmp_path: Path) -> None:
    agents = """
  first: {model: main, input: {table: events, key: job}, output: {table: answers}, agent_tools: {ask: helper}}
  helper: {model: second}"""
    models = "{main: {clazz: offline.setup}, second: {clazz: offline.setup}, third: {clazz: offline.setup}}"
    checks = found(tmp_path, agents=agents, models=models, agent="", input="", output="")
    assert unasked(checks) == ["models.third"]


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer([Rule(reply=Reply("yes"))]) as server:
        yield server


def test_reach_asks_models_and_loads_urls(tmp_path: Path, server: ScriptedModelServer) -> None:
    agent = f"""{{chat_model_setups: {{
    there: {{clazz: 'openai-compatible:x', base_url: '{server.url}'}},
    gone: {{clazz: 'openai-compatible:y', base_url: 'http://127.0.0.1:9/v1'}}}}}}"""
    skills = "{urls: ['file:///none/there.zip']}"
    before = found(tmp_path, agent=agent, skills=skills)
    assert before["skills"][0] == ("unknown", "unchecked without --reach: file:///none/there.zip")
    assert "models" not in before
    checks = found(tmp_path, reach=True, agent=agent, skills=skills)
    assert checks["skills"][0][0] == "error"
    there, gone = checks["models"]
    assert there[0] == "ok"
    assert "model there (openai-compatible:x) answered in" in there[1]
    assert gone[0] == "error"
    assert "model gone (openai-compatible:y)" in gone[1]


def test_reach_connects_to_mcp_servers(tmp_path: Path) -> None:
    exits = "{command: [python3, '-c', 'import sys; sys.exit(\"no module named shop\")'], sandbox: false}"
    agent = f"""{{model: offline, mcp_servers: {{
    shop: {exits},
    far: {{url: 'http://127.0.0.1:9/mcp', required: false}}}}}}"""
    assert "servers" not in found(tmp_path, agent=agent)
    shop, far = found(tmp_path, reach=True, agent=agent)["servers"]
    assert shop[0] == "error"
    assert "the MCP server 'shop' (program python3) cannot be started: the program ended with exit code 1" in shop[1]
    assert "no module named shop" in shop[1]
    assert far[0] == "warning"
    assert "ConnectError" in far[1]
    job = tmp_path / "job.yaml"
    described = explain_job(job)["agent"]["mcp_servers"]
    assert [(of["name"], of["required"], of["problem"]) for of in described] == [
        ("shop", True, None),
        ("far", False, None),
    ]
    tried = explain_job(job, reach=True)["agent"]["mcp_servers"]
    assert ["exit code 1" in tried[0]["problem"], "ConnectError" in tried[1]["problem"]] == [True, True]


def test_explaining_says_everything_but_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "pl4nted")
    text = PLAIN.replace("'blackhole'", "'blackhole', 'property-version' = '${env:PLANTED}'", 1)
    text = text.replace("(id INT, error STRING", "(id INT, event STRING, error STRING")
    job = write_job(
        tmp_path,
        text,
        skills=f"{{paths: ['{ROOT}/skills'], urls: ['https://me:pl4nted@host/a.zip?sig=pl4nted']}}",
        options="{skills.turn.timeout: 2 min, skills.env.log-triage.T: '${env:PLANTED}'}",
        flink="{execution.checkpointing.interval: 10 s, s3.secret-key: '${env:PLANTED}'}",
    )
    explained = explain_job(job)
    assert "pl4nted" not in json.dumps(explained)
    model: dict[str, Any] = explained["agent"]["models"]["model"]
    assert "log-triage" in model["skills"]
    assert "load_skill" in model["tools"]
    assert model["system_chars"] > 1000
    assert explained["agent"]["unknown"] == "unchecked without --reach: https://host/a.zip"
    assert explained["checkpoints"]["interval"] == "10 s"
    assert explained["output"]["columns"]["id"] == {"type": "INT", "from": "event.id"}
    assert explained["options"]["skills.turn.timeout"] == 120.0
    assert explained["warnings"] == []


def test_flinks_own_plan_has_no_secret_and_stable_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "pl4nted")
    text = PLAIN.replace(
        "'connector' = 'datagen', 'number-of-rows' = '1'",
        "'connector' = 'filesystem', 'path' = '/tmp/${env:PLANTED}', 'format' = 'json'",
    )
    explained = explain_job(write_job(tmp_path, text), flink_plan=True)
    assert "pl4nted" not in json.dumps(explained)
    names = [node["type"] for node in explained["flink"]["nodes"]]
    assert "agent plain" in names
    assert any("events" in name for name in names)


def test_names_of_servers_of_plugins_are_checked_where_they_are_written(tmp_path: Path) -> None:
    plugin = tmp_path / "s/ops"
    write_skill(plugin / "skills/deploy")
    for name, more in (
        ("plugin", {"name": "ops"}),
        ("mcp", {"mcpServers": {"desk": {"type": "stdio", "command": "x"}}}),
    ):
        schema = f"https://agent-plugins.org/schemas/1.0.0/{name}.schema.json"
        (plugin / f"{name}.json").write_text(json.dumps({"$schema": schema, **more}))
    skills = f"{{paths: ['{tmp_path}/s']}}"
    good = {"skills": skills, "options": "{skills.plugins.servers: [ops:desk], skills.tools.approve: [show]}"}
    assert not errors(found(tmp_path, **good))
    wrong = found(tmp_path, skills=skills, options="{skills.plugins.servers: [ops:desc]}")
    (problem,) = [text for texts in wrong.values() for kind, text in texts if kind == "error"]
    assert "options.skills.plugins.servers" in problem
    assert "'ops:desc' matches no plugin server" in problem
    assert "Did you mean 'ops:desk'?" in problem


@needs_git
@pytest.mark.parametrize("kind", ["plugin", "git", "oci", "mcp"])
def test_a_source_that_changed_under_the_lock_is_an_error_with_both_digests(tmp_path: Path, kind: str) -> None:
    (tmp_path / "place").mkdir()
    skills = write_skills(tmp_path / "here")
    with contextmanager(KINDS[kind])(tmp_path / "place") as publish:
        lock = SkillLock.of(AgentSkillManager(paths=[str(skills)]).load_skills())
        (tmp_path / "skills.lock").write_text(lock.to_text())
        source = publish(skills)
        options = {**ALLOWED, "skills.lock": str(tmp_path / "skills.lock"), "skills.store.dir": str(tmp_path / "store")}
        replaced = {"skills": f"{{{'paths' if source.startswith('/') else 'urls'}: ['{source}']}}"}
        replaced["options"] = json.dumps(options)
        assert not errors(found(tmp_path, reach=True, **replaced))
        (skills / "odd/references/more.md").write_text("Less.\n")
        publish(skills)
        changed = SkillLock.of(AgentSkillManager(paths=[str(skills)]).load_skills())
        text = str(errors(found(tmp_path, reach=True, **replaced)))
        for digest in (lock.skills["odd"]["digest"], changed.skills["odd"]["digest"]):
            assert digest in text
