"""A plan travels without secrets: none is shown, and none is kept where others look.

Examines the internals of agents.sealing on purpose.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentPlan,
    PlanError,
    ResourceDescriptor,
    ResourceName,
    SkillConfig,
    chat_model_setup,
    load_agent_yaml,
    skills,
)
from flink_skills.agents import compile_plan, decode, load_agent
from flink_skills.agents.plan.sealing import secret_values
from flink_skills.manager import SkillScope
from flink_skills.models import UserMessage
from flink_skills.sources import SourceSpec
from tests.kit.agents import OpenAgent
from tests.kit.models import Script

PLANTED = "pl4nted-s3cret"
PIN = "a" * 64


class Silent(Agent):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        return event


class Carrying(Silent):
    """An agent by value whose code and attributes repeat a secret."""

    def __init__(self) -> None:
        self.token = PLANTED

    @skills
    def own(self) -> ResourceDescriptor:
        return ResourceDescriptor(
            clazz=ResourceName.SKILLS_MANAGER,
            paths=["/opt/a?b"],
            urls=[f"s3://key:{PLANTED}@bucket/a.zip", {"url": f"https://h/b.zip?sig={PLANTED}", "sha256": PIN}],
        )


def plan_with_secrets(agent: Any = Carrying) -> AgentPlan:
    urls = (f"https://user:{PLANTED}@host/s.zip#format=heading", "https://host/plain.zip")
    config = SkillConfig(
        {
            "skills.source.options": json.dumps({"s3": {"secret": PLANTED, "endpoint_url": "http://127.0.0.1:1"}}),
            "skills.from.urls": [urls[0]],
            "skills.turn.timeout": "5 s",
        }
    )
    return compile_plan(agent, job_scopes=[SkillScope(level="job", urls=urls)], config=config)


def test_what_travels_and_what_is_shown_holds_no_secret() -> None:
    plan = plan_with_secrets()
    sealed, _ = plan.seal()
    for text in (
        json.dumps(sealed.to_json()),
        json.dumps(plan.describe()),
        json.dumps(sealed.describe()),
        plan.summary(),
        repr(plan),
        repr(sealed),
        repr(Carrying().own()),
    ):
        assert PLANTED not in text
        assert "user" not in text.replace('"user"', "")


def test_what_is_no_secret_stays_to_be_seen() -> None:
    described = plan_with_secrets().describe()
    assert described["sources"] == [
        {
            "level": "job",
            "paths": [],
            "resources": [],
            "urls": ["https://host/s.zip#format=heading", "https://host/plain.zip"],
        },
        {
            "level": "agent",
            "paths": ["/opt/a?b"],
            "resources": [],
            "urls": ["s3://bucket/a.zip", f"https://h/b.zip#sha256={PIN}"],
        },
    ]
    assert described["options"]["skills.turn.timeout"] == 5.0
    assert described["options"]["skills.source.options"] == "(not shown)"
    assert described["options"]["skills.from.urls"] == ["https://host/s.zip#format=heading"]


def test_a_sealed_plan_comes_back_whole() -> None:
    plan = plan_with_secrets()
    sealed, secrets = (json.loads(json.dumps(part)) for part in (plan.seal()[0].to_json(), plan.seal()[1]))
    back = AgentPlan.from_json(sealed).unseal(secrets)
    assert back == plan
    agent = load_agent(back.agent)
    assert isinstance(agent, Carrying) and agent.token == PLANTED


def test_without_secrets_nothing_is_taken_but_code() -> None:
    plan = compile_plan(Silent, job_scopes=[SkillScope(level="job", urls=("https://host/plain.zip",))])
    sealed, secrets = plan.seal()
    assert (sealed, secrets) == (plan, {})
    assert sealed.unseal({}) == plan


def test_an_agent_in_yaml_is_sealed_too(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(
        "name: yaml-agent\nmodel: offline\n"
        f"skills:\n  urls:\n  - https://h/a.zip?sig={PLANTED}\n  - url: https://h/b.zip\n    sha256: {PIN}\n"
        "  paths: [{path: /opt/notes, format: heading}]\n"
    )
    plan = compile_plan(load_agent_yaml(str(file)))
    sealed, secrets = plan.seal()
    assert PLANTED not in json.dumps([sealed.to_json(), plan.describe()])
    assert sealed.unseal(secrets) == plan
    (scope,) = plan.scopes
    assert scope.urls == (
        SourceSpec("url", f"https://h/a.zip?sig={PLANTED}"),
        SourceSpec("url", "https://h/b.zip", sha256=PIN),
    )
    assert scope.paths == (SourceSpec("path", "/opt/notes", format="heading"),)


def test_a_password_with_an_unescaped_slash_is_hidden() -> None:
    scope = SkillScope(level="job", urls=("simplecache::https://me:pass/w::rd@host/a.zip",))
    _, secrets = compile_plan(Silent, job_scopes=[scope], config=SkillConfig()).seal()
    assert set(secret_values(secrets)) == {"me:pass/w::rd", "pass/w::rd"}


def test_the_texts_to_hide_are_the_secret_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SK", "from-variable")
    scope = SkillScope(
        level="job",
        urls=(
            "https://me:p%40ss%2Fword@host/a.zip?X-Sig=abc123def&download=true&exp=1#sha256=" + PIN,
            "filecache::s3://AKIAKEY@bucket/x.zip",
        ),
    )
    s3 = {"key": "k", "secret": "s-value-1", "token": "${env:SK}", "client_kwargs": {"region_name": "eu-central-1"}}
    config = SkillConfig({"skills.source.options": json.dumps({"s3": s3})})
    _, secrets = compile_plan(Silent, job_scopes=[scope], config=config).seal()
    found = secret_values(secrets)
    assert set(found) == {
        "X-Sig=abc123def&download=true&exp=1",
        "abc123def",
        "me:p%40ss%2Fword",
        "me:p@ss/word",
        "p%40ss%2Fword",
        "p@ss/word",
        "s-value-1",
        "${env:SK}",
        "from-variable",
        "AKIAKEY",
    }
    assert [len(value) for value in found] == sorted((len(value) for value in found), reverse=True)


@pytest.mark.parametrize(
    ("urls", "problem"),
    [
        ([{"url": f"https://h/a.zip?sig={PLANTED}", "sha265": PIN}], "sha265"),
        ([{"url": f"https://u:{PLANTED}@h/a.zip", "sha256": "short"}], "64 hexadecimal digits"),
        ([42], "int"),
        (7, "int"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_without_its_secret(urls: Any, problem: str) -> None:
    class Wrong(Silent):
        @skills
        @staticmethod
        def own() -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, urls=urls)

    with pytest.raises(PlanError, match=problem) as failure:
        compile_plan(Wrong)
    assert PLANTED not in str(failure.value)


def test_specs_and_single_sources_are_taken_as_they_are() -> None:
    class Specs(Silent):
        @skills
        @staticmethod
        def own() -> ResourceDescriptor:
            return ResourceDescriptor(
                clazz=ResourceName.SKILLS_MANAGER,
                urls=SourceSpec("url", "https://h/a.zip", sha256=PIN),
                paths=Path("/opt/skills"),
                resources={"resource": "skills.zip", "sha256": PIN},
            )

    plan = compile_plan(Specs)
    (scope,) = plan.scopes
    assert scope.urls == (SourceSpec("url", "https://h/a.zip", sha256=PIN),)
    assert scope.paths == (SourceSpec("path", "/opt/skills"),)
    assert plan.resources == ("skills.zip",)


SCRIPT = Path(__file__).with_name("main_script.py")

# Reads what another process pickled, and pickles the events again: as PyFlink's own processes do, without an import
# of the package.
READER = """
import json, pickle, sys, traceback
import cloudpickle

