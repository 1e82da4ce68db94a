"""Job files that are wrong: every problem at once, with its place and the nearest name.

Examines the internals of job.agent_source and job.reading on purpose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills import Agent
from flink_skills.agents import DeclarativeAgent
from flink_skills.documents import DocumentError
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.job import ReadJob
from flink_skills.job.agent_source import AgentSources
from flink_skills.job.job_reading import is_job_file
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
