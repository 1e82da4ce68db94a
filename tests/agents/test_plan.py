"""Compiling agents: what is checked on the client, what a plan holds, how a worker gets the agent back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentPlan,
    ConfigError,
    PlanError,
    Prompt,
    ResourceDescriptor,
    ResourceName,
    SkillsError,
    UnknownNameError,
    chat_model_connection,
    chat_model_setup,
    load_agent_yaml,
    prompt,
    skills,
    tool,
)
from flink_skills.agents import compile_plan, load_agent
from flink_skills.manager import AgentSkillManager, SkillScope
from flink_skills.models import ModelSetup
from flink_skills.sources import SourceSpec
from tests.kit.skills import skill_text, write_skill
from tests.manager.writing import zip_bytes


class Triage(Agent):
    @skills
    @staticmethod
    def own_skills() -> ResourceDescriptor:
        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, paths=["/opt/skills"], urls=["https://x/s.zip"])

    @chat_model_connection
    @staticmethod
    def server() -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION,
            base_url="http://localhost:1/v1",
            api_key_env="MY_KEY",
        )

    @staticmethod
    @chat_model_setup
    def model_a() -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP,
            connection="server",
            model="m",
            skill_names=["log-triage"],
            tools=["price"],
            temperature=0.1,
        )

    @prompt
    @staticmethod
    def instructions() -> Prompt:
        return Prompt(system="Be brief.", user="{job}: {event}")

    @tool
    def price(self, article: str) -> float:
        """Price of an article."""
        return len(article)


@pytest.mark.row("B21", "B18")
def test_plan_is_json_that_comes_back() -> None:
    plan = compile_plan(Triage)
    data = json.loads(json.dumps(plan.to_json()))
    assert AgentPlan.from_json(data) == plan
    assert data["version"] == 3
    assert data["agent"] == {"kind": "import", "class": "tests.agents.test_plan:Triage"}
    (model,) = data["models"]
    assert model["setup"]["base_url"] == "http://localhost:1/v1"
    assert model["setup"]["api_key_env"] == "MY_KEY"
    assert model["setup"]["settings"] == {"temperature": 0.1}
    assert model["tools"] == ["price"]
    assert data["tools"][0]["parameters"]["properties"]["article"]["type"] == "string"


def test_key_of_a_setup_replaces_that_of_its_connection() -> None:
    (model,) = compile_plan(setup_agent(api_key_file="/run/secrets/key")).models
    assert (model.setup.api_key_env, model.setup.api_key_file) == (None, "/run/secrets/key")
    assert model.setup.base_url == "http://localhost:1/v1"


def test_plan_of_another_release_is_refused() -> None:
    data = compile_plan(Triage).to_json()
    with pytest.raises(PlanError, match=r"plan format 99, and this TaskManager has .* plan format 3: install the same"):
        AgentPlan.from_json({**data, "version": 99})
    with pytest.raises(
        PlanError, match=r"submitted by flink_skills 0\.2\.0 with plan format 3, and this TaskManager has"
    ):
        AgentPlan.from_json({**data, "build": "0.2.0", "new": []})
    with pytest.raises(PlanError, match="submitted by flink_skills of an unknown version"):
        AgentPlan.from_json({name: value for name, value in data.items() if name != "build"})
    assert AgentPlan.from_json({**data, "build": f"{data['build'].partition('+')[0]}+vendor.1"}) == compile_plan(Triage)


def test_value_of_a_key_never_enters_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-planted-secret")
    assert "sk-planted-secret" not in json.dumps(compile_plan(Triage).to_json())
    with pytest.raises(ConfigError, match="api_key_env"):
        ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_CONNECTION, api_key="sk-x")


def setup_agent(**arguments: Any) -> type[Agent]:
    class Made(Triage):
        @chat_model_setup
        @staticmethod
        def model_a() -> ResourceDescriptor:
            given = {"clazz": ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, "connection": "server", "model": "m"}
            return ResourceDescriptor(**{**given, **arguments})

    return Made


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"connection": "serve"}, UnknownNameError, r"unknown connection 'serve'.*did you mean 'server'"),
        ({"tools": ["prize"]}, UnknownNameError, r"unknown tool 'prize'.*did you mean 'price'"),
        ({"prompt": "instruction"}, UnknownNameError, r"unknown prompt 'instruction'"),
        ({"temprature": 0.1}, UnknownNameError, r"unknown model setting 'temprature'.*temperature"),
        ({"skill_names": "log-triage"}, ConfigError, "give a list of names"),
        ({"clazz": "openai.connection"}, PlanError, "is not a chat model setup"),
        ({"clazz": ResourceName.ChatModel.ANTHROPIC_SETUP}, PlanError, "is for openai-compatible"),
        ({"clazz": "opnai:gpt", "connection": None}, UnknownNameError, r"unknown model provider 'opnai'.*'openai'"),
        ({"strategy": "jsn"}, UnknownNameError, "unknown strategy 'jsn'"),
    ],
)
def test_wrong_setups_are_named_with_their_fix(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compile_plan(setup_agent(**arguments))


def test_agent_without_a_model_is_told_what_to_declare() -> None:
    class Nothing(Agent):
        pass

    with pytest.raises(PlanError, match="declare a @chat_model_setup"):
        compile_plan(Nothing)


@pytest.mark.row("B15")
def test_skill_names_without_any_source() -> None:
    class NoSource(Agent):
        @chat_model_setup
        @staticmethod
        def m() -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.ChatModel.OFFLINE_SETUP, skill_names=["a"])

    with pytest.raises(PlanError, match="neither the job nor the agent has a skill source"):
        compile_plan(NoSource)


@pytest.mark.row("B15")
@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({}, "names no source"),
        ({"path": ["/x"]}, "unknown argument 'path'"),
    ],
)
def test_skills_declarations_are_checked(declared: Any, message: str) -> None:
    class Wrong(Agent):
        model = "offline"

        @skills
        @staticmethod
        def s() -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, **declared)

    with pytest.raises(PlanError, match=message):
        compile_plan(Wrong)


def test_tool_named_like_one_of_the_runtime() -> None:
    class Clash(Agent):
        model = "offline"

        @tool
        def load_skill(self, name: str) -> str:
            "Mine."
            return name

    with pytest.raises(PlanError, match="rename it"):
        compile_plan(Clash)


def test_apply_takes_agents_only() -> None:
    with pytest.raises(PlanError, match="takes an Agent class or instance"):
        compile_plan(dict)  # type: ignore[arg-type]


def test_model_of_the_caller_takes_the_place_of_the_declared_one() -> None:
    plan = compile_plan(Triage, model=ModelSetup.parse("offline"))
    (model,) = plan.models
    assert model.setup.provider == "offline"
    assert model.setup.base_url is None
    assert model.skill_names == ("log-triage",)


class Configured(Agent):
    model = "offline"

    def __init__(self, limit: int) -> None:
        self.limit = limit


def test_instance_with_attributes_travels_by_value() -> None:
    plan = compile_plan(Configured(7))
    agent = load_agent(plan.agent)
    assert isinstance(agent, Configured)
    assert agent.limit == 7


def test_class_that_needs_arguments() -> None:
    with pytest.raises(PlanError, match="pass an instance"):
        compile_plan(Configured)


def test_agent_that_cannot_be_pickled_is_named() -> None:
    agent = Configured(1)
    agent.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
    with pytest.raises(PlanError, match=r"Configured cannot be sent .* at attribute 'lock'\): keep clients"):
        compile_plan(agent)


# Values without a pickle in each part of a main script: its lines, their use in the agent, and the path in the message.
UNSENDABLE = {
    "a class that an agent uses": (
        "class Cache:\n    guard = threading.Lock()\n",
        "        return Cache\n",
        "class Main -> attribute 'on_event' -> variable 'Cache' -> attribute 'guard'",
    ),
    "a variable": ("LOCK = threading.Lock()\n", "        return LOCK\n", "'on_event' -> variable 'LOCK'"),
    "a generator": ("NUMBERS = (n for n in [1])\n", "        return NUMBERS\n", "'on_event' -> variable 'NUMBERS'"),
    "a default of a field": (
        "@dataclass\nclass Event:\n    guard: object = field(default=threading.Lock())\n",
        "        return Event\n",
        "variable 'Event' -> attribute 'guard'",
    ),
}


@pytest.mark.parametrize("case", UNSENDABLE)
def test_what_cannot_be_sent_is_named_with_the_fix(case: str, tmp_path: Path) -> None:
    declared, used, path = UNSENDABLE[case]
    script = tmp_path / "job.py"
    script.write_text(
        "import threading\n"
        "from dataclasses import dataclass, field\n"
        "from flink_skills import Agent\n"
        "from flink_skills.agents.plan.compilation import compile_plan\n"
        f"{declared}"
        "class Main(Agent):\n"
        "    async def on_event(self, event, ctx):\n"
        f"{used}"
        "compile_plan(Main)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    message = done.stderr.splitlines()[-1]
    assert "PlanError: agent __main__.Main cannot be sent to the workers (TypeError: cannot pickle" in message
    assert f"{path}): keep clients and locks out of" in message


def test_class_of_the_main_script_reaches_another_process(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import json\n"
        "from flink_skills import Agent\n"
        "from flink_skills.agents.plan.compilation import compile_plan\n"
        "class Main(Agent):\n"
        "    async def on_event(self, event, ctx):\n"
        "        return 'from main'\n"
        "print(json.dumps(compile_plan(Main).to_json()))\n"
    )
    env = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, env=env)
    plan = AgentPlan.from_json(json.loads(done.stdout))
    assert type(load_agent(plan.agent)).__name__ == "Main"


def test_worker_that_cannot_import_says_what_to_ship() -> None:
    with pytest.raises(PlanError, match=r"(?s)cannot load agent no_such_module:X.*ship module 'no_such_module'.*-pyfs"):
        load_agent({"kind": "import", "class": "no_such_module:X"})


def write(folder: Path, text: str) -> Path:
    file = folder / "triage.yaml"
    file.write_text(text)
    return file


@pytest.mark.row("B21")
def test_yaml_agent_declares_the_same(tmp_path: Path) -> None:
    agent = load_agent_yaml(
        write(
            tmp_path,
            """
