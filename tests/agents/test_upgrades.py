"""What may change between a savepoint and a restore: for a turn under way, and for a session that is idle."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flink_skills import Agent, AgentContext, ResourceDescriptor, chat_model_setup, tool
from flink_skills.agents import Session, TurnOutcome, TurnStatus, decode
from flink_skills.models import AssistantMessage, ModelRequest, ToolMessage, UserMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script

EVENT = {"text": "go"}


class Desk(Agent):
    """The agent as it was. It loads a skill, calls a tool and answers."""

    name = "desk"
    session = "key"
    instructions = "You help."

    @chat_model_setup
    @staticmethod
    def main() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_lifetime="session")

    @tool
    def weigh(self, text: str) -> int:
        """Weighs a text."""
        return len(text)

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        ctx.state["turns"] = ctx.state.get("turns", 0) + 1
        return await ctx.chat(event["text"])


def answers(request: ModelRequest) -> Any:
    """Load a skill, call a tool, then tell what the tools said; in later turns answer at once."""
    said = request.messages[-1]
    if isinstance(said, UserMessage) and said.content.endswith("go"):
        return calls(call("load_skill", name="count"), prefix="load")
    if isinstance(said, ToolMessage) and said.name == "load_skill":
        return calls(call("weigh", text="12345"), prefix="weigh")
    return f"done: {said.content}"


class Before:
    """What a savepoint has: the session of a key after one turn, or the first turn's journal after some steps."""

    def __init__(self, journal: list[bytes], outcome: TurnOutcome) -> None:
        self.journal, self.outcome = journal, outcome

    @property
    def idle(self) -> Session:
        return self.outcome.session

    def under_way(self, *last: str) -> list[bytes]:
        """The journal up to the step whose id ends so."""
        ids = [decode(entry)["id"] for entry in self.journal]
        return self.journal[: ids.index(last[0]) + 1]


LOADED, ASKED_TO_WEIGH, WEIGHED = "chat#0/t0.0", "chat#0/m1", "chat#0/t1.0"


@pytest.fixture
async def before(open_agent: OpenAgent, script: Script, skill_folder: Path) -> Before:
    script(answers)
    bench = await open_agent(Desk, skill_folder)
    outcome = await bench.turn(EVENT)
    assert outcome.outputs == (("", "done: 5"),)
    assert [decode(entry)["id"] for entry in bench.journal] == [
        "chat#0/m0",
        LOADED,
        ASKED_TO_WEIGH,
        WEIGHED,
        "chat#0/m2",
    ]
    return Before(bench.journal, outcome)


def text_of(request: ModelRequest) -> str:
    return "\n".join([request.system, *(message.content for message in request.messages)])


class Brief(Desk):
    instructions = "You are brief."


async def test_instructions(open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before) -> None:
    model = script(answers)
    bench = await open_agent(Brief, skill_folder)
    outcome = await bench.turn(EVENT, journal=before.under_way(LOADED))
    assert outcome == before.outcome
    # What was answered stays; what is asked from here on is asked with the new instructions.
    assert ["You are brief." in of.system for of in model.requests] == [True, True]
    await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert "You are brief." in model.requests[-1].system
    assert "You help." not in text_of(model.requests[-1])


class OtherModel(Agent):
    """The same agent with a model of another name, that may not load the skill."""

    name = "desk"
    session = "key"

    @chat_model_setup
    @staticmethod
    def newer() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_names=["shout"], skill_lifetime="session")

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.chat(event["text"])


class TwoModels(Desk):
    @chat_model_setup
    @staticmethod
    def newer() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m")


async def test_a_model_less(
    open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before, caplog: pytest.LogCaptureFixture
) -> None:
    model = script(lambda request: f"heard {request.messages[-1].content}")
    bench = await open_agent(OtherModel, skill_folder)
    # What the removed model said is in no conversation of another one, which may have other skills.
    outcome = await bench.turn(EVENT, journal=before.under_way(WEIGHED))
    assert outcome.outputs == (("", "heard go"),)
    assert "chat#0/m0 requests something else" in caplog.text
    outcome = await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert outcome.outputs == (("", "heard next"),)
    for request in model.requests:
        assert "12345" not in text_of(request)
        assert "count" not in text_of(request)
    # It is there again when the model is.
    script(answers)
    again = await (await open_agent(TwoModels, skill_folder)).turn({"text": "on"}, number=3, session=outcome.session)
    kept = again.session.conversation().messages
    assert [type(of).__name__ for of in kept["main"]][-3:] == ["AssistantMessage", "UserMessage", "AssistantMessage"]
    assert len(kept["newer"]) == 2


