"""Answers of people to questions about calls: decisions, changed arguments, and the note to the model."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from flink_skills import Agent, AgentContext, agent_tool, tool
from tests.agents.test_canonical_arguments import RAN, Asking, nothing_is_seen, run

__all__ = ["nothing_is_seen"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"approved": True, "arguments": {"order": "A-1", "cents": "abc"}}, "cents: Input should be a valid integer"),
        ({"approved": True, "arguments": {"cents": 50}}, "order"),
        ({"approved": True, "arguments": {}}, "order"),
        ({"approved": True, "arguments": "{}"}, "order"),
        ({"approved": True, "arguments": {"order": "A-1", "cents": 5, "Cents": 6}}, "Cents"),
        ({"approved": True, "arguments": "[1]"}, "arguments"),
        ({"approved": True, "arguments": "{"}, "arguments"),
        ({"approved": True, "arguments": []}, "arguments"),
        ({"approved": "on"}, "approved"),
        ({"approved": "yes"}, "approved"),
        ({"approved": "True"}, "approved"),
        ({"approved": "1"}, "approved"),
        ({"approved": 1}, "approved"),
        ({"approved": 1.0}, "approved"),
        ({"approved": None}, "approved"),
        ({"approved": []}, "approved"),
        ({"answer": "on"}, "approved"),
        ({"answer": '{"approved": true, "argumnts": {}}'}, "did you mean 'arguments'"),
        ({"answer": '{"approved": true, "arguments": {"cents": 1}}'}, "order"),
        ({"answer": 1}, "approved"),
        ({"aproved": True}, "did you mean 'approved'"),
        ({"Approved": True}, "did you mean 'approved'"),
        ({"approved": True, "Approved": False}, "did you mean 'approved'"),
        ({"approved": True, "argumnts": {"order": "A-1", "cents": 50}}, "did you mean 'arguments'"),
        ({"approved": True, "args": {"order": "A-1", "cents": 50}}, "did you mean 'arguments'"),
        ({"approved": True, "reason": 7}, "reason"),
        ({"approved": True, "cancel": "on"}, "cancel"),
        ({"answer": True, "cancel": "on"}, "cancel"),
        ({"answer": {"approved": True, "cancel": True}}, "set cancel next to the field 'answer'"),
        ({"answer": '{"approved": true, "cancel": "TRUE"}'}, "set cancel next to the field 'answer'"),
        ({"answer": {"approved": True}, "approved": False}, "the fields 'answer' and 'approved'"),
        ({"answer": '{"approved": false, "approved": true}'}, "'approved' occurs twice"),
        ({"approved": True, "arguments": '{"order": "A", "cents": 7, "cents": 9}'}, "'cents' occurs twice"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_and_the_wait_continues(wrong: dict[str, Any], reason: str) -> None:
    answers = [wrong, {"approved": True, "by": "ann"}]
    output = run(Asking, "pay", {"order": "A-1", "cents": 5}, answers)
    assert output.to_list() == ["paid 5"]
    (problem,) = output.to_list("errors")
    assert "is not usable" in problem["error"]
    assert reason in problem["error"]
    assert [of["status"] for of in output.to_wait_list()] == ["open", "answered"]
    assert RAN == [{"order": "A-1", "cents": 5, "currency": "EUR"}]


@pytest.mark.parametrize("approved", [True, "true", "TRUE"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"arguments": ""},
        {"arguments": "null"},
        {"arguments": None},
        {"approver": "ann", "team": "refunds"},
        {"answer": None},
    ],
)
def test_true_and_the_texts_of_sql_approve_and_other_columns_are_ignored(approved: Any, more: dict[str, Any]) -> None:
    output = run(Asking, "pay", {"order": "A-1", "cents": 5}, [{"approved": approved, **more}])
    assert output.to_list() == ["paid 5"]
    assert output.to_list("errors") == []


@pytest.mark.parametrize("approved", [False, "false", "FALSE"])
def test_false_and_the_texts_of_sql_refuse(approved: Any) -> None:
    output = run(Asking, "pay", {"order": "A-1", "cents": 5}, [{"approved": approved}])
    assert output.to_list() == ["pay was not called: the call was not approved"]
    assert RAN == []


@pytest.mark.parametrize("cancel", [True, "true", "TRUE"])
def test_a_text_of_sql_cancels(cancel: Any) -> None:
    output = run(Asking, "pay", {"order": "A-1", "cents": 5}, [{"cancel": cancel}])
    assert output.to_list() == ["pay was not called: the call was not approved: the question was cancelled"]
    assert output.to_wait_list()[-1]["status"] == "cancelled"


class Stamp(BaseModel):
    """Has a default that differs in each reading."""

    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    cents: int


class Stamped(Asking):
    """A tool and an agent with such a default."""

    @tool
    def stamped(self, stamp: Stamp, id: Annotated[str, Field(default_factory=lambda: uuid.uuid4().hex)]) -> str:
        """Pay with a new id."""
        assert stamp.id != id
        return "done"

    @agent_tool
    def office(self) -> Any:
        class Office(Agent):
            input_type = Stamp

            async def on_event(self, event: Any, ctx: AgentContext) -> Any:
                assert len(event["id"]) == 32
                return "done"

        return Office()


@pytest.mark.parametrize(("name", "given"), [("stamped", {"stamp": {"cents": 5}}), ("office", {"cents": 5})])
def test_a_default_that_differs_in_each_reading_does_not_change_the_question(name: str, given: dict[str, Any]) -> None:
    output = run(Stamped, name, given, [{"approved": True}])
    assert output.to_list() == ["done"]
    assert [(of["status"], of["arguments"]) for of in output.to_wait_list()] == [("open", given), ("answered", given)]


def test_the_note_says_what_happened() -> None:
    class Failing(Asking):
        @tool
        def pay(self, order: str, cents: int) -> str:
            """Pay a refund."""
            if cents == 13:
                raise ValueError("unlucky")
            return f"paid {cents}"

    def said(**arguments: Any) -> str:
        answer = {"approved": True, "arguments": {"order": "A-1", **arguments}, "by": "ann"}
        text: str = run(Failing, "pay", {"order": "A-1", "cents": 5}, [answer]).to_list()[0]
        return text.partition("\n")[0]

    assert said(cents=50).startswith("ann approved the call with other arguments, and it ran with these: {")
    assert said(cents=13).startswith("ann approved the call with other arguments, and it failed with these: {")
    assert said(cents=5) == "paid 5"
    assert said(cents="5") == "paid 5"
