"""The loop of model and tools against a real HTTP server: tools, mistakes, retries, typed answers, limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.flink.agents import Shop, Verdict
from tests.flink.running import collect, environments

pytestmark = pytest.mark.flink

TYPE = Types.ROW_NAMED(["case"], [Types.STRING()])


def events(*cases: str) -> list[tuple[str]]:
    return [(case,) for case in cases]


def requests_of(server: ScriptedModelServer, case: str) -> list[dict[str, Any]]:
    """The requests of the turn whose event says ``case``, oldest first."""
    return [body for body in server.requests if f'"{case}"' in json.dumps(body["messages"]).replace("\\", "")]


def tool_results(body: dict[str, Any]) -> list[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


RULES = [
    # Two prices at once, then the two that wait for each other, then the answer.
    Rule(
        Reply(tool_calls=(Call("price", {"article": "pen"}), Call("price", {"article": "book"}))),
        last_user="shopping",
        tool_results=0,
    ),
    Rule(
        Reply(tool_calls=(Call("meet", {"first": True}), Call("meet", {"first": False}))),
        last_user="shopping",
        tool_results=2,
    ),
    Rule(Reply("{last_tool}"), last_user="shopping", tool_results=4),
    Rule(Reply(tool_calls=(Call("prise", {"article": "pen"}),)), last_user="unknown", tool_results=0),
    Rule(Reply(tool_calls=(Call("price", '{"article": '),)), last_user="unknown", tool_results=1),
    Rule(Reply(tool_calls=(Call("price", {"article": "rocket"}),)), last_user="unknown", tool_results=2),
    Rule(Reply("gave up"), last_user="unknown", tool_results=3),
    Rule(Reply(status=429, retry_after=0.0), last_user="busy", times=1),
    Rule(Reply(status=500), last_user="busy", times=1),
    Rule(Reply("at last"), last_user="busy"),
    Rule(Reply(status=401, error="no such key"), last_user="refused"),
    Rule(Reply(status=503), last_user="down"),
    Rule(Reply("I think it is billing"), system="typed", messages=1),
    Rule(Reply('{"job": "billing", "restarts": "many"}'), system="typed", messages=3),
    Rule(Reply('Here it is:\n```json\n{"job": "billing", "restarts": 3}\n```'), system="typed", messages=5),
    Rule(Reply("never"), system="stubborn"),
]


@pytest.mark.row("A14", "J1", "J4", "J5")
@pytest.mark.both_versions
def test_tools_mistakes_retries_and_typed_answers(serve: Callable[..., ScriptedModelServer]) -> None:
    server = serve(RULES)
    env, agents_env = environments({"skills.model.retry-backoff": "10 ms", "skills.model.max-retries": "2"})
    cases = env.from_collection(events("shopping", "unknown", "busy", "refused", "down"), TYPE)
    plain = agents_env.from_datastream(cases, "case").apply(Shop(server.url, name="plain"))
    one = env.from_collection(events("verdict"), TYPE)
    typed = agents_env.from_datastream(one, "case").apply(
        Shop(server.url, name="typed", instructions="typed", output_type=Verdict)
    )
    stubborn = agents_env.from_datastream(one, "case").apply(
        Shop(server.url, name="stubborn", instructions="stubborn", output_type=Verdict)
    )
    records = collect(*(output.to_datastream(tag=tag) for output in (plain, typed, stubborn) for tag in ("", "errors")))
    answers = {record["key"]: record["answer"] for record in records if "answer" in record}
    errors = {record["key"]: record for record in records if "error" in record}

    assert answers["shopping"] == "came second"
    last = requests_of(server, "shopping")[-1]
    assert tool_results(last) == ["1.5", "12.0", "met somebody", "came second"]
    assert [tool["function"]["name"] for tool in last["tools"]] == ["price", "meet"]

    assert answers["unknown"] == "gave up"
    mistakes = tool_results(requests_of(server, "unknown")[-1])
    assert "There is no tool 'prise'. Did you mean price?" in mistakes[0]
    assert "not valid JSON" in mistakes[1]
    assert "price failed: KeyError: 'rocket'" in mistakes[2]

    assert answers["busy"] == "at last"
    assert len(requests_of(server, "busy")) == 3
    assert len(requests_of(server, "refused")) == 1  # asking again would not help
    assert "no such key" in errors["refused"]["error"]
    assert len(requests_of(server, "down")) == 3
    assert "given up after 3 attempts" in errors["down"]["error"]

    assert answers["verdict"] == Verdict(job="billing", restarts=3)
    asked_again = [body["messages"][-1]["content"] for body in server.requests if "typed" in str(body["messages"][0])]
    assert len(asked_again) == 3
    assert "Your answer does not fit" in asked_again[1]
    assert "restarts" in asked_again[2]
    assert "no usable answer after 4 attempts" in errors["verdict"]["error"]