async def test_a_model_more(open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before) -> None:
    script(answers)
    bench = await open_agent(TwoModels, skill_folder)
    for step in (LOADED, ASKED_TO_WEIGH, WEIGHED):
        assert await bench.turn(EVENT, journal=before.under_way(step)) == before.outcome
    outcome = await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert len(outcome.session.conversation().messages["main"]) == len(before.idle.conversation().messages["main"]) + 2


class OtherProvider(Desk):
    """The model of the same name is another one, of another provider."""

    @chat_model_setup
    @staticmethod
    def main() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="offline:m", skill_lifetime="session")


async def test_the_provider_of_a_model(
    open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before, caplog: pytest.LogCaptureFixture
) -> None:
    model = script(answers)
    bench = await open_agent(OtherProvider, skill_folder)
    # What the journal has of the old one is good, and the new one is asked from there on, with all of it before it.
    outcome = await bench.turn(EVENT, journal=before.under_way(WEIGHED))
    assert outcome.status == TurnStatus.DONE
    was, now = (of.session.conversation().messages["main"] for of in (before.outcome, outcome))
    assert now[: len(was) - 1] == was[:-1]
    assert now[-1] != was[-1]
    outcome = await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert outcome.session.conversation().messages["main"][: len(was)] == was
    assert not model.requests
    assert not [record for record in caplog.records if record.name == "flink_skills.turn"]


class NoTool(Agent):
    name = "desk"
    session = "key"

    @chat_model_setup
    @staticmethod
    def main() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_lifetime="session")

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.chat(event["text"])


class MoreTools(Desk):
    @tool
    def measure(self, text: str) -> int:
        """Measures a text."""
        return len(text)


async def test_a_tool_less(open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before) -> None:
    model = script(answers)
    bench = await open_agent(NoTool, skill_folder)
    # Its result, where it has one, is as good as ever; a call that is still to be made is an error for the model.
    outcome = await bench.turn(EVENT, journal=before.under_way(WEIGHED))
    assert outcome.outputs == (("", "done: 5"),)
    outcome = await bench.turn(EVENT, journal=before.under_way(ASKED_TO_WEIGH))
    assert outcome.status == TurnStatus.DONE
    assert outcome.outputs[0][1].startswith("done: There is no tool 'weigh'.")
    outcome = await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert outcome.status == TurnStatus.DONE
    # The conversation still has the call and its result, as pairs.
    messages = model.requests[-1].messages
    called = {of.id for message in messages if isinstance(message, AssistantMessage) for of in message.tool_calls}
    assert {message.call_id for message in messages if isinstance(message, ToolMessage)} == called
    assert len(called) == 2


async def test_a_tool_more(open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before) -> None:
    model = script(answers)
    bench = await open_agent(MoreTools, skill_folder)
    assert await bench.turn(EVENT, journal=before.under_way(LOADED)) == before.outcome
    await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert all("measure" in {of.name for of in request.tools} for request in model.requests)


def remove(folder: Path) -> None:
    shutil.rmtree(folder / "count")


def change(folder: Path) -> None:
    file = folder / "count" / "SKILL.md"
    file.write_text(file.read_text() + "\nCount everything twice.\n")


def rename(folder: Path) -> None:
    (folder / "count").rename(folder / "tally")
    file = folder / "tally" / "SKILL.md"
    file.write_text(file.read_text().replace("name: count", "name: tally"))


SKILL_CHANGES = {
    "removed": (remove, "This skill is no longer available.", "is no longer available."),
    "changed": (change, "This skill has changed since it was loaded", "has changed: load it again"),
    "renamed": (rename, "This skill is no longer available.", "is no longer available."),
}


class InSystem(Desk):
    """The content of skills stands in the system text, which is made anew for each request."""

    @chat_model_setup
    @staticmethod
    def main() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted:m", skill_lifetime="session", skill_content="system")


@pytest.mark.parametrize("how", SKILL_CHANGES)
async def test_a_loaded_skill(
    open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before, how: str
) -> None:
    alter, there, told = SKILL_CHANGES[how]
    script(answers)
    in_system = await open_agent(InSystem, skill_folder)
    await in_system.turn(EVENT)
    journal = in_system.journal[:2]
    alter(skill_folder)
    model = script(answers)

    # A turn under way goes on. What it was told is in its conversation, and stays; where the content of skills is made
    # anew for each request, it says what became of it.
    bench = await open_agent(Desk, skill_folder)
    assert await bench.turn(EVENT, journal=before.under_way(LOADED)) == before.outcome
    assert "sh scripts/count.sh" in text_of(model.requests[0])
    await (await open_agent(InSystem, skill_folder)).turn(EVENT, journal=journal)
    assert there in text_of(model.requests[-1])
    assert "sh scripts/count.sh" not in text_of(model.requests[-1])

    # The next event begins with what changed, once; then the skill counts as not loaded.
    outcome = await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert told in text_of(model.requests[-1])
    assert not outcome.session.conversation().skill_states["main"].get("loaded")
    await bench.turn({"text": "once more"}, number=3, session=outcome.session)
    assert sum(told in message.content for message in model.requests[-1].messages) == 1


