"""Job files that are wrong: every problem at once, with its place and the nearest name.

Examines the internals of job.agent_source and job.reading on purpose.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from flink_skills import Agent, SkillOptions, load_agent_yaml
from flink_skills.agents import AgentSpec, DeclarativeAgent
from flink_skills.documents import DocumentError
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.job import ReadJob, job_schema, read_job
from flink_skills.job.agent_source import AgentSources
from flink_skills.job.job_reading import is_job_file
from flink_skills.job.statements import Statement, in_literals, refusal, split_statements
from flink_skills.options import SkillConfig
from tests.job.files import PLAIN, problems_of, read, write_job

WRONG = """\
nmae: x
flink: {execution.checkpointing.interval: 10 s, skills.turn.timeout: 3, a: [[1]]}
options: {skills.turn.timout: 2 min, skills.turn.max-steps: many, parallelism.default: 3, skills.lock: }
skills: {path: [/a], urls: x}
agent:
  instructions: 3
  sesion: key
  session: keyy
  output_type: {a: integer}
  chat_model_setups: {m: {clas: offline.setup}}
  prompts: {p: {sytem: x}, q: 4}
tables: |
  CREATE TABLE a (x INT) WITH ('connector'='datagen');
  SET 'a' = 'b';
input: {table: a, query: SELECT 1, keys: x}
output: {tabel: b, columns: [a]}
errors: b
"""


def job_agent(job: ReadJob) -> Agent:
    return AgentSources(job).of().agent


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    places = [problem.partition(": ")[0].removeprefix("job.yaml:") + ": " for problem in problems_of(tmp_path, WRONG)]
    found = [
        place + problem.partition(": ")[2].partition(" (there are")[0]
        for place, problem in zip(places, problems_of(tmp_path, WRONG), strict=True)
    ]
    assert found == [
        "1:1: 'name' is missing: the job's name.",
        "1:1: nmae: unknown key 'nmae': did you mean 'name'?",
        "2:49: flink.skills.turn.timeout: put options skills.* under 'options'",
        "2:77: flink.a[0]: expected a string or a number or true or false, got a list",
        "3:11: options.skills.turn.timout: unknown option 'skills.turn.timout': did you mean 'skills.turn.timeout' or "
        "'skills.run.timeout' or 'skills.source.timeout'?",
        "3:38: options.skills.turn.max-steps: option skills.turn.max-steps: cannot use 'many': write a whole number",
        "3:67: options.parallelism.default: 'parallelism.default' is not an option skills.*; write options of Flink "
        "under 'flink', and custom keys as skills.user.NAME",
        "3:103: options.skills.lock: expected a string or a number or true or false or a list or a mapping, "
        "got nothing",
        "4:10: skills.path: unknown key 'path': did you mean 'paths'?",
        "4:28: skills.urls: expected a list, got 'x'",
        "6:17: agent.instructions: expected a string, got a number (3)",
        "7:3: agent.sesion: unknown key 'sesion': did you mean 'session'?",
        "8:12: agent.session: unknown value 'keyy' (did you mean 'key'?); expected one of: event, key",
        "9:20: agent.output_type.a: unknown value 'integer' (did you mean 'int'?); expected one of: str, int, float, "
        "bool, list, dict, any",
        "10:26: agent.chat_model_setups.m: 'clazz' is missing: the provider's setup, such as `openai.setup`, or "
        "`PROVIDER:MODEL`.",
        "11:17: agent.prompts.p.sytem: unknown key 'sytem': did you mean 'system'?",
        "11:31: agent.prompts.q: expected a string or a mapping, got a number (4)",
        "14: tables: a job has CREATE statements and USE, not SET: put options of Flink under 'flink'",
        "15:8: input: 'key' is missing: the column, or the columns, that are the key: turns of a key run one after "
        "another.",
        "15:8: input: give 'table' or 'query', not both",
        "15:36: input.keys: unknown key 'keys': did you mean 'key'?",
        "16:9: output: 'table' is missing: the table that gets a row for each output.",
        "16:10: output.tabel: unknown key 'tabel': did you mean 'table'?",
        "16:29: output.columns: expected a mapping, got a list",
        "17:9: errors: expected a mapping, got 'b'",
    ]


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ({"agent": "nobody.yaml"}, "job.yaml:2:8: agent: there is no file nobody.yaml; write its path"),
        ({"agent": "no_such_module:Agent"}, "agent 'no_such_module:Agent': there is no module 'no_such_module'"),
        ({"agent": "pathlib:Path"}, "is not an Agent class or instance"),
        ({"agent": "pathlib"}, "write module:Class, or the path of a YAML file"),
        ({"agent": "agent.yaml"}, "agent.yaml:2:1: sesion: unknown key 'sesion': did you mean 'session'?"),
        (
            {"agent": "{model: offline, tools: ['os:nothing']}"},
            "job.yaml:2:32: agent.tools: cannot import 'os:nothing'",
        ),
        ({"agent": "{model: offline, tools: [plain]}"}, "agent.tools: 'plain': unknown registered tool 'plain'"),
    ],
)
def test_agents_that_are_none(tmp_path: Path, replaced: dict[str, str], said: str) -> None:
    (tmp_path / "agent.yaml").write_text("model: offline\nsesion: key\n")
    with pytest.raises(DocumentError) as caught:
        job_agent(read(tmp_path, **replaced))
    assert said in str(caught.value).replace(f"{tmp_path}/", "")


def test_agents_by_file_by_class_and_inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_URL", "http://localhost:1/v1")
    (tmp_path / "triage.yaml").write_text(
        "instructions: hello\nchat_model_setups:\n  m: {clazz: 'openai-compatible:x', base_url: '${env:MODEL_URL}'}\n"
    )
    by_file = job_agent(read(tmp_path, agent="triage.yaml"))
    assert isinstance(by_file, DeclarativeAgent)
    assert (by_file.name, by_file.instructions) == ("triage", "hello")
    assert by_file.spec["chat_model_setups"]["m"]["base_url"] == "http://localhost:1/v1"

    inline = job_agent(
        read(tmp_path, agent="{model: offline, skills: {urls: [{url: 'https://h/a.zip', sha256: null}]}}")
    )
    assert isinstance(inline, DeclarativeAgent)
    assert inline.spec == {"name": "plain", "model": "offline", "skills": {"urls": [{"url": "https://h/a.zip"}]}}

    (tmp_path / "beside_the_job.py").write_text(
        "from flink_skills import Agent\nclass Mine(Agent):\n    model = 'offline'\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    assert type(job_agent(read(tmp_path, agent="beside_the_job:Mine"))).__name__ == "Mine"
    assert isinstance(job_agent(read(tmp_path, agent="examples.log_triage.agent:LogTriageAgent")), Agent)


def test_settings_of_the_file_and_of_the_command_line(tmp_path: Path) -> None:
    job = read(
        tmp_path,
        PLAIN,
        "skills.turn.timeout=9 s",
        "parallelism.default=7",
        options="{skills.turn.timeout: 5 s, skills.strict: true, skills.from.urls: [{url: 'https://h/a.zip'}]}",
        flink="{parallelism.default: 2, execution: {checkpointing: {interval: 10 s}}, rest.port: 1, b: [x, y]}",
    )
    assert job.settings.skills.to_json() == {
        "skills.turn.timeout": 9.0,
        "skills.strict": True,
        "skills.from.urls": ["https://h/a.zip"],
    }
    assert job.settings.flink == {
        "parallelism.default": "7",
        "execution.checkpointing.interval": "10 s",
        "rest.port": "1",
        "b": "x;y",
    }
    assert job.settings.cluster_only == ("rest.port",)
    with pytest.raises(UnknownNameError, match="did you mean 'skills\\.strict'"):
        read(tmp_path, PLAIN, "skills.strikt=true")
    with pytest.raises(ConfigError, match="write KEY=VALUE"):
        read(tmp_path, PLAIN, "nothing")


def test_a_file_that_is_no_mapping(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("- a\n- b\n")
    assert problems_of(tmp_path, "- a\n- b\n") == [
        "job.yaml:1:1: expected a mapping such as 'name: triage', got a list"
    ]


FLINK_AGENTS = """\
agents:
  - name: reviews
    description: Scores reviews.
    actions:
      - name: process_input
        function: shop.actions:process_input
        trigger_conditions: [input]
    chat_model_setups:
      - name: scorer
        clazz: azure_openai
        connection: server
        model: m
        prompt: score
        tools: [notify]
        extract_reasoning: true
    prompts:
      - name: score
        messages:
          - {role: system, content: Score it.}
          - {role: user, content: "{input}"}
    tools:
      - name: notify
        function: shop.actions:notify
        injected_args: {tenant: {source: config, key: tenant}}
    mcp_servers:
      - name: stock
        clazz: mcp
        endpoint: http://127.0.0.1:8000/mcp
