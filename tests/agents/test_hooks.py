"""Hooks of an agent: decisions about requests, tool calls and loaded skills, and their place in the journal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flink_skills import Agent, AgentContext, Refusal, ToolContext, ToolInvocation, ToolResult, tool
from flink_skills.agents import Session, TurnStatus, decode
from flink_skills.errors import ModelError, PlanError
from flink_skills.models import ModelRequest, ModelResponse, ToolMessage, UserMessage
from flink_skills.testing import call, calls
from flink_skills.tools.calling import ApprovalRequest
from tests.kit.agents import OpenAgent
from tests.kit.models import Script


class Desk(Agent):
    """Has a tool whose result has personal data, and one that changes the state."""

    model = "scripted:m"
    ran: ClassVar[list[Any]] = []

    @tool
    async def find(self, name: str) -> str:
        """Find a customer."""
        self.ran.append(name)
        return f"{name}, mail {name}@example.com"

    @tool
    async def note(self, text: str, context: ToolContext) -> str:
        """Store a note."""
        context.state["note"] = text
        return "noted"

    @tool
    async def fail(self, context: ToolContext) -> str:
        """Change the state, and fail."""
        context.state["failed"] = True
        raise ValueError("no")


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    Desk.ran.clear()


# before_model


async def test_a_request_can_be_changed(open_agent: OpenAgent, script: Script) -> None:
    class Cold(Desk):
        async def before_model(self, request: ModelRequest, ctx: AgentContext) -> Any:
            shorter = [replace(of, content=of.content[:5]) for of in request.messages if isinstance(of, UserMessage)]
            return replace(request, settings={**request.settings, "temperature": 0.0}, messages=shorter)

    model = script(["done"])
    bench = await open_agent(Cold)
    outcome = await bench.turn("a long event")
    assert outcome.outputs == (("", "done"),)
    assert model.requests[0].settings == {"temperature": 0.0}
    assert [of.content for of in model.requests[0].messages] == ["a lon"]


async def test_a_change_of_the_request_in_place_concerns_this_request_alone(
    open_agent: OpenAgent, script: Script
) -> None:
    class InPlace(Desk):
        async def before_model(self, request: ModelRequest, ctx: AgentContext) -> Any:
            assert "seed" not in request.settings
            request.settings["seed"] = 1  # type: ignore[index]
            request.messages.clear()  # type: ignore[attr-defined]

    model = script(["one", "two"])
    bench = await open_agent(InPlace)
    await bench.turn("x")
    await bench.turn("x")
    assert [(request.settings, list(request.messages)) for request in model.requests] == [({"seed": 1}, [])] * 2


@pytest.mark.parametrize("answer", ["no model", ModelResponse("no model")])
async def test_a_hook_answers_instead_of_the_model(open_agent: OpenAgent, script: Script, answer: Any) -> None:
    class Known(Desk):
        async def before_model(self, request: ModelRequest, ctx: AgentContext) -> Any:
            return answer

    model = script([])
    bench = await open_agent(Known)
    assert (await bench.turn("x")).outputs == (("", "no model"),)
    assert model.requests == []


async def test_a_refused_request_fails_the_turn_and_is_not_decided_again(open_agent: OpenAgent, script: Script) -> None:
    decided = []

    class Budget(Desk):
        async def before_model(self, request: ModelRequest, ctx: AgentContext) -> Any:
            decided.append(ctx.key)
            return Refusal("the budget of this tenant is spent")

    bench = await open_agent(Budget)
    outcome = await bench.turn("x")
    assert outcome.status == TurnStatus.FAILED
    assert outcome.message == (
        "before_model refused a request to chat model 'model': the budget of this tenant is spent"
    )
    again = await bench.turn("x", journal=bench.journal, crashes=1)
    assert again.message == outcome.message
    assert decided == ["k"]


async def test_a_decision_is_in_the_journal_and_a_replay_does_not_call_the_hook(
    open_agent: OpenAgent, script: Script
) -> None:
    numbers = itertools.count(1)

    class Random(Desk):
        """Decides otherwise each time."""

        async def before_model(self, request: ModelRequest, ctx: AgentContext) -> Any:
            number = next(numbers)
            ctx.state["requests"] = ctx.state.get("requests", 0) + 1
            ctx.state[f"number {ctx.state['requests']}"] = number
            return replace(request, settings={"seed": number})

        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            ctx.state["calls"] = ctx.state.get("calls", 0) + 1
            return f"{call.name} {next(numbers)}"

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return [await ctx.chat("go"), dict(ctx.state)]

    def answers(request: ModelRequest) -> Any:
        results = [of for of in request.messages if isinstance(of, ToolMessage)]
        return "done" if len(results) == 2 else calls(call("find", name="ann"), prefix=f"c{len(results)}")

    script(answers)
    bench = await open_agent(Random)
    whole = await bench.turn("x")
    state = whole.session.state
    assert state == {"requests": 3, "calls": 2, "number 1": 1, "number 2": 3, "number 3": 5}
    journal = list(bench.journal)
    assert len(journal) == 5
    replayed = await bench.turn("x", journal=journal, crashes=1)
    assert replayed.outputs == whole.outputs
    assert next(numbers) == 6
    for done in range(len(journal)):
        # The worker was killed after each of the steps: only the decisions that were not stored are made again.
        again = await bench.turn("x", journal=journal[:done], crashes=1)
        assert bench.journal[:done] == journal[:done]
        assert again.session.state["requests"] == 3
        assert again.session.state["calls"] == 2


async def test_settings_of_a_hook_apply_to_a_fallback_too(open_agent: OpenAgent, script: Script) -> None:
    from flink_skills import ResourceDescriptor, chat_model_setup

    class Two(Agent):
        @chat_model_setup
        @staticmethod
        def first() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", model="first", temperature=1.0, fallback=["second"])

        @chat_model_setup
        @staticmethod
        def second() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="scripted.setup", model="second", temperature=0.5, top_p=0.9)

        async def before_model(self, request: ModelRequest, ctx: AgentContext) -> Any:
            return replace(request, settings={**request.settings, "seed": 3})

    def answers(request: ModelRequest) -> Any:
        if request.settings["temperature"] == 1.0:
            raise ModelError("down", retryable=True)
        return "second"

    model = script(answers)
    bench = await open_agent(Two, **{"skills.model.max-retries": 0})
    assert (await bench.turn("x")).outputs == (("", "second"),)
    assert model.requests[-1].settings == {"temperature": 0.5, "top_p": 0.9, "seed": 3}


# around_tool


class Masked(Desk):
    async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
        result = await call.run()
        return replace(result, content=result.content.replace("@example.com", "@…"), value=None)


async def test_a_result_can_be_masked_for_the_model_the_journal_and_the_agents_code(
    open_agent: OpenAgent, script: Script
) -> None:
    class Both(Masked):
        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return [await ctx.chat("go"), await ctx.call_tool("find", name="bob")]

    model = script([calls(call("find", name="ann")), "done"])
    bench = await open_agent(Both)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", ["done", "bob, mail bob@…"]),)
    assert model.requests[1].messages[-1].content == "ann, mail ann@…"
    assert not any(b"example.com" in entry for entry in bench.journal)


async def test_arguments_can_be_changed_before_the_approval(open_agent: OpenAgent, script: Script) -> None:
    approved = []

    class Changed(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            return await call.run({**call.arguments, "name": "bob"})

        def approve(self, request: ApprovalRequest) -> bool:
            approved.append(dict(request.arguments))
            return True

    model = script([calls(call("find", name="ann"), call("find", wrong=1)), "done"])
    bench = await open_agent(Changed, **{"skills.tools.approve": ["find"]})
    await bench.turn("x")
    assert approved == [{"name": "bob"}]
    # No hook repairs a call that does not fit.
    assert [message.is_error for message in model.requests[1].messages[-2:]] == [False, True]  # type: ignore[union-attr]


async def test_a_refused_call_is_an_error_for_the_model_and_the_tool_does_not_run(
    open_agent: OpenAgent, script: Script
) -> None:
    class Careful(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            ctx.state["refused"] = ctx.state.get("refused", 0) + 1
            return Refusal("ann is not a customer of this desk")

    model = script([calls(call("find", name="ann")), "done"])
    bench = await open_agent(Careful)
    outcome = await bench.turn("x")
    result = model.requests[1].messages[-1]
    assert (result.is_error, result.content) == (True, "find was not called: ann is not a customer of this desk")
    assert Desk.ran == []
    assert outcome.session.state == {"refused": 1}


async def test_none_runs_the_call_and_calls_that_run_nothing_call_no_hook(
    open_agent: OpenAgent, script: Script
) -> None:
    seen = []

    class Watching(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            seen.append((call.name, call.arguments, ctx.call_id == ctx.call_id))

    model = script([calls(call("find", name="ann"), call("no_such_tool")), "done"])
    bench = await open_agent(Watching)
    await bench.turn("x")
    assert seen == [("find", {"name": "ann"}, True)]
    assert [of.is_error for of in model.requests[1].messages[-2:]] == [False, True]


async def test_hook_and_tool_change_one_state_in_the_order_of_the_call(open_agent: OpenAgent, script: Script) -> None:
    seen = []

    class Noting(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            ctx.state["note"] = "before"
            ctx.state["hook"] = 1
            result = await call.run()
            seen.append(dict(ctx.state))
            ctx.state["after"] = ctx.state["note"]
            return replace(result, content="changed")

    script([calls(call("note", text="tool")), "done", calls(call("fail")), "done"])
    bench = await open_agent(Noting)
    outcome = await bench.turn("x")
    assert outcome.message == ""
    assert seen == [{"note": "tool", "hook": 1}]
    assert outcome.session.state == {"note": "tool", "hook": 1, "after": "tool"}
    replayed = await bench.turn("x", journal=bench.journal, crashes=1)
    assert replayed.session.state == outcome.session.state
    failed = await bench.turn("x")
    # Changes of the failed tool are dropped, those of the hook are not.
    assert failed.session.state == {"note": "before", "hook": 1, "after": "before"}


async def test_a_replaced_result_keeps_the_effects_of_the_call(
    open_agent: OpenAgent, script: Script, skill_folder: Path
) -> None:
    class Short(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            await call.run()
            return "loaded"

    model = script([calls(call("load_skill", name="shout")), "done"])
    bench = await open_agent(Short, skill_folder)
    outcome = await bench.turn("x")
    assert model.requests[1].messages[-1].content == "loaded"
    record = decode(bench.journal[1])["r"]
    assert [effect["op"] for effect in record["s"]] == ["load"]
    assert outcome.status == TurnStatus.DONE


# evict


async def test_the_agent_chooses_the_skill_to_unload_and_a_replay_unloads_the_same(
    open_agent: OpenAgent, script: Script, skill_folder: Path
) -> None:
    asked: list[Sequence[str]] = []

    class Keeps(Agent):
        model = "scripted:m"

        async def evict(self, loaded: Sequence[str], ctx: AgentContext) -> Any:
            asked.append(loaded)
            return [name for name in loaded if name != "shout"] if len(asked) == 1 else "shout"

    def answers(request: ModelRequest) -> Any:
        done = sum(isinstance(of, ToolMessage) for of in request.messages)
        names = ["shout", "count"]
        return calls(call("load_skill", name=names[done]), prefix=f"c{done}") if done < 2 else "done"

    script(answers)
    bench = await open_agent(Keeps, skill_folder, **{"skills.max-loaded": 1})
    Keeps.session = "key"
    outcome = await bench.turn("x")
    assert asked == [["shout", "count"]]
    kept = outcome.session.conversation()
    journal = list(bench.journal)
    assert outcome.status == TurnStatus.DONE
    again = await bench.turn("x", journal=journal, crashes=1)
    assert asked == [["shout", "count"]]
    assert again.session.conversation() == kept


# Mistakes


class Wrong(Desk):
    hook: ClassVar[str] = ""
    value: ClassVar[Any] = None

    def _value(self, hook: str) -> Any:
        if hook != type(self).hook:
            return None
        if isinstance(type(self).value, Exception):
            raise type(self).value
        return type(self).value

    async def before_model(self, request: ModelRequest, ctx: AgentContext) -> Any:
        return self._value("before_model")

    async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
        return self._value("around_tool")

    async def evict(self, loaded: Sequence[str], ctx: AgentContext) -> Any:
        return self._value("evict")


@pytest.mark.parametrize(
    ("hook", "value", "said"),
    [
        ("before_model", 7, "before_model returned a int: return None, a ModelRequest, a ModelResponse"),
        ("before_model", ModelRequest("", ["text"]), "return a request whose messages are messages"),  # type: ignore[list-item]
        ("before_model", ValueError("no service"), "before_model failed: ValueError: no service"),
        ("around_tool", 7, "around_tool returned a int: return None, a ToolResult, a string or a Refusal"),
        ("around_tool", KeyError("tenant"), "around_tool failed: KeyError: 'tenant'"),
        ("evict", ["ants"], "evict returned 'ants', which is not a loaded skill"),
        ("evict", 7, "evict returned 7, which is not a loaded skill"),
        ("evict", OSError("gone"), "evict failed: OSError: gone"),
    ],
)
async def test_a_wrong_or_failing_hook_is_a_failed_turn(
    open_agent: OpenAgent, script: Script, skill_folder: Path, hook: str, value: Any, said: str
) -> None:
    Wrong.hook, Wrong.value = hook, value

    def answers(request: ModelRequest) -> Any:
        done = sum(isinstance(of, ToolMessage) for of in request.messages)
        names = ["shout", "count"]
        return calls(call("load_skill", name=names[done]), prefix=f"c{done}") if done < 2 else "done"

    script(answers)
    bench = await open_agent(Wrong, skill_folder, **{"skills.max-loaded": 1})
    outcome = await bench.turn("x")
    assert outcome.status == TurnStatus.FAILED
    assert said in outcome.message
    Wrong.hook = ""
    assert (await bench.turn("y")).status == TurnStatus.DONE


@pytest.mark.parametrize("method", ["chat", "call_tool", "step", "emit", "emit_to"])
async def test_a_hook_makes_no_calls_of_the_agents_code(open_agent: OpenAgent, script: Script, method: str) -> None:
    class Calling(Desk):
        async def before_model(self, request: ModelRequest, ctx: AgentContext) -> Any:
            arguments = {"chat": ("x",), "call_tool": ("find",), "step": ("s", len, []), "emit": (1,)}
            getattr(ctx, method)(*arguments.get(method, ("t", 1)))

    bench = await open_agent(Calling)
    outcome = await bench.turn("x")
    assert outcome.status == TurnStatus.FAILED
    assert f"ctx.{method} is not available in before_model, because a replay does not call the hook" in outcome.message


async def test_a_call_runs_once(open_agent: OpenAgent, script: Script) -> None:
    class Twice(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            await call.run()
            return await call.run()

    script([calls(call("find", name="ann")), "done"])
    bench = await open_agent(Twice)
    outcome = await bench.turn("x")
    assert "around_tool ran the call of 'find' more than once" in outcome.message
    assert Desk.ran == ["ann"]


def test_hooks_with_other_arguments_are_errors_at_submit() -> None:
    from flink_skills.agents import compile_plan

    class Short(Agent):
        model = "offline"

        async def around_tool(self, call: Any) -> Any:  # type: ignore[override]
            return None

    with pytest.raises(PlanError, match=r"write it as around_tool\(self, call, ctx\)"):
        compile_plan(Short)

    class Named(Agent):
        model = "offline"

        @tool
        def evict(self, name: str) -> str:  # type: ignore[override]
            """Evict a tenant."""
            return name

    with pytest.raises(PlanError, match="evict is a method with @tool, and the name of a method that the runtime"):
        compile_plan(Named)


async def test_an_agent_that_is_a_tool_has_its_own_hooks(open_agent: OpenAgent, script: Script) -> None:
    from flink_skills import agent_tool

    class Child(Masked):
        """Finds customers."""

        model = "scripted:child"

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            return await ctx.call_tool("find", name="ann")

    class Parent(Agent):
        model = "scripted:m"

        @agent_tool
        @staticmethod
        def child() -> type[Agent]:
            return Child

    model = script([calls(call("child", request="ann")), "done"])
    bench = await open_agent(Parent)
    outcome = await bench.turn("x", session=Session())
    assert outcome.outputs == (("", "done"),)
    assert model.requests[1].messages[-1].content == "ann, mail ann@…"


def test_a_result_of_the_hook_is_a_tool_result() -> None:
    assert Refusal("no").reason == "no"
    assert ToolResult("x").effects == ()