async def test_a_skill_that_is_not_loaded_yet(
    open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before
) -> None:
    remove(skill_folder)
    script(answers)
    bench = await open_agent(Desk, skill_folder)
    outcome = await bench.turn(EVENT, journal=before.under_way("chat#0/m0"))
    results = [of for of in outcome.session.conversation().messages["main"] if isinstance(of, ToolMessage)]
    assert results[0].is_error
    assert "count" in results[0].content


async def test_a_skill_more(open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before) -> None:
    (skill_folder / "new").mkdir()
    (skill_folder / "new" / "SKILL.md").write_text("---\nname: new\ndescription: Brand-new.\n---\nNew.\n")
    model = script(answers)
    bench = await open_agent(Desk, skill_folder)
    assert await bench.turn(EVENT, journal=before.under_way(LOADED)) == before.outcome
    await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert all("Brand-new." in request.system for request in model.requests)


class Counted(BaseModel):
    turns: int = 0
    name: str = ""


class Typed(Desk):
    state_type = Counted

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        ctx.state.turns += 1
        return [ctx.state.turns, await ctx.chat(event["text"])]


class Demanding(BaseModel):
    turns: int
    owner: str

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)


class Asks(Typed):
    state_type = Demanding


async def test_the_type_of_the_state(
    open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before, caplog: pytest.LogCaptureFixture
) -> None:
    script(answers)
    bench = await open_agent(Typed, skill_folder)
    outcome = await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert outcome.outputs == (("", [2, "done: next"]),)
    assert outcome.session.state == {"turns": 2, "name": ""}

    # What does not fit is an error record of that key, which says what to do; the key keeps its state.
    bench = await open_agent(Asks, skill_folder)
    failed = await bench.turn({"text": "next"}, number=2, session=before.idle)
    assert failed.status == TurnStatus.FAILED
    assert failed.session is before.idle
    assert failed.message == (
        "the state of this key does not fit state_type Demanding (owner: Field required): give new fields a default, "
        "and read what has another form now with a model_validator(mode='before')"
    )
    assert {record.levelno for record in caplog.records if record.name == "flink_skills.turn"} == {logging.WARNING}


class PerEvent(Desk):
    session = "event"


class Selects(Desk):
    session_selector = "topic"


class SelectsOtherwise(Desk):
    def session_selector(self, event: Any) -> str:
        return f"about {event['topic']}"


async def test_the_selector_of_conversations(
    open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before
) -> None:
    model = script(answers)
    # From one conversation of a key to several, and from one way to name them to another.
    by_field, otherwise = await open_agent(Selects, skill_folder), await open_agent(SelectsOtherwise, skill_folder)
    session = before.idle
    for number, (bench, had) in enumerate([(by_field, 0), (by_field, 2), (otherwise, 0), (by_field, 4)], 2):
        outcome = await bench.turn({"text": "next", "topic": "x"}, number=number, session=session)
        assert len(model.requests[-1].messages) == had + 1
        session = outcome.session
    assert set(session.conversations) == {"", "x", "about x"}
    assert session.state == {"turns": 5}, "the state is the key's"
    # And back: the one conversation of before goes on.
    await (await open_agent(Desk, skill_folder)).turn({"text": "again"}, number=6, session=session)
    assert len(model.requests[-1].messages) == len(before.idle.conversation().messages["main"]) + 1


async def test_the_mode_of_the_session(
    open_agent: OpenAgent, script: Script, skill_folder: Path, before: Before
) -> None:
    model = script(answers)
    outcome = await (await open_agent(PerEvent, skill_folder)).turn({"text": "next"}, number=2, session=before.idle)
    assert len(model.requests[-1].messages) == 1
    assert outcome.session.state == {"turns": 2}
    # And back: the conversation was kept.
    await (await open_agent(Desk, skill_folder)).turn({"text": "again"}, number=3, session=outcome.session)
    assert len(model.requests[-1].messages) == len(before.idle.conversation().messages["main"]) + 1
