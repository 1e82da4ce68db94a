"""Code of answers is run in the sandbox where the job says so, as durable steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, PlanError, ResourceDescriptor, chat_model_setup, load_agent_yaml
from flink_skills.agents import decode
from flink_skills.models import UserMessage
from tests.kit.agents import OpenAgent
from tests.kit.models import Script

pytestmark = pytest.mark.row("J31")


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


async def test_an_option_and_yaml_switch_it_on(open_agent: OpenAgent, script: Script, tmp_path: Path) -> None:
    class Plain(Agent):
        model = "scripted:m"

    (tmp_path / "coder.yaml").write_text("model: scripted:m\nrun_code: true\n")
    for agent, options in ((Plain, {"skills.code.enabled": "true"}), (load_agent_yaml(tmp_path / "coder.yaml"), {})):
        model = script([block("print(1)"), "done"])
        assert (await (await open_agent(agent, **options)).turn("x")).outputs == (("", "done"),)
        assert "stdout:\n1" in told(model)


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


async def test_blocks_run_in_order_until_one_fails(open_agent: OpenAgent, script: Script) -> None:
    model = script([block("print('a')") + block("raise ValueError('no')") + block("print('c')"), "done"])
    bench = await open_agent(Coder)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", "done"),)
    text = told(model)
    assert text.startswith("Block 1 of 3:\n```tool_output\nexit code: 0\nstdout:\na\n")
    assert "ValueError: no" in text
    assert text.endswith("1 more blocks were not run: an earlier one failed.")


async def test_code_that_fails_is_fixed_twice_and_no_more(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: block("raise ValueError('again')"))
    bench = await open_agent(Coder)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", block("raise ValueError('again')")),)
    assert len(model.requests) == 4
    assert told(model).endswith("No more code is run for this request: answer without code.")
    assert "No more code" not in told(model, 2)


async def test_rounds_are_bounded(open_agent: OpenAgent, script: Script) -> None:
    model = script(lambda request: block("print(1)"))
    await (await open_agent(Coder, **{"skills.code.max-rounds": "2"})).turn("x")
    assert len(model.requests) == 3
    assert told(model).endswith("answer without code.")


async def test_time_and_output_have_limits(open_agent: OpenAgent, script: Script) -> None:
    model = script([block("while True: pass"), block("print('x' * 100_000)"), "done"])
    bench = await open_agent(Coder, **{"skills.code.timeout": "1 s", "skills.code.max-output": "500"})
    await bench.turn("x")
    assert "it ran longer than 1 s" in told(model, 1)
    assert 500 < len(told(model, 2)) < 800
    assert "the middle is omitted" in told(model, 2)


async def test_an_answer_with_a_type_may_come_after_code(open_agent: OpenAgent, script: Script) -> None:
    class Typed(Coder):
        output_type = dict[str, int]

    model = script([block("print(3)"), '```json\n{"n": 3}\n```'])
    outcome = await (await open_agent(Typed)).turn("x")
    assert outcome.outputs == (("", {"n": 3}),)
    assert len(model.requests) == 2


async def test_it_can_need_a_yes(open_agent: OpenAgent, script: Script) -> None:
    model = script([block("print(1)"), "done"])
    await (await open_agent(Coder, **{"skills.tools.approve": "run_code"})).turn("x")
    assert "run_code was not called: the call was not approved" in told(model)


async def test_without_a_sandbox_it_is_an_error_at_submission(open_agent: OpenAgent) -> None:
    with pytest.raises(PlanError, match=r"run_code: code runs in the sandbox, and skills\.shell\.enabled is false"):
        await open_agent(Coder, **{"skills.shell.enabled": "false"})