pickled = pickle.loads(open(sys.argv[1], "rb").read())
results, again = {}, {}
for name, (check, events) in pickled.items():
    try:
        check, first, second = pickle.loads(check), *map(pickle.loads, events)
        results[name] = [type(first) is type(second), check(first), check(second)]
        again[name] = (cloudpickle.dumps(check), [cloudpickle.dumps(first), cloudpickle.dumps(second)])
    except Exception:
        results[name] = traceback.format_exc()
open(sys.argv[2], "wb").write(pickle.dumps(again))
print(json.dumps(results, default=repr))
"""

CASES = (
    "dataclass",
    "frozen",
    "slots",
    "frozen slots",
    "keyword only",
    "inheritance",
    "generic dataclass",
    "pydantic dataclass",
    "pydantic model",
    "discriminated union",
    "generic model",
    "enum",
    "enum with attributes",
    "enum with a constructor",
    "flag",
    "typed dict",
    "named tuple",
    "old named tuple",
    "class",
    "abstract class",
    "exception",
    "closure",
    "partial",
    "cached function",
    "cached function of a module",
    "annotations",
)


@pytest.fixture(scope="module", params=["", "from __future__ import annotations\n"], ids=["", "future"])
def processes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of the script, of a process that reads its pickles, and of one that reads the pickles of the second."""
    folder = tmp_path_factory.mktemp("by_value")
    script, reader = folder / "script.py", folder / "reader.py"
    script.write_text(request.param + SCRIPT.read_text())
    reader.write_text(READER)
    return [
        run(script, folder / "first"),
        run(reader, folder / "first", folder / "second"),
        run(reader, folder / "second", folder / "third"),
    ]