name: triage
instructions: Be brief.
skills: {paths: [/opt/skills]}
chat_model_connections:
  server: {clazz: openai-compatible.connection, base_url: "http://localhost:1/v1", api_key_env: MY_KEY}
chat_model_setups:
  model_a: {clazz: openai-compatible.setup, connection: server, model: m, skill_names: [log-triage], temperature: 0.1}
output_type: {diagnosis: str, severity: str}
tools: ["os.path:basename"]
""",
        )
    )
    plan = compile_plan(agent)
    (model,) = plan.models
    (declared,) = compile_plan(setup_agent(skill_names=["log-triage"], temperature=0.1)).models
    assert model.setup == declared.setup
    assert model.skill_names == declared.skill_names
    assert plan.scopes[0].paths == (SourceSpec("path", "/opt/skills"),)
    assert plan.output_schema is not None
    assert set(plan.output_schema["properties"]) == {"diagnosis", "severity"}
    assert plan.tools[0]["name"] == "basename"
    assert load_agent(json.loads(json.dumps(plan.to_json()))["agent"]).instructions == "Be brief."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", r":2:1: invalid YAML"),
        ("- a", "expected a mapping"),
        ("nam: x", "unknown key 'nam': did you mean 'name'"),
        ("model: 3", r"model: expected a string, got a number \(3\)"),
        ("chat_model_setups: {m: {model: x}}", r"chat_model_setups\.m: 'clazz' is missing"),
        ("chat_model_setups: {m: {clazz: opnai:x}}", "unknown model provider 'opnai'.*did you mean 'openai'"),
        ("chat_model_setups: {m: {clazz: offline.setup, skills: [a]}}", r"skills.*use skill_names=\[…\]"),
        ("skills: {}", "names no source"),
        ("skills: {path: [/a]}", "unknown key 'path': did you mean 'paths'"),
        ("session: forever", "unknown value 'forever'; expected one of: event, key"),
        ("output_type: {a: strng}", r"unknown value 'strng' \(did you mean 'str'\?\)"),
        ("tools: ['no_such:f']", "cannot import 'no_such:f'"),
        ("tools: [f]", "module:name"),
        ("prompts: {p: {systm: x}}", "unknown key 'systm'"),
        ("prompts: {p: &a {system: x}, q: *a}", "YAML anchors and aliases are not used here"),
    ],
)
def test_bad_yaml_agents(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("triage.yaml")) as caught:
        load_agent_yaml(write(tmp_path, text + "\n"))
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "name: 3\nskil_names: [a]\nprompts:\n  main: {systm: x}\n",
            [
                "1:7: name: expected a string, got a number (3)",
                "2:1: skil_names: unknown key 'skil_names': did you mean 'skill_names'",
                "4:10: prompts.main.systm: ",
            ],
        ),
        (
            "model: offline\nskills: {}\ntools: ['no_such:f']\ntool_pool: ['no_such:g']\n",
            ["2:9: skills: names no source", "3:8: tools: cannot import", "4:12: tool_pool: cannot import"],
        ),
        (
            "chat_model_setups:\n  a: {clazz: offline.setup, skills: [x]}\n  b: {clazz: offline.setup, promt: y}\n",
            ["2:29: chat_model_setups.a.skills: ", "3:29: chat_model_setups.b.promt: "],
        ),
    ],
)
def test_all_problems_of_a_yaml_agent_are_reported_with_their_places(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_agent_yaml(file)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(expected), lines
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(f"{file}:{start}"), line


def test_missing_yaml_file(tmp_path: Path) -> None:
    with pytest.raises(SkillsError, match="No such file"):
        load_agent_yaml(tmp_path / "nope.yaml")


def test_prompt_replaces_plain_names_once() -> None:
    template = Prompt(user="{job} {event.__class__} {event}")
    assert template.render_user({"job": "{event}", "event": 1}) == "{event} {event.__class__} 1"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the number of times that each string was parsed."""
    texts: Counter[str] = Counter()
    parse = SourceSpec.parse

    def counting(cls: type[SourceSpec], kind: str, given: Any) -> SourceSpec:
        if isinstance(given, str):
            texts[given] += 1
        return parse(kind, given)

    monkeypatch.setattr(SourceSpec, "parse", classmethod(counting))
    return texts


