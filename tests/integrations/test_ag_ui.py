"""Turns as AG-UI events: each message and call begins, goes on and ends, and what does not count is taken back."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ag_ui.core import BaseEvent, Event
from ag_ui.encoder import EventEncoder
from pydantic import TypeAdapter

from flink_skills import (
    Agent,
    AgentContext,
    ResourceDescriptor,
    SkillConfig,
    agent_tool,
    chat_model_setup,
    tool,
)
from flink_skills.agents import Turn, TurnStart, compile_plan, open_plan
from flink_skills.integrations import DISCARDED, AgUiObserver
from flink_skills.models import ModelSetup
from flink_skills.telemetry import (
    Activity,
    Discarded,
    Telemetry,
    TextDelta,
    ToolCallDelta,
    TurnScope,
    delta_listener,
    observe,
)
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.kit.flink_rest import wait_until
from tests.kit.local import local_environment

Said = dict[str, Any]


class Page:
    """What a page gets: events that went over the wire."""

    def __init__(self) -> None:
        self.events: list[Said] = []
        self.observer = AgUiObserver(self.send)

    def send(self, scope: TurnScope, event: BaseEvent) -> None:
        line = EventEncoder().encode(event)
        line.encode()
        said = json.loads(line.removeprefix("data: "))
        TypeAdapter(Event).validate_python(said)
        self.events.append(said)

    def types(self) -> list[str]:
        found: list[str] = []
        for event in self.events:
            repeats = event["type"] in ("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS") and found[-1:] == [event["type"]]
            found += [] if repeats else [event["type"]]
        return found

    def of(self, kind: str) -> list[Said]:
        return [event for event in self.events if event["type"] == kind]

    def shown(self) -> dict[str, str]:
        """What stands on the page at the end: texts of messages, arguments and results of calls, by id. Fails where a
        piece belongs to nothing that is open."""
        shown: dict[str, str] = {}
        open_: set[str] = set()
        for event in self.events:
            kind = event["type"]
            of = event.get("toolCallId") or event.get("messageId", "")
            if kind in ("TEXT_MESSAGE_START", "TOOL_CALL_START"):
                assert of not in open_ and of not in shown
                open_.add(of)
                shown[of] = ""
            elif kind in ("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS"):
                assert of in open_
                shown[of] += event["delta"]
            elif kind in ("TEXT_MESSAGE_END", "TOOL_CALL_END"):
                open_.remove(of)
            elif kind == "TOOL_CALL_RESULT":
                assert of in shown and of not in open_
                shown[f"result of {of}"] = event["content"]
            elif kind == "CUSTOM":
                value = event["value"]
                gone = {id_ for id_ in shown if id_.startswith(value["messagePrefix"])} | set(value["toolCallIds"])
                assert not gone & open_
                shown = {id_: text for id_, text in shown.items() if id_ not in gone}
        assert not open_
        return shown


class Desk(Agent):
    name = "desk"
    pages: ClassVar[Sequence[Page]] = ()

    @tool
    def price(self, article: str) -> str:
        """Price of an article."""
        return f"{len(article)} €"

    def listeners(self) -> Sequence[Any]:
        return [page.observer for page in self.pages]


async def run(page: Page, server: ScriptedModelServer, provider: str, tmp_path: Path, agent: Any = Desk) -> None:
    url = server.origin if provider == "anthropic" else server.url
    await run_with(page, tmp_path, agent, ModelSetup(provider, "m", base_url=url, api_key_env="TEST_MODEL_KEY"))


async def run_with(page: Page, tmp_path: Path, agent: Any, setup: ModelSetup | None = None) -> None:
    config = SkillConfig({"skills.model.retry-backoff": "1 ms", "skills.model.max-retries": "1"})
    Desk.pages = (page,)
    plan = compile_plan(agent, config=config, model=setup)
    runtime = await open_plan(plan, scratch_dir=str(tmp_path))
    try:
        await Turn(runtime, TurnStart('"ann"', 1, b"hello", "hello"), lambda *_: None).run()
    finally:
        await runtime.close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", "k")


CALLS = (Call("price", {"article": "a long name of a thing"}, "c1"), Call("price", {"article": "lamp"}, "c2"))


@pytest.mark.row("J23")
@pytest.mark.parametrize("provider", ["openai-compatible", "anthropic"])
async def test_a_turn_is_a_run_with_messages_and_calls(provider: str, tmp_path: Path) -> None:
    page = Page()
    rules = [Rule(Reply("I look it up.", tool_calls=CALLS), last_role="user"), Rule(Reply("22 and 4 €."))]
    with ScriptedModelServer(rules) as server:
        await run(page, server, provider, tmp_path)
    call = ["TOOL_CALL_START", "TOOL_CALL_ARGS"]
    message = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    ends = ["TOOL_CALL_END", "TOOL_CALL_END", "TOOL_CALL_RESULT", "TOOL_CALL_RESULT"]
    assert page.types() == ["RUN_STARTED", *message, *call, *call, *ends, *message, "RUN_FINISHED"]
    started, finished = page.events[0], page.events[-1]
    assert started["threadId"] == finished["threadId"] == '"ann"'
    assert started["runId"] == finished["runId"]
    assert len(page.of("TEXT_MESSAGE_CONTENT")) > 4 and len(page.of("TOOL_CALL_ARGS")) > 3
    assert list(page.shown().values()) == [
        "I look it up.",
        '{"article": "a long name of a thing"}',
        '{"article": "lamp"}',
        *(["22 €", "4 €"] if page.of("TOOL_CALL_RESULT")[0]["toolCallId"] == "c1" else ["4 €", "22 €"]),
        "22 and 4 €.",
    ]


async def test_an_answer_that_breaks_off_is_taken_back(tmp_path: Path) -> None:
    page = Page()
    cut = Rule(Reply("I look.", tool_calls=CALLS, break_after=7), times=1)
    rules = [cut, Rule(Reply("I look again.", tool_calls=CALLS), last_role="user"), Rule(Reply("22 and 4 €."))]
    with ScriptedModelServer(rules) as server:
        await run(page, server, "openai-compatible", tmp_path)
    [back] = page.of("CUSTOM")
    assert (back["name"], back["value"]["restarted"], back["value"]["toolCallIds"]) == (DISCARDED, True, ["c1"])
    shown = page.shown()
    assert "I look." not in shown.values()
    assert [text for id_, text in shown.items() if "result" not in id_] == [
        "I look again.",
        '{"article": "a long name of a thing"}',
        '{"article": "lamp"}',
        "22 and 4 €.",
    ]


async def test_a_turn_that_fails_is_a_run_with_an_error(tmp_path: Path) -> None:
    page = Page()
    with ScriptedModelServer([Rule(Reply("one two three", break_after=3))]) as server:
        await run(page, server, "openai-compatible", tmp_path)
    assert page.types()[-1] == "RUN_ERROR"
    assert page.events[-1]["code"] == "ModelError" and "given up after 2 attempts" in page.events[-1]["message"]
    assert page.shown() == {}


class Covered(Desk):
    urls: ClassVar[tuple[str, str]] = ("", "")

    @chat_model_setup
    def main(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz="openai-compatible:m", base_url=self.urls[0], fallback=["spare"])

    @chat_model_setup
    def spare(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz="openai-compatible:spare", base_url=self.urls[1])


async def test_a_fallback_replaces_what_the_model_before_it_said(tmp_path: Path) -> None:
    page = Page()
    with (
        ScriptedModelServer([Rule(Reply("one two three", break_after=3))]) as broken,
        ScriptedModelServer([Rule(Reply("all is well"))]) as spare,
    ):
        Covered.urls = (broken.url, spare.url)
        await run_with(page, tmp_path, Covered)
    assert page.types()[-1] == "RUN_FINISHED" and list(page.shown().values()) == ["all is well"]
    ids = [event["messageId"] for event in page.of("TEXT_MESSAGE_START")]
    assert len(ids) == len(set(ids)) == 3


class Helper(Agent):
    url: ClassVar[str] = ""

    @chat_model_setup
    def model(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz="openai-compatible:m", base_url=self.url)


class Chief(Desk):
    @agent_tool
    def helper(self) -> Agent:
        """Knows prices."""
        return Helper()


async def test_what_agents_say_among_themselves_is_left_out(tmp_path: Path) -> None:
    page = Page()
    rules = [
        Rule(Reply("inner words"), last_user="inner question"),
        Rule(Reply(tool_calls=(Call("helper", {"request": "inner question"}, "c1"),)), last_role="user"),
        Rule(Reply("All done.")),
    ]
    with ScriptedModelServer(rules) as server:
        Helper.url = server.url
        await run(page, server, "openai-compatible", tmp_path, Chief)
        assert all(body.get("stream") for body in server.requests)
    assert list(page.shown().values()) == ['{"request": "inner question"}', "inner words", "All done."]


def test_text_of_any_kind_can_be_sent() -> None:
    page = Page()
    scope = TurnScope("desk", '"k\ud800"', 1, "t1")
    with Telemetry([page.observer]).turn(scope), observe("chat", "m", "chat#0/m0"):
        tell = delta_listener()
        assert tell is not None
        for delta in (
            TextDelta(""),
            TextDelta("a\ud83d"),
            ToolCallDelta("c\ud800", "n", "\udc00", 0),
            TextDelta("more"),
            Discarded(),
        ):
            tell(delta)
    assert page.types()[:3] == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    assert page.types()[-2:] == ["CUSTOM", "RUN_FINISHED"]
    assert page.shown() == {}


def test_what_an_earlier_attempt_gave_is_taken_back_though_nothing_is_known_of_it() -> None:
    page = Page()
    with Telemetry([page.observer]).turn(TurnScope("desk", '"k"', 1, "t1", attempt=2)), observe("chat", "m", "s"):
        tell = delta_listener()
        assert tell is not None
        tell(Discarded(restarted=True))
        tell(TextDelta("hello"))
    [back] = page.of("CUSTOM")
    [message] = page.of("TEXT_MESSAGE_START")
    assert back["value"] == {"messagePrefix": "t1/s/", "toolCallIds": [], "restarted": True}
    # An id that the attempt before cannot have given.
    assert message["messageId"] == "t1/s/2.0.1"


def test_an_activity_without_an_answer_says_nothing() -> None:
    page = Page()
    page.observer.ended(Activity("chat", "m", TurnScope("desk", '"k"', 1, "t1")))
    assert page.events == []


class Asking(Desk):
    """Asks two people, and sleeps."""

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        votes = [ctx.wait(name, {"bad": "\ud800"}, question="Buy?", timeout="2 d") for name in ("first", "second")]
        answers = await asyncio.gather(*votes)
        await ctx.sleep(0.01)
        return answers


@pytest.mark.row("J23")
def test_a_turn_that_waits_is_a_run_with_interrupts_that_starts_again() -> None:
    page = Page()
    Desk.pages = (page,)

    def answers() -> Iterator[Said]:
        for number, name in enumerate(("first", "second"), 1):
            wait_until(lambda number=number: len(page.of("RUN_FINISHED")) == number, 30, "the turn to wait")  # type: ignore[misc]
            yield {"k": "ann", "wait_id": name, "answer": number}

    assert local_environment().from_list([{"k": "ann"}], "k").apply(Asking).answers(answers(), "k").to_list() == [
        [1, 2]
    ]
    assert page.types() == ["RUN_STARTED", "RUN_FINISHED"] * 4
    assert len({event["runId"] for event in page.events}) == 1
    found = [event.get("outcome", {}).get("interrupts") for event in page.of("RUN_FINISHED")]
    assert [[(of["reason"], of["metadata"]["name"]) for of in interrupts or ()] for interrupts in found] == [
        [("wait", "first"), ("wait", "second")],
        [("wait", "second")],
        [("sleep", "sleep")],
        [],
    ]
    first = found[0][0]
    assert (first["message"], first["metadata"]["payload"]) == ("Buy?", {"bad": "\N{REPLACEMENT CHARACTER}"})
    end = dt.datetime.fromisoformat(first["expiresAt"]) - dt.datetime.now(dt.timezone.utc)
    assert dt.timedelta(days=1.9) < end < dt.timedelta(days=2)
