"""``--check`` and ``--explain``: what can be known of a job before it is submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.job import Check, check_job, explain_job
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.job.files import PLAIN, write_job

pytestmark = pytest.mark.flink

ROOT = Path(__file__).parents[2]
SKILLS = f"{{paths: ['{ROOT}/skills']}}"


def found(folder: Path, text: str = PLAIN, reach: bool = False, **replaced: str) -> dict[str, list[tuple[str, str]]]:
    """Status and message of all checks, by what they are about."""
    noted: list[Check] = []
    report = check_job(write_job(folder, text, **replaced), reach=reach, note=noted.append)
    assert noted == report.checks
    assert report.sound == all(check.status != "error" for check in report.checks)
    by_name: dict[str, list[tuple[str, str]]] = {}
    for check in report.checks:
        by_name.setdefault(check.name, []).append((check.status, check.message.replace(f"{folder}/", "")))
    return by_name


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
    assert "there are no checkpoints" in checks["warning"][0][1]


@pytest.mark.parametrize(
    ("replaced", "name", "said"),
    [
        ({"input": "{table: evnets, key: job}"}, "input", "job.yaml:7:16: input.table: unknown table 'evnets'"),
        (
            {"input": "{table: events, key: jbo}"},
            "input",
            "input.key: unknown key column 'jbo' in table events",
        ),
        ({"input": "{table: events, key: [job, job]}"}, "input", "input.key[1]: column 'job' is there twice"),
        ({"input": "{query: SELECT jobb FROM events, key: job}"}, "input", "Column 'jobb' not found"),
        ({"output": "{table: answers, columns: {idd: output}}"}, "columns", "unknown column 'idd' in table answers"),
        ({"output": "{table: nowhere}"}, "columns", "job.yaml:8:17: output.table: unknown table 'nowhere'"),
        ({"events": "{table: answers}"}, "columns", "column 'answer' of answers: unknown field 'answer' in an event"),
        ({"flink": "{parallelism.default: many}"}, "flink", "parallelism.default"),
        ({"flink": "{execution.runtime-mode: BATCH}"}, "flink", "agents are streaming operators"),
        ({"jars": "[no.jar]"}, "flink", "job.yaml:10:8: jars[0]: there is no file"),
        ({"agent": "{model: 'openai-compatible:x'}"}, "agent", "needs base_url"),
        (
            {"agent": "{chat_model_setups: {m: {clazz: 'openai-compatible:x', base_url: 'https://me:pw/x@host/v1'}}}"},
            "agent",
            "base_url cannot be used: a user or a password has an unescaped '/', '?' or '#' (https://host/v1)",
        ),
        ({"agent": "{model: 'opneai:x'}"}, "agent", "unknown model provider 'opneai'"),
        ({"skills": "{paths: [nowhere]}"}, "skills", "nowhere: does not exist; create it"),
        ({"skills": "{paths: [job.yaml]}"}, "skills", "job.yaml: is no archive; give a folder"),
        ({"skills": "{resources: [skills/x]}"}, "skills", "the job JAR has no such folder"),
        ({"options": "{skills.from.paths: [/none/x]}"}, "skills", "/none/x: does not exist"),
        ({"agent": "{model: offline, skills: {paths: [nowhere]}}"}, "skills", "nowhere: does not exist"),
        (
            {"agent": "{model: offline, prompts: {main: {user: 'Job {jbo}'}}}"},
            "agent",
            "unknown field 'jbo' in prompt 'main' of agent plain: did you mean '{job}'?",
        ),
        (
            {"agent": "{chat_model_setups: {m: {clazz: offline.setup, prompt: p}}}", "prompts": "{p: {user: '{jbo}'}}"},
            "agent",
            "unknown field 'jbo' in prompt 'p' of agent plain: did you mean '{job}'?",
        ),
        ({"agent": "{model: offline, instructions: 'Job {job}'}"}, "agent", "2:39: agent.instructions: '{job}' in in"),
        ({"prompts": "{tone: 'Job {job}'}"}, "flink", "job.yaml:10:17: prompts.tone: '{job}' in instructions"),
    ],
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


def test_columns_that_cannot_be_filled(tmp_path: Path) -> None:
    text = PLAIN.replace("answer STRING)", "answer STRING, i MULTISET<STRING>, more STRING)")
    checks = found(tmp_path, text)
    messages = [message for status, message in checks["columns"] if status == "error"]
    assert any("column 'i' of answers is MULTISET<STRING>" in message for message in messages)
    assert any("nothing fills column 'more' of answers" in message for message in messages)


def test_connectors_that_are_not_here_leave_the_rest_to_be_checked(tmp_path: Path) -> None:
    kafka = """'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:9092',
    'properties.sasl.jaas.config' = '${env:NOT_SET}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset',
    'properties.ssl.key.password' = 'pl4nted'"""
    text = PLAIN.replace("'connector' = 'datagen', 'number-of-rows' = '1'", kafka)
    checks = found(tmp_path, text)
    assert checks["input"] == [("ok", "2 columns, key job")]
    assert [status for status, _ in checks["columns"]] == ["ok", "ok"]
    (connectors,) = checks["connectors"]
    assert connectors[0] == "unknown"
    assert "the connector 'kafka' is not here" in connectors[1]
    (missing,) = checks["references"]
    assert missing == (
        "error",
        "job.yaml:5: tables: the environment variable 'NOT_SET', which ${env:NOT_SET} asks for, is not set; set it "
        "where the job is submitted",
    )
    plain = [message for _, message in checks["warning"] if "properties.ssl.key.password" in message]
    assert plain
    assert "pl4nted" not in json.dumps(checks)


@pytest.mark.parametrize(
    ("at", "options", "line", "said"),
    [
        ("'datagen', 'number-of-rows' = '1'", "'datgen'", 4, "unknown connector 'datgen': did you mean 'datagen'?"),
        ("'datagen', 'number-of-rows' = '1'", "'kafak'", 4, "unknown connector 'kafak': did you mean 'kafka'?"),
        ("'blackhole'", "'blackhol'", 5, "unknown connector 'blackhol': did you mean 'blackhole'?"),
        (
            "'blackhole'",
            "'filesystem', 'path' = '/x', 'format' = 'jsn'",
            5,
            "unknown format 'jsn': did you mean 'json'",
        ),
    ],
)
def test_a_connector_or_format_that_does_not_exist_is_an_error(
    tmp_path: Path, at: str, options: str, line: int, said: str
) -> None:
    # The agent is wrong too, which says nothing of the tables.
    for agent in ("{model: offline}", "{model: nowhere}"):
        checks = found(tmp_path, PLAIN.replace(at, options, 1), agent=agent)
        ((status, message),) = checks["connectors"]
        assert status == "error"
        assert message.startswith(f"job.yaml:{line}: tables: CREATE TABLE ")
        assert said in message


def test_connectors_of_all_tables_are_checked(tmp_path: Path) -> None:
    text = PLAIN.replace("'datagen', 'number-of-rows' = '1'", "'acme'").replace("'blackhole'", "'blackhole', 'x' = 'y'")
    checks = found(tmp_path, text)
    statuses = [(status, message.partition(": ")[0]) for status, message in checks["connectors"]]
    assert statuses == [
        ("unknown", "the connector 'acme' is not here, so what depends on it is not checked"),
        ("error", "job.yaml:5"),
        ("error", "job.yaml:6"),
    ]


def test_a_view_of_a_table_whose_connector_is_not_here_is_unknown(tmp_path: Path) -> None:
    text = PLAIN.replace("'datagen', 'number-of-rows' = '1');", "'acme');\n  CREATE VIEW v AS SELECT * FROM events;")
    ((status, message),) = found(tmp_path, text)["tables"]
    assert status == "unknown"
    assert "the connector 'acme' is not here" in message


def test_a_view_is_not_an_output(tmp_path: Path) -> None:
    text = PLAIN.replace(
        "  CREATE TABLE failures", "  CREATE VIEW v AS SELECT id FROM events;\n  CREATE TABLE failures"
    )
    ((status, message),) = found(tmp_path, text, output="{table: v, columns: {id: output}}")["connectors"]
    assert (status, message) == (
        "error",
        "job.yaml:9:17: output.table: v is a view, which cannot be written to; name a table",
    )


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
            "options.skills.lock: skills.lock /none/skills.lock: cannot be read",
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


def test_files_of_tables_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    files = "'connector' = 'filesystem', 'format' = 'json', 'path' = '${job:dir}"
    text = PLAIN.replace("'connector' = 'datagen', 'number-of-rows' = '1'", f"{files}/none.json'")
    text = text.replace("'connector' = 'blackhole'", f"{files}/job.yaml'", 1)
    assert [message.partition(": ")[2] for message in errors(found(tmp_path, text))] == [
        "tables: CREATE TABLE events: the path none.json does not exist",
        "tables: CREATE TABLE answers: the path job.yaml is a file, and this table is written to a folder",
    ]
    # A source that looks for new files may have none yet.
    waiting = text.replace("none.json'", "none', 'source.monitor-interval' = '1 s'").replace("/job.yaml'", "/out'")
    assert errors(found(tmp_path, waiting)) == []


def test_what_only_other_machines_may_have_is_unknown(tmp_path: Path) -> None:
    flink = "{python.executable: /none/python, execution.checkpointing.dir: 'nope://x/y'}"
    unknown = [message for status, message in found(tmp_path, flink=flink)["flink"] if status == "unknown"]
    assert [message.partition(" is not here")[0] for message in unknown] == [
        "the Python interpreter '/none/python'",
        "the file system 'nope://'",
    ]


def errors(checks: dict[str, list[tuple[str, str]]]) -> list[str]:
    return [message for of in checks.values() for status, message in of if status == "error"]


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
    assert "'offline' is no setup of a chat model: did you mean 'offline.setup'?" in said
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


def test_columns_whose_type_nothing_fits(tmp_path: Path) -> None:
    columns = "id INT, skills INT, `usage` ARRAY<STRING>, turn DATE, tool_calls ARRAY<STRING>, answer INT"
    checks = found(tmp_path, PLAIN.replace("id INT, answer STRING", columns))
    assert [message.partition("column ")[2] for message in errors(checks)] == [
        "'skills' of answers is INT and can never be filled: skills is no number",
        "'usage' of answers is ARRAY<STRING> and can never be filled: usage is no list",
        "'turn' of answers is DATE and can never be filled: turn is no date; a date is YYYY-MM-DD",
    ]


ANSWER = "{model: offline, output_type: {grade: str, n: int, ratio: float, tags: list, ok: bool, more: dict}}"


def test_columns_whose_type_cannot_hold_the_field_of_the_answer(tmp_path: Path) -> None:
    columns = "n BOOLEAN, ratio ARRAY<DOUBLE>, tags INT, ok INT, more INT, grade MAP<STRING, STRING>, id DATE"
    checks = found(tmp_path, PLAIN.replace("id INT, answer STRING", columns), agent=ANSWER)
    assert [message.partition("column ")[2] for message in errors(checks)] == [
        "'n' of answers is BOOLEAN and can never be filled: output.n is neither true nor false",
        "'ratio' of answers is ARRAY<DOUBLE> and can never be filled: output.ratio is no list",
        "'tags' of answers is INT and can never be filled: output.tags is no number",
        "'ok' of answers is INT and can never be filled: output.ok is no number",
        "'more' of answers is INT and can never be filled: output.more is no number",
        "'grade' of answers is MAP<STRING, STRING> and can never be filled: output.grade is no mapping",
        "'id' of answers is DATE and can never be filled: event.id is no date; a date is YYYY-MM-DD",
    ]
    (text,) = errors(found(tmp_path, PLAIN.replace("answer STRING", "answer ARRAY<STRING>")))
    assert "column 'answer' of answers is ARRAY<STRING> and can never be filled: output is no list" in text
    (whole,) = errors(found(tmp_path, PLAIN.replace("answer STRING", "n INT, grades INT"), agent=ANSWER))
    assert "column 'grades' of answers is INT and can never be filled: output is no number" in whole


def test_columns_whose_type_holds_only_some_answers_are_a_warning(tmp_path: Path) -> None:
    columns = "grade INT, n TINYINT, ratio BIGINT, tags ARRAY<STRING>, ok BOOLEAN, more ROW<a INT>, id STRING"
    checks = found(tmp_path, PLAIN.replace("id INT, answer STRING", columns), agent=ANSWER)
    assert errors(checks) == []
    warnings = [message.partition("; use")[0] for _, message in checks["warning"] if "column" in message]
    assert warnings == [
        "output: column 'grade' of answers is INT, so an output becomes an error record if output.grade is no number",
        "output: column 'ratio' of answers is BIGINT, so an output becomes an error record if output.ratio is no whole "
        "number",
    ]


def test_answers_of_a_pydantic_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_answers.py").write_text(
        """
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Literal
from pydantic import BaseModel