chat_model_connections:
  - name: server
    clazz: vllm
    type: python
    endpoint: http://localhost:8000/v1
    request_timeout: 30
skills:
  - name: all
    paths: [skills]
    url_sources: [{url: https://example.org/s.zip}]
"""


def test_a_file_of_flink_agents_gets_each_difference_with_what_to_write(tmp_path: Path) -> None:
    found = [problem.removeprefix("job.yaml:") for problem in problems_of(tmp_path, FLINK_AGENTS)]
    assert found[0].startswith("1:1: agents: this is a file of Flink Agents")
    said = {line.split(": ")[1]: line.split(": ", 2)[2] for line in found[1:]}
    assert {path: text for path, text in said.items() if not path.startswith("agents[0].chat_model_setups[0]")} == {
        "agents[0].name": "write the name as a key: agents: {reviews: …}",
        "agents[0].description": "write a comment; only an agent that is a tool has a description, in agent_tools of "
        "its caller",
        "agents[0].actions": "write all actions of an agent as one method on_event of a class, and write agent: "
        "module:Class",
        "agents[0].chat_model_setups": "write a mapping of names, scorer: {clazz: azure.setup, model: …}; for all "
        "agents of a job: models",
        "agents[0].prompts": "write a mapping of names, score: {system: …, user: …}",
        "agents[0].prompts[0].messages": "write the system message as system and the user message as user; {event} "
        "is the event",
        "agents[0].tools": "write a list of functions in each agent, tools: ['shop.actions:notify']; a tool has the "
        "name of its function",
        "agents[0].tools[0].injected_args": "annotate a parameter of the function with ToolContext, and read "
        "its fields",
        "agents[0].mcp_servers": "write a mapping of names in each agent, stock: {url: http://127.0.0.1:8000/mcp}",
        "agents[0].mcp_servers[0].endpoint": "write base_url, or url for an MCP server",
        "chat_model_connections": "write a mapping of names, server: {clazz: openai-compatible.connection}; for all "
        "agents of a job: connections",
        "chat_model_connections[0].type": "omit it: agents are written in Python or YAML: there are no Java resources",
        "chat_model_connections[0].endpoint": "write base_url, or url for an MCP server",
        "chat_model_connections[0].request_timeout": "set the option skills.model.timeout",
        "skills": "write one mapping without a name, skills: {paths: […], urls: […], resources: […]}",
        "skills[0].url_sources": "write them under urls, each as {url: …, sha256: …}",
    }
    assert "thinking=True" in said["agents[0].chat_model_setups[0].extract_reasoning"]


@pytest.mark.parametrize("text", [FLINK_AGENTS, FLINK_AGENTS[FLINK_AGENTS.index("chat_model_connections:\n  - ") :]])
def test_a_file_of_flink_agents_is_no_agent_either(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    with pytest.raises(DocumentError, match="this is a file of Flink Agents"):
        load_agent_yaml(file)


def test_a_job_file_and_an_agent_file_are_told_apart(tmp_path: Path) -> None:
    assert is_job_file(write_job(tmp_path))
    agent = tmp_path / "agent.yaml"
    agent.write_text("name: triage\nmodel: offline\n")
    assert not is_job_file(agent)
    assert not is_job_file(tmp_path / "nothing.yaml")


def test_what_is_written_has_something_in_it(tmp_path: Path) -> None:
    found = problems_of(tmp_path, PLAIN + "events:\nskills:\n", input="{table: events, key: []}")
    assert found == [
        "job.yaml:7:29: input.key: the list is empty; write at least one",
        "job.yaml:10:1: events: the section is empty; write a mapping, or omit the key",
        "job.yaml:11:1: skills: the section is empty; write a mapping, or omit the key",
    ]


TEXT = """\
-- tables; of the shop
CREATE TABLE a (x INT) /* not; the end */ WITH ('path' = 'it''s; fine');

CREATE TEMPORARY VIEW `semi;colon` AS SELECT ';' FROM a;;
USE CATALOG other
"""


def test_statements_end_where_sql_says() -> None:
    first, second, third = split_statements(TEXT)
    assert (first.line, second.line, third.line) == (2, 4, 5)
    assert first.text.endswith("('path' = 'it''s; fine')")
    assert [s.title for s in (first, second, third)] == [
        "CREATE TABLE a",
        "CREATE TEMPORARY VIEW `semi;colon`",
        "USE other",
    ]
    assert split_statements(" -- nothing\n ;; ") == []


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("CREATE TABLE IF NOT EXISTS cat.db.`t 1` (x INT)", "CREATE TABLE cat.db.`t 1`"),
        ("create temporary system function f as 'a.B'", "create temporary system function f"),
        ("CREATE", "CREATE"),
    ],
)
def test_a_statement_is_called_by_its_first_words(text: str, title: str) -> None:
    assert Statement(text, 1).title == title


@pytest.mark.parametrize(
    ("text", "line"), [("CREATE TABLE a\nWITH ('x' = 'y);", 2), ("\n/* open", 2), ("CREATE VIEW `v AS", 1)]
)
def test_what_never_ends_is_said_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ValueError, match="is never closed") as caught:
        split_statements(text)
    assert caught.value.args[1] == line


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE a (x INT, y AS x + 1) WITH ('connector' = 'print')",
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1",
        "CREATE TEMPORARY SYSTEM FUNCTION f AS 'a.b.C' LANGUAGE JAVA",
        "CREATE CATALOG c WITH ('type' = 'generic_in_memory')",
        "CREATE DATABASE d",
        "CREATE MODEL m WITH ('provider' = 'x')",
        "USE d",
        "CREATE TABLE b LIKE a",
    ],
)
def test_ddl_is_allowed(text: str) -> None:
    assert refusal(Statement(text, 1)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SET 'a' = 'b'", "put options of Flink under 'flink'"),
        ("INSERT INTO a SELECT 1", "writes to the tables of 'output'"),
        ("SELECT 1", "write it as 'query' of 'input'"),
        ("ADD JAR '/x.jar'", "put jars under 'jars'"),
        ("CRAETE TABLE a (x INT)", "did you mean CREATE?"),
        ("CREATE TABEL a (x INT)", "did you mean CREATE TABLE?"),
        ("CREATE TABLE a WITH ('x' = 'y') AS SELECT 1", "would run a separate job"),
        ("CREATE OR REPLACE TABLE a AS SELECT (1)", "would run a separate job"),
        ("DROP TABLE a", "not DROP"),
        ("123", "not 123"),
    ],
)
def test_what_would_run_something_is_refused(text: str, said: str) -> None:
    message = refusal(Statement(text, 1))
    assert message is not None
    assert said in message


def test_only_literals_are_replaced_and_stay_literals() -> None:
    outside: list[tuple[str, int]] = []
    text = "CREATE -- 'no'\nTABLE a WITH ('p' = 'x''y', `'q'` = 'z')"
    found = in_literals(text, lambda value, line: f"<{value}'{line}>", lambda line, n: outside.append((line, n)))
    assert found == "CREATE -- 'no'\nTABLE a WITH ('<p''2>' = '<x''y''2>', `'q'` = '<z''2>')"
    assert outside[0][0].strip() == "CREATE"
    assert "`'q'`" in outside[1][0]


@pytest.mark.parametrize("separator", ["\u2028", "\u0085", "\x0c"])
def test_lines_end_at_line_feeds_only(separator: str) -> None:
    outside: list[tuple[str, int]] = []
    in_literals(f"CREATE{separator}TABLE a\n(b INT)", lambda value, _: value, lambda *line: outside.append(line))
    assert outside == [(f"CREATE{separator}TABLE a", 1), ("(b INT)", 2)]


ROOT = Path(__file__).parents[2]


def test_the_published_schema_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("docs.gen_job_schema")
    assert module.main(["--check"]) == 0, "run: python -m docs.gen_job_schema"
    monkeypatch.setattr(module, "PAGE", tmp_path / "schema.json")
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0
    assert json.loads(module.PAGE.read_text()) == job_schema()


def test_every_option_is_in_the_schema() -> None:
    options = job_schema()["properties"]["options"]
    assert set(options["properties"]) == {option.key for option in SkillOptions.all()}
    assert options["additionalProperties"] is False
    assert all(described["description"] for described in options["properties"].values())


def test_each_option_has_the_type_of_its_values() -> None:
    types = {option.key: option.config_type for option in SkillOptions.all()}
    assert types["skills.from.paths"] is types["skills.from.resources"] is types["skills.from.urls"] is list
    assert (types["skills.strict"], types["skills.limits.ratio"], types["skills.source.timeout"]) == (bool, int, float)
    assert (types["skills.unsupported"], types["skills.prompt.guidance"]) == (str, str)


def test_the_schema_has_every_key_of_a_declared_agent() -> None:
    from flink_skills.agents import DeclarativeAgent

    assert {*AgentSpec.model_fields, "agent_tools"} == set(sys.modules[DeclarativeAgent.__module__]._KEYS)


def test_the_job_of_the_example_has_only_known_keys() -> None:
    job = yaml.safe_load((ROOT / "examples/log_triage/job.yaml").read_text(encoding="utf-8"))
    schema = job_schema()
    assert set(job) <= set(schema["properties"])
    assert set(schema["required"]) <= set(job)
    SkillConfig(job["options"])


# The files that Flink runs: those of Kubernetes have no tables.
JOB_FILES = sorted(
    file
    for folder in ("deploy", "examples")
    for file in (ROOT / folder).rglob("*.yaml")
    if re.search(r"^tables:", file.read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("file", JOB_FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_job_files_keep_failed_events_and_write_what_happens(file: Path) -> None:
    read = read_job(file, lenient=True)
    columns = {
        found["name"]: set(re.findall(r"^[( ]*`?(\w+)`? [A-Z]+", found["columns"].replace(", ", "\n"), re.MULTILINE))
        for found in re.finditer(
            r"CREATE TABLE (?P<name>\w+) (?P<columns>\(.*?)\)\s+WITH", read.document.data["tables"], re.DOTALL
        )
    }
    assert columns
    for stage in read.stages:
        assert stage.errors is not None, "an event whose turn fails is lost"
        assert "event" in columns[stage.errors.table], "a failed event cannot run again"
        # The first steps of the tutorial have no events.
        if stage.events is not None or file.parts[-2:] != ("tutorial", "job.yaml"):
            assert stage.events is not None, "flink-skills turns has no events"
            assert columns[stage.events.table] >= {"kind", "at", "agent", "key", "turn"}
