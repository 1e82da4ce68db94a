"""Answers to agents over a list: their keys, their waits and mistakes in the arguments, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, ConfigError, PlanError, SkillOptions


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
    env = AgentsExecutionEnvironment.get_execution_environment()
    for option, value in (options or {}).items():
        env.get_config().set(option, value)
    return env.from_list(list(events), "k").apply(agent)


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