class Size(Enum):
    SMALL = "small"
    LARGE = "large"

class Line(BaseModel):
    price: Decimal
    parts: list["Line"] = []

class Answer(BaseModel):
    day: date
    at: datetime | None
    total: Decimal
    size: Size
    kind: Literal["a", "b"]
    first: Line
    lines: list[Line]
    numbers: list[int]
    choice: int | str
""",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = "{model: offline, output_type: 'shop_answers:Answer'}"
    fits = (
        "`day` DATE, `at` TIMESTAMP(3), total DECIMAL(10, 2), size STRING, kind STRING, `first` STRING, "
        "`lines` ARRAY<ROW<price DOUBLE>>, numbers ARRAY<INT>, choice STRING"
    )
    assert errors(found(tmp_path, PLAIN.replace("id INT, answer STRING", fits), agent=agent)) == []
    wrong = (
        "`day` INT, `at` BOOLEAN, total DATE, size INT, kind BOOLEAN, `first` ARRAY<INT>, `lines` INT, "
        "numbers ARRAY<BOOLEAN>, choice ARRAY<INT>"
    )
    checks = found(tmp_path, PLAIN.replace("id INT, answer STRING", wrong), agent=agent)
    assert [message.partition("column '")[2].partition("'")[0] for message in errors(checks)] == [
        *("day", "at", "size", "kind", "first", "lines", "numbers", "choice"),
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
        assert all(" asks for, is " in message for message in errors(found(tmp_path, text)))


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
    assert before["skills"][0] == ("unknown", "not looked at without --reach: file:///none/there.zip")
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
    job = write_job(
        tmp_path,
        text,
        skills=f"{{paths: ['{ROOT}/skills'], urls: ['https://me:pl4nted@host/a.zip?sig=pl4nted']}}",
        options="{skills.turn.timeout: 2 min, skills.env.x.T: '${env:PLANTED}'}",
        flink="{execution.checkpointing.interval: 10 s, s3.secret-key: '${env:PLANTED}'}",
    )
    explained = explain_job(job)
    assert "pl4nted" not in json.dumps(explained)
    model: dict[str, Any] = explained["agent"]["models"]["model"]
    assert "log-triage" in model["skills"]
    assert "load_skill" in model["tools"]
    assert model["system_chars"] > 1000
    assert explained["agent"]["unknown"] == "not looked at without --reach: https://host/a.zip"
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
