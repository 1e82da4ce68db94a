"""Waits of a turn: answers, timeouts and sleeps, and a turn that stops, resumes and replays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from flink_skills import AgentContext, SkillOptions, WaitCancelled, WaitTimeout
from tests.kit.flink_rest import wait_until
from tests.kit.local import local_environment
from tests.kit.waits import LOG, Code, answer, note, noted, run_code, wait_for


@pytest.fixture(autouse=True)
def nothing_is_logged() -> None:
    LOG.clear()


class Decision(BaseModel):
    """An answer."""

    approved: bool


def test_the_answer_is_validated_and_no_finished_step_runs_again() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        note("start")
        await ctx.step("before", note, "step")
        decision = await ctx.wait("approval", {"cents": 5}, question="Yes?", answer_type=Decision)
        return [type(decision).__name__, decision.approved]

    output = run_code(code, [{"k": "a", "wait_id": "approval", "approved": True, "by": "ann"}])
    assert output.to_list() == [["Decision", True]]
    assert LOG.count("step") == 1
    asked, ended = output.to_wait_list()
    assert (asked["status"], asked["question"], asked["payload"]) == ("open", "Yes?", {"cents": 5})
    assert (ended["status"], ended["by"], ended["wait_id"]) == ("answered", "ann", asked["wait_id"])


def test_the_id_of_a_wait_is_an_address_as_well() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        return await ctx.wait("approval")

    wait_id = run_code(code).to_wait_list()[0]["wait_id"]
    assert run_code(code, [answer(wait_id, 7)]).to_list() == [7]


def test_a_wait_without_an_answer_times_out() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        try:
            await ctx.wait("approval", timeout=0.05)
        except WaitTimeout as error:
            return note(str(error))

    output = run_code(code, _late())
    assert output.to_list() == ["wait 'approval' had no answer in time"]
    assert output.to_wait_list()[-1]["status"] == "timed_out"


def _late() -> Iterable[Any]:
    wait_for("wait 'approval' had no answer in time")
    yield answer("approval", "late")


def test_an_answer_after_the_timeout_is_an_error_record() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        try:
            await ctx.wait("approval", timeout=0.05)
        except WaitTimeout as error:
            return note(str(error))

    output = run_code(code, _late())
    assert "the answer to wait 'approval' is not used" in output.to_list("errors")[0]["error"]


def test_the_time_of_a_turn_does_not_run_while_it_sleeps() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        await ctx.sleep(0.6)
        await ctx.sleep_until(int(time.time() * 1000) + 600)
        return "awake"

    assert run_code(code, options={SkillOptions.TURN_TIMEOUT: 0.5}).to_list() == ["awake"]


def test_a_turn_waits_only_if_no_call_runs() -> None:
    async def slow() -> str:
        await asyncio.sleep(0.2)
        return note("slow")

    async def code(event: Any, ctx: AgentContext) -> Any:
        note("start")
        return await asyncio.gather(noted(ctx.wait("first")), ctx.step("slow", slow))

    assert run_code(code, _soon("first", 1)).to_list() == [[1, "slow"]]
    assert LOG == ["start", "slow", "stopped", "start"]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_the_first_of_two_answers_is_the_first_in_a_replay_as_well(order: tuple[str, str]) -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        waits = {name: asyncio.ensure_future(noted(ctx.wait(name))) for name in ("a", "b")}
        done, _ = await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
        first = [name for name, task in waits.items() if task in done]
        note(f"first {first}")
        await ctx.step(f"after {first}", note, f"step after {first}")
        await asyncio.wait(waits.values())
        # The turn stops once more, so everything is replayed.
        await ctx.sleep(0.05)
        return first

    def answers() -> Iterable[Any]:
        wait_for("stopped")
        yield from (answer(name, name) for name in order)

    output = run_code(code, answers())
    assert output.to_list() == [[order[0]]]
    assert {*LOG} - {"stopped"} == {f"first {[order[0]]}", f"step after {[order[0]]}"}
    assert LOG.count(f"first {[order[0]]}") > 1
    assert LOG.count(f"step after {[order[0]]}") == 1


def test_an_answer_of_the_wrong_type_is_an_error_record_and_the_wait_continues() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        return await ctx.wait("number", answer_type=int)

    output = run_code(code, [answer("number", "many"), answer("number", 3)])
    assert output.to_list() == [3]
    assert "an answer to wait 'number'" in output.to_list("errors")[0]["error"]


@pytest.mark.parametrize(
    ("answer_type", "text", "found"),
    [(Decision, '{"approved": true}', Decision(approved=True)), (list[int], "[1]", [1]), (str, "[1]", "[1]")],
)
def test_a_text_column_has_the_answer_as_json(answer_type: Any, text: str, found: Any) -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        return await ctx.wait("number", answer_type=answer_type) == found

    assert run_code(code, [answer("number", text)]).to_list() == [True]


def test_events_have_the_end_of_a_wait_that_is_open_at_the_end_of_its_turn() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        if event["n"] == 2:
            return note("second")
        task = asyncio.ensure_future(ctx.wait("number"))
        await ctx.step("started", note, "started")
        return task.done()

    def nothing() -> Iterable[Any]:
        # The turn of the first event has ended before its wait ends with the input.
        wait_for("second")
        yield from ()

    output = run_code(code, nothing(), [{"k": "a", "n": 1}, {"k": "a", "n": 2}])
    assert output.to_list() == [False, "second"]
    assert [event["action"] for event in output.to_event_list() if event["kind"] == "wait"] == ["open", "cancelled"]


def test_a_second_answer_and_one_that_nobody_asked_for_are_error_records() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        return await ctx.wait("number")

    output = run_code(
        code, [answer("number", 1), answer("number", 2), answer("other", 3), answer("number", 4, key="z")]
    )
    assert output.to_list() == [1]
    assert len(output.to_list("errors")) == 3


def test_a_cancelled_wait_raises_in_the_code_that_waits() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        async def wait() -> str:
            try:
                return str(await ctx.wait("approval"))
            except WaitCancelled as error:
                return note(str(error))

        async def cancel() -> None:
            await ctx.sleep(0.05)
            await ctx.cancel_wait("approval")

        said, _ = await asyncio.gather(wait(), cancel())
        return said

    def nothing() -> Iterable[Any]:
        wait_for("wait 'approval' was cancelled")
        yield from ()

    output = run_code(code, nothing())
    assert output.to_list() == ["wait 'approval' was cancelled"]
    assert output.to_wait_list()[-1]["status"] == "cancelled"


def test_a_record_of_the_answers_can_cancel_a_wait() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        try:
            await ctx.wait("approval")
        except WaitCancelled as error:
            return str(error)

    assert run_code(code, [{"k": "a", "wait_id": "approval", "cancel": True, "by": "ann"}]).to_list() == [
        "wait 'approval' was cancelled by ann"
    ]


def test_waits_that_are_open_at_the_end_of_the_turn_are_cancelled() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        task = asyncio.ensure_future(ctx.wait("approval"))
        await ctx.step("first", asyncio.sleep, 0)
        await ctx.step("second", asyncio.sleep, 0)
        del task
        return "done"

    output = run_code(code)
    assert output.to_list() == ["done"]
    assert [record["status"] for record in output.to_wait_list()] == ["open", "cancelled"]


@pytest.mark.parametrize("swallowed", ["ignored", "other error"])
def test_code_that_does_not_accept_its_cancellation_resumes_as_well(swallowed: str) -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        note("start")
        try:
            return await noted(ctx.wait("approval"))
        except asyncio.CancelledError:
            if swallowed == "other error":
                raise RuntimeError("stopped") from None
            return "wrong"

    output = run_code(code, _soon("approval", 1))
    assert output.to_list() == [1]
    assert LOG == ["start", "stopped", "start"]
    assert output.to_list("errors") == []


def _soon(wait: str, value: Any) -> Iterable[Any]:
    wait_for("stopped")
    yield answer(wait, value)


def test_the_next_events_of_a_key_wait_behind_a_turn_that_waits() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        note(f"{event['n']}")
        if event["n"] == 1:
            await noted(ctx.wait("approval"))
        ctx.state["seen"] = [*ctx.state.get("seen", []), event["n"]]
        return ctx.state["seen"]

    events = [{"k": "a", "n": 1}, {"k": "a", "n": 2}]
    assert run_code(code, _soon("approval", 1), events).to_list() == [[1], [1, 2]]
    assert LOG == ["1", "stopped", "1", "2"]


def test_the_next_events_can_overtake_and_a_waiting_turn_changes_only_its_own_fields() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        if event["n"] == 1:
            note(f"sees {ctx.state.get('other')}")
            await noted(ctx.wait("approval"))
            ctx.state["mine"] = 1
            return note("waited")
        ctx.state["other"] = event["n"]
        note(f"overtook {event['n']}")
        return dict(ctx.state)

    def approval() -> Iterable[Any]:
        wait_for("overtook 2")
        yield from _soon("approval", 1)

    events = [{"k": "a", "n": n} for n in (1, 2)]
    options = {SkillOptions.TURN_WHEN_WAITING: "next"}

    def more() -> Iterable[Any]:
        yield from events
        wait_for("waited")
        yield {"k": "a", "n": 3}

    output = local_environment(options).from_list(more(), "k").apply(Code(code)).answers(approval(), "k")
    assert output.to_list() == ["waited", {"other": 2}, {"other": 3, "mine": 1}]
    # A turn that resumes starts with the state of its start.
    assert [text for text in LOG if text.startswith("sees")] == ["sees None", "sees None"]


class Choosy(BaseModel):
    """An answer with a check that fails."""

    size: str

    @field_validator("size")
    @classmethod
    def known(cls, size: str) -> str:
        return {"s": "small"}[size]


def test_a_check_of_the_answer_that_fails_is_an_error_record_and_the_wait_continues() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        return (await ctx.wait("size", answer_type=Choosy)).size

    output = run_code(code, [answer("size", {"size": "xxl"}), answer("size", {"size": "s"})])
    assert output.to_list() == ["small"]
    assert "is not usable: KeyError: 'xxl'" in output.to_list("errors")[0]["error"]


@pytest.mark.parametrize("answer_type", ["Unknown", list["Unknown"]])  # type: ignore[name-defined]  # noqa: F821
def test_an_answer_type_that_is_not_defined_fails_the_turn(answer_type: Any) -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        return await ctx.wait("size", answer_type=answer_type)

    output = run_code(code, [answer("size", 1)])
    assert "ctx.wait('size'): pydantic cannot validate answer_type" in output.to_list("errors")[0]["error"]


def test_a_key_does_not_expire_while_one_of_its_turns_waits() -> None:
    stopped: list[float] = []

    async def code(event: Any, ctx: AgentContext) -> Any:
        if event["n"] == 1:
            await noted(ctx.wait("approval"))
        note(f"done {event['n']}")
        return ctx.turn

    def events() -> Iterable[Any]:
        yield {"k": "a", "n": 1}
        wait_for("stopped")
        stopped.append(time.monotonic())
        wait_until(lambda: time.monotonic() > stopped[0] + 0.5, 30, "a time longer than the time to live")
        yield {"k": "a", "n": 2}

    def answers() -> Iterable[Any]:
        wait_for("done 2")
        yield answer("approval", 1)

    env = local_environment({"skills.session.ttl": "100 ms", SkillOptions.TURN_WHEN_WAITING: "next"})
    assert env.from_list(events(), "k").apply(Code(code)).answers(answers(), "k").to_list() == [1, 2]


def test_an_answer_precedes_the_end_of_the_input() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        waits = [asyncio.ensure_future(ctx.wait(name)) for name in ("one", "two")]
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return [wait.result() for wait in done]

    assert run_code(code, [answer("two", 2)]).to_list() == [[2]]


def test_steps_count_over_all_attempts() -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        for number in range(4):
            await ctx.step("step", note, str(number))
            await ctx.sleep(0.01)

    output = run_code(code, options={SkillOptions.TURN_MAX_STEPS: 5})
    assert "skills.turn.max-steps = 5" in output.to_list("errors")[0]["error"]


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        (lambda ctx: ctx.wait("no spaces"), "a name has up to 100 letters"),
        (lambda ctx: ctx.wait("0123456789abcdef" * 2), "the name has the form of a wait's id"),
        (lambda ctx: ctx.wait("x", timeout="soon"), "give seconds, a timedelta, or text such as '2 d'"),
        (lambda ctx: ctx.wait("x", timeout=-1), "give a time from 0 seconds to 1,000 years"),
        (lambda ctx: ctx.wait("x", {"a": float("nan")}), "the payload is not JSON-like"),
        (lambda ctx: ctx.wait("x", object()), "the payload is not JSON-like (a value is of type object)"),
        (lambda ctx: ctx.wait("x", answer_type=object()), "cannot validate answer_type"),
        (lambda ctx: ctx.sleep(1, event_time=True), "needs events with timestamps"),
        (lambda ctx: ctx.wait("x", timeout="400000 d"), "give a time from 0 seconds to 1,000 years"),
        (lambda ctx: ctx.sleep(1e300), "give a time from 0 seconds to 1,000 years"),
        (lambda ctx: ctx.sleep_until(3e14), "until the year 9999"),
        (lambda ctx: ctx.sleep_until(float("nan")), "until the year 9999"),
        (lambda ctx: ctx.sleep_until("tomorrow"), "give a datetime, or milliseconds since 1970"),
    ],
)
def test_an_argument_that_cannot_be_used_fails_the_turn_with_the_fix(wait: Any, said: str) -> None:
    async def code(event: Any, ctx: AgentContext) -> Any:
        return await wait(ctx)

    assert said in run_code(code).to_list("errors")[0]["error"]