def test_each_text_is_parsed_once_before_and_once_after_the_plan_travels(tmp_path: Path, parsed: Counter[str]) -> None:
    write_skill(tmp_path / "folder" / "a", "a")
    write_skill(tmp_path / "jar" / "b", "b")
    (tmp_path / "c.zip").write_bytes(zip_bytes({"c/SKILL.md": skill_text("c")}))
    path, resource, url = f"{tmp_path}/folder#format=skill", "skills/b", f"file://{tmp_path}/c.zip"

    class Reader(Agent):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            return event

        @skills
        @staticmethod
        def own() -> ResourceDescriptor:
            return ResourceDescriptor(
                clazz=ResourceName.SKILLS_MANAGER, paths=[path], resources={"resource": resource}, urls=url
            )

    plan = compile_plan(Reader)
    assert plan.resources == (resource,)
    sealed, secrets = plan.seal()
    data = json.dumps(sealed.to_json())
    assert parsed == {path: 1, resource: 1, url: 1}

    parsed.clear()
    plan = AgentPlan.from_json(json.loads(data)).unseal(secrets)
    manager = AgentSkillManager.from_scopes(
        plan.scopes, resource_paths={resource: [str(tmp_path / "jar")]}, store_dir=str(tmp_path / "store")
    )
    with manager:
        assert [skill.name for skill in manager.load_skills()] == ["a", "b", "c"]
        assert manager.paths == [f"{tmp_path}/folder"]
    assert parsed == {f"{tmp_path}/folder": 1, resource: 1, url: 1}


def test_the_text_of_a_url_with_a_secret_is_parsed_once_with_and_once_without_it(parsed: Counter[str]) -> None:
    url, shown = "https://me:pl4nted@host/a.zip?sig=pl4nted#format=heading", "https://host/a.zip#format=heading"

    class Silent(Agent):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            return event

    plan = compile_plan(Silent, job_scopes=[SkillScope("job", urls=[url])])
    sealed, secrets = plan.seal()
    assert plan.describe() == sealed.describe()
    assert parsed == {url: 1}

    parsed.clear()
    assert AgentPlan.from_json(sealed.to_json()).unseal(secrets) == plan
    assert parsed == {shown: 1, url: 1}