def run(*command: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.each_python
@pytest.mark.parametrize("case", CASES)
def test_it_arrives_whole_and_as_one_class(processes: list[dict[str, Any]], case: str) -> None:
    script, worker, later = processes
    result = script["results"][case]
    assert worker.get(case) == [True, result, result]
    assert later.get(case) == [True, result, result]


@pytest.mark.each_python
def test_all_cases_are_here(processes: list[dict[str, Any]]) -> None:
    assert sorted(processes[0]["results"]) == sorted(CASES)


@pytest.mark.each_python
def test_the_process_that_declares_the_classes_keeps_them_as_they_are(processes: list[dict[str, Any]]) -> None:
    script = processes[0]
    assert (script["changed"], script["made again"], script["shapes"]) == ([], [], ["Square"])


@pytest.fixture
def isolation() -> dict[str, str]:
    """The isolation of a job as it is without options, which is what these tests are about."""
    return {}


class Coder(Agent):
    model = "scripted:m"
    run_code = True


def block(code: str, language: str = "python") -> str:
    return f"Let me see.\n```{language}\n{code}\n```\n"


def told(model: Any, number: int = -1) -> str:
    last = model.requests[number].messages[-1]
    assert isinstance(last, UserMessage)
    return last.content


@pytest.mark.row("J31")
async def test_the_model_goes_on_with_what_its_code_printed(open_agent: OpenAgent, script: Script) -> None:
    model = script([block("print(6 * 7)", "tool_code"), block("echo $((2 + 3)) > n; cat n", "bash"), "It is 42 and 5."])
    bench = await open_agent(Coder)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", "It is 42 and 5."),)
    assert told(model, 1).startswith("```tool_output\nexit code: 0\nstdout:\n42\n")
    assert "stdout:\n5\n" in told(model, 2)
    assert "```tool_output" in model.requests[0].system
    assert model.requests[0].tools == []
    steps = [decode(entry)["id"] for entry in bench.journal]
    assert steps == ["chat#0/m0", "chat#0/c0.0", "chat#0/m1", "chat#0/c1.0", "chat#0/m2"]


@pytest.mark.row("J31")
async def test_when_it_is_off_text_is_text(open_agent: OpenAgent, script: Script) -> None:
    class Plain(Agent):
        model = "scripted:m"

    for agent, options in ((Plain, {}), (type("Off", (Coder,), {"run_code": False}), {"skills.code.enabled": "true"})):
        model = script([block("open('made', 'w')")])
        bench = await open_agent(agent, **options)
        outcome = await bench.turn("x")
        assert outcome.outputs == (("", block("open('made', 'w')")),)
        assert "tool_output" not in model.requests[0].system
        assert len(bench.journal) == 1
        assert bench.runtime.isolation == "none: no commands"


@pytest.mark.row("J31")
async def test_one_model_of_an_agent_may_have_it(open_agent: OpenAgent, script: Script) -> None:
    class Two(Agent):
        @chat_model_setup
        def plain(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup")

        @chat_model_setup
        def coder(self) -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", run_code=True)

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return [await ctx.chat(event, model="plain"), await ctx.chat(event, model="coder")]

    script([block("print(1)"), block("print(1)"), "done"])
    outcome = await (await open_agent(Two)).turn("x")
    assert outcome.outputs == (("", [block("print(1)"), "done"]),)


@pytest.mark.row("J31")
async def test_an_option_and_yaml_switch_it_on(open_agent: OpenAgent, script: Script, tmp_path: Path) -> None:
    class Plain(Agent):
        model = "scripted:m"

    (tmp_path / "coder.yaml").write_text("model: scripted:m\nrun_code: true\n")
    for agent, options in ((Plain, {"skills.code.enabled": "true"}), (load_agent_yaml(tmp_path / "coder.yaml"), {})):
        model = script([block("print(1)"), "done"])
        assert (await (await open_agent(agent, **options)).turn("x")).outputs == (("", "done"),)
        assert "stdout:\n1" in told(model)


@pytest.mark.row("J31")
async def test_finished_code_is_not_run_again(open_agent: OpenAgent, script: Script) -> None:
    log = "import os; print(os.environ['FLINK_SKILLS_CALL_ID'], file=open('log', 'a')); print(open('log').read())"

    def answer(request: Any) -> str:
        said = [message.content for message in request.messages if isinstance(message, UserMessage)]
        return block(log) if len(said) < 3 else said[-1]

    script(answer)
    bench = await open_agent(Coder)
    first = await bench.turn("x")
    journal = list(bench.journal)
    assert len(journal) == 5
    ids = first.outputs[0][1].split("stdout:\n")[1].split("stderr")[0].split()
    assert len(ids) == len(set(ids)) == 2, "each block has a call id"
    # Everything is there: nothing runs.
    again = await bench.turn("x", journal=journal)
    assert again.outputs == first.outputs
    # The second block had begun, and had no result: it runs again with the id that it had.
    repeated = await bench.turn("x", journal=journal[:3], crashes=1)
    assert repeated.outputs[0][1].split("stdout:\n")[1].split("stderr")[0].split() == [*ids, ids[1]]


@pytest.mark.row("J31")
async def test_blocks_run_in_order_until_one_fails(open_agent: OpenAgent, script: Script) -> None:
    model = script([block("print('a')") + block("raise ValueError('no')") + block("print('c')"), "done"])
    bench = await open_agent(Coder)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", "done"),)
    text = told(model)
    assert text.startswith("Block 1 of 3:\n```tool_output\nexit code: 0\nstdout:\na\n")
    assert "ValueError: no" in text
    assert text.endswith("1 more blocks were not run: an earlier one failed.")


@pytest.mark.row("J31")
async def test_code_that_fails_is_fixed_twice_and_no_more(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: block("raise ValueError('again')"))
    bench = await open_agent(Coder)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", block("raise ValueError('again')")),)
    assert len(model.requests) == 4
    assert told(model).endswith("No more code is run for this request: answer without code.")
    assert "No more code" not in told(model, 2)


@pytest.mark.row("J31")
async def test_rounds_are_bounded(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: block("print(1)"))
    await (await open_agent(Coder, **{"skills.code.max-rounds": "2"})).turn("x")
    assert len(model.requests) == 3
    assert told(model).endswith("answer without code.")


@pytest.mark.row("J31")
async def test_time_and_output_have_limits(open_agent: OpenAgent, script: Script) -> None:
    model = script([block("while True: pass"), block("print('x' * 100_000)"), "done"])
    bench = await open_agent(Coder, **{"skills.code.timeout": "1 s", "skills.code.max-output": "500"})
    await bench.turn("x")
    assert "it ran longer than 1 s" in told(model, 1)
    assert 500 < len(told(model, 2)) < 800
    assert "the middle is omitted" in told(model, 2)


@pytest.mark.row("J31")
async def test_an_answer_with_a_type_may_come_after_code(open_agent: OpenAgent, script: Script) -> None:
    class Typed(Coder):
        output_type = dict[str, int]

    model = script([block("print(3)"), '```json\n{"n": 3}\n```'])
    outcome = await (await open_agent(Typed)).turn("x")
    assert outcome.outputs == (("", {"n": 3}),)
    assert len(model.requests) == 2


@pytest.mark.row("J31")
async def test_it_can_need_a_yes(open_agent: OpenAgent, script: Script) -> None:
    model = script([block("print(1)"), "done"])
    await (await open_agent(Coder, **{"skills.tools.approve": "run_code"})).turn("x")
    assert "run_code was not called: the call was not approved" in told(model)


@pytest.mark.row("J31")
async def test_without_a_sandbox_it_is_an_error_at_submission(open_agent: OpenAgent) -> None:
    with pytest.raises(PlanError, match=r"run_code: code runs in the sandbox, and skills\.shell\.enabled is false"):
        await open_agent(Coder, **{"skills.shell.enabled": "false"})


def test_only_the_user_of_a_repository_is_secret() -> None:
    url = f"git+https://me:{PLANTED}@host/ops.git@release#subdirectory=skills&commit={PIN[:40]}"
    plan = compile_plan(Silent, job_scopes=[SkillScope("job", urls=[url])])
    public, secrets = plan.seal()
    assert PLANTED not in json.dumps(public.to_json())
    assert str(public.scopes[0].urls[0]) == url.replace(f"me:{PLANTED}@", "")
    assert set(secret_values(secrets)) == {PLANTED, f"me:{PLANTED}"}
