"""Answers to agents over a list: their keys, their waits and mistakes in the arguments, without a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from flink_skills import (
    Agent,
    AgentContext,
    ApprovalRequest,
    ConfigError,
    PlanError,
    SkillOptions,
    WaitTimeout,
    agent_tool,
    later,
)
from tests.kit.local import local_environment
from tests.kit.waits import LOG, Code, answer, note, noted, run_code, wait_for


@pytest.fixture(autouse=True)
def nothing_is_logged() -> None:
    LOG.clear()


class Asking(Agent):
    """Asks a person about each event."""

    name = "asking"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.wait("approval")


class InTheInput(Asking):
    """Reads answers in its events."""

    answer_field = "wait"


class Conversation(Asking):
    """Has one conversation for each key."""

    session = "key"


def asking(events: Any = ({"k": "a"},), agent: Any = Asking, options: dict[Any, Any] | None = None) -> Any:
    return local_environment(options).from_list(list(events), "k").apply(agent)


def test_answers_return_the_output() -> None:
    output = asking()
    assert output.answers([{"k": "a", "wait_id": "approval", "answer": 1}], "k") is output
    assert output.to_list() == [1]


def test_functions_select_the_key_and_the_wait() -> None:
    answers = iter([("a", "approval", 1)])
    output = asking().answers(answers, lambda given: given[0], wait_id=lambda given: given[1])
    assert output.to_list() == [["a", "approval", 1]]


def test_a_wait_id_that_fails_is_an_error_record_of_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    answers = [{"k": "a"}, {"k": "a", "of": "approval", "answer": 1}]
    output = asking().answers(answers, "k", wait_id=lambda answer: answer["of"])
    assert output.to_list() == [1]
    assert [record["event"] for record in output.to_list("errors")] == [{"k": "a"}]
    assert "wait_id failed" in caplog.text


def test_an_answer_without_a_key_is_an_error_record() -> None:
    answers = [{"wait_id": "approval"}, {"k": "a", "wait_id": "approval", "answer": 1}]
    output = asking().answers(answers, "k")
    assert output.to_list() == [1]
    assert [record["event"] for record in output.to_list("errors")] == [{"wait_id": "approval"}]


def test_an_event_with_the_answer_field_is_an_answer() -> None:
    events = [{"k": "a"}, {"k": "a", "wait": "approval", "answer": 1}]
    assert asking(events, InTheInput).to_list() == [1]


def test_approvals_and_an_answer_field_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Approving(InTheInput):
        def approve(self, request: ApprovalRequest) -> Any:
            return later("Sure?")

    class Calling(InTheInput):
        @agent_tool
        @staticmethod
        def ask() -> type[Agent]:
            """Ask."""
            return Approver

    class Approver(Asking):
        name = "approver"

        def approve(self, request: ApprovalRequest) -> Any:
            return later("Sure?")

    asking(agent=InTheInput)
    assert "answer_field" not in caplog.text
    for agent, name in ((Approving, "Approving"), (Calling, "Approver")):
        caplog.clear()
        asking(agent=agent)
        assert f"agent asking: answer_field = 'wait' and approve() of {name}: the author of an event" in caplog.text


def test_answers_are_added_one_time_and_before_the_outputs_are_read() -> None:
    output = asking().answers([], "k")
    with pytest.raises(ConfigError, match="called before"):
        output.answers([], "k")
    read = asking()
    read.to_list()
    with pytest.raises(ConfigError, match="directly after apply"):
        read.answers([], "k")


@pytest.mark.parametrize("answers", ["text", {"k": "a"}, 7, None])
def test_answers_of_another_kind_are_rejected(answers: Any) -> None:
    with pytest.raises(ConfigError, match="give a list or an iterator of answers"):
        asking().answers(answers, "k")


@pytest.mark.parametrize("wait_id", ["", None, 7])
def test_a_wait_id_of_another_kind_is_rejected(wait_id: Any) -> None:
    with pytest.raises(ConfigError, match="give the name of a field, or a function"):
        asking().answers([], "k", wait_id=wait_id)


def test_questions_of_a_list_are_a_list() -> None:
    output = asking()
    with pytest.raises(ConfigError, match=r"use to_wait_list\(\)"):
        output.to_wait_stream()
    with pytest.raises(ConfigError, match=r"use to_wait_list\(\)"):
        output.to_wait_table()
    assert [record["status"] for record in output.to_wait_list()] == ["open", "input_ended"]


def test_turns_of_one_conversation_cannot_overtake_a_turn_that_waits() -> None:
    with pytest.raises(PlanError, match="set session = 'event' in the agent"):
        asking(agent=Conversation, options={SkillOptions.TURN_WHEN_WAITING: "next"})
    asking(agent=Asking, options={SkillOptions.TURN_WHEN_WAITING: "next"})


def test_an_answer_field_is_a_name() -> None:
    agent = InTheInput()
    agent.answer_field = None  # type: ignore[assignment]
    with pytest.raises(PlanError, match="give the name of a field"):
        asking(agent=agent)


def test_the_side_output_of_questions_is_reserved() -> None:
    class Emitting(Agent):
        name = "emitting"

        async def on_event(self, event: Any, ctx: AgentContext) -> Any:
            ctx.emit_to("waits", 1)

    assert "choose another tag" in asking(agent=Emitting()).to_list("errors")[0]["error"]


def test_two_equal_answers_with_a_name_answer_one_question() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        try:
            return [event["cents"], await ctx.wait("approval")]
        except WaitTimeout:
            return [event["cents"], "nobody decided"]

    events = [{"k": "a", "cents": 60}, {"k": "a", "cents": 9000}]
    output = run_code(code, [answer("approval", True), answer("approval", True)], events)
    assert output.to_list() == [[60, True], [9000, "nobody decided"]]
    (unused,) = output.to_list("errors")
    assert "The wait has an answer already." in unused["error"]


def test_an_answer_with_a_name_is_not_kept_for_a_later_question() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        for name in ("first", "second"):
            try:
                note(str(await noted(ctx.wait(name, timeout=30))))
            except WaitTimeout:
                return f"{name} has no answer"
        return "both have one"

    def answers() -> Iterable[Any]:
        wait_for("stopped")
        yield answer("second", "early")
        yield answer("first", "read")
        wait_for("read")

    output = run_code(code, answers())
    assert output.to_list() == ["second has no answer"]
    assert "No open wait of its key has this name" in output.to_list("errors")[0]["error"]


def test_an_answer_after_a_cancel_is_no_answer_to_the_next_question() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        if event["n"] == 1:
            task = asyncio.ensure_future(ctx.wait("approval"))
            await ctx.step("started", note, "started")
            await ctx.cancel_wait("approval")
            await asyncio.wait([task])
            return note("cancelled")
        try:
            return await ctx.wait("approval")
        except WaitTimeout:
            return "nobody decided"

    def events() -> Iterable[Any]:
        yield {"k": "a", "n": 1}
        wait_for("answered")
        yield {"k": "a", "n": 2}

    def answers() -> Iterable[Any]:
        wait_for("cancelled")
        yield answer("approval", 1)
        note("answered")

    output = local_environment().from_list(events(), "k").apply(Code(code)).answers(answers(), "k")
    assert output.to_list() == ["cancelled", "nobody decided"]
    assert len(output.to_list("errors")) == 1


def test_answers_that_the_code_does_not_read_are_error_records() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        tasks = [asyncio.ensure_future(noted(ctx.wait(name))) for name in ("first", "second", "third")]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        cancelled = rest.pop()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        return [task.result() for task in done]

    output = run_code(code, [answer(name, name) for name in ("first", "second", "third")])
    assert output.to_list() == [["first"]]
    unused = [record["error"] for record in output.to_list("errors")]
    assert sorted(text.rpartition("not used. ")[2] for text in unused) == [
        "The turn of the wait has ended.",
        "The wait was cancelled.",
    ]
    assert [of["status"] for of in output.to_wait_list()].count("cancelled") == 2


def test_an_answer_with_an_id_can_precede_its_question() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        await ctx.sleep(0.05)
        return await ctx.wait("approval")

    wait_id = run_code(code).to_wait_list()[0]["wait_id"]
    output = run_code(code, [answer(wait_id, 1), answer(wait_id, 2)])
    assert output.to_list() == [1]
    assert "The wait has an answer already." in output.to_list("errors")[0]["error"]


def test_a_key_has_a_limited_number_of_answers_that_precede_their_questions() -> None:
    ids = [f"{number:032x}" for number in range(3)]
    output = asking(options={SkillOptions.WAITS_MAX_EARLY: 2}).answers(
        [{"k": "a", "wait_id": wait_id, "answer": 1} for wait_id in ids], "k"
    )
    assert output.to_list() == []
    reasons = {
        record["event"]["wait_id"]: record["error"].rpartition("not used. ")[2]
        for record in output.to_list("errors")
        if record["output"] is None and "not used" in record["error"]
    }
    assert reasons == {
        ids[0]: "No turn has asked for it.",
        ids[1]: "No turn has asked for it.",
        ids[2]: "No turn has asked for it, and its key has skills.waits.max-early = 2 such answers already.",
    }


def test_a_wait_has_a_limited_number_of_further_answers() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        return await ctx.wait("approval", answer_type=int)

    env = local_environment({SkillOptions.WAITS_MAX_EARLY: 1})
    given = [answer("approval", value) for value in ("no", 1, 2)]
    output = env.from_list([{"k": "a"}], "k").apply(Code(code)).answers(given, "k")
    assert output.to_list() == [1]
    errors = [record["error"] for record in output.to_list("errors")]
    assert any("The wait has skills.waits.max-early = 1 further answers already." in text for text in errors)


def test_a_cancel_without_an_open_wait_says_so() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        await ctx.cancel_wait("aproval")
        return "done"

    output = run_code(code)
    assert output.to_list() == ["done"]
    (unused,) = output.to_list("errors")
    assert "the answer to wait 'aproval' is not used. No open wait of its key has this name" in unused["error"]


def test_an_answer_with_a_name_in_a_list_arrives_when_its_turn_has_slept() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        await ctx.sleep(0.05)
        return await asyncio.gather(ctx.wait("approval"), ctx.sleep(0.05))

    assert run_code(code, [answer("approval", 1)]).to_list() == [[1, None]]


def test_an_answer_does_not_end_a_sleep() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        await ctx.sleep(0.3)
        return "slept"

    events = run_code(code).to_event_list()
    wait_id = next(json.loads(of.detail)["wait_id"] for of in events if of.kind == "wait")
    output = run_code(code, [answer(wait_id, 1)])
    assert output.to_list() == ["slept"]
    assert "A sleep accepts no answer." in output.to_list("errors")[0]["error"]
