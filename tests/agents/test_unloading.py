"""What unloading a skill frees: the next request has no content of a skill that is not loaded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent
from flink_skills.agents import AssistantMessage, ModelRequest, Session, ToolMessage, TurnOutcome, TurnStatus
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.models import Script

NAMES = ("ants", "bees", "cats")
LOAD = {"core": ("load_skill", "name"), "full": ("skill_load", "skill")}
UNLOAD = {"core": ("unload_skill", "name"), "full": ("skill_unload", "skill")}

every_mode = pytest.mark.parametrize(
    ("profile", "lifetime", "content"),
    list(itertools.product(("core", "full"), ("turn", "once", "session"), ("system", "tool-result"))),
)


class Keeper(Agent):
    model = "scripted:m"
    session = "key"


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    for name in NAMES:
        folder = tmp_path / "three" / name
        (folder / "references").mkdir(parents=True)
        body = f"Body of {name}.\n" + f"A line about {name}.\n" * 250
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\n{body}")
        for doc in ("one", "two"):
            (folder / "references" / f"{doc}.md").write_text(f"Document {doc} of {name}.\n")
    return tmp_path / "three"


def text_of(request: ModelRequest) -> str:
    return "\n".join([request.system, *(message.content for message in request.messages)])


def copies(request: ModelRequest) -> dict[str, int]:
    """How often a request has the instructions of each skill, for those that it has."""
    found = {name: text_of(request).count(f"Body of {name}.") for name in NAMES}
    return {name: number for name, number in found.items() if number}


def results(request: ModelRequest) -> list[str]:
    return [message.content for message in request.messages if isinstance(message, ToolMessage)]


class Mode:
    """Calls and options of a combination of profile, lifetime and content."""

    def __init__(self, profile: str, lifetime: str, content: str) -> None:
        self.profile, self.lifetime = profile, lifetime
        self.options = {
            "skills.tools": profile,
            "skills.load.lifetime": lifetime,
            "skills.load.content": content,
        }
        self._prefix = map("c{}".format, itertools.count())

    def load(self, *names: str) -> Any:
        tool, argument = LOAD[self.profile]
        return calls(*(call(tool, **{argument: name}) for name in names), prefix=next(self._prefix))

    def unload(self, *names: str) -> Any:
        tool, argument = UNLOAD[self.profile]
        return calls(*(call(tool, **{argument: name}) for name in names), prefix=next(self._prefix))


def restored(outcome: TurnOutcome) -> Session:
    """The session after a turn as a restored job reads it."""
    assert outcome.status == TurnStatus.DONE, outcome.message
    whole = Session().after(outcome.session.conversation(), outcome.session.state)[1]
    return Session.decode(whole.chunks)


async def turns(bench: Bench, number: int) -> TurnOutcome:
    """Run turns of one key, each with the session that a restored job reads."""
    session, outcome = Session(), None
    for turn in range(1, number + 1):
        outcome = await bench.turn(f"event {turn}", number=turn, session=session)
        session = restored(outcome)
    assert outcome is not None
    return outcome


def all_copies(model: ScriptedModel) -> list[dict[str, int]]:
    return [copies(request) for request in model.requests]


def assert_said(request: ModelRequest, unloaded: Sequence[str]) -> None:
    """Each of the skills has a line in place of its load result, and no load result says that it is loaded."""
    said = results(request)
    for name in unloaded:
        assert any(text.startswith(f"unloaded: {name}.") and "\n" not in text for text in said), (name, said)
        assert not any(text.startswith((f"loaded: {name}", f"already loaded: {name}")) for text in said)


def by_step(answers: Sequence[Any]) -> Any:
    """A script that answers a request by the number of the answers in it, as a model does after a restart."""
    return lambda request: answers[sum(isinstance(message, AssistantMessage) for message in request.messages)]


@every_mode
async def test_an_unloaded_skill_leaves_the_next_request_and_is_there_once_after_a_reload(
    open_agent: OpenAgent, script: Script, skills: Path, profile: str, lifetime: str, content: str
) -> None:
    mode = Mode(profile, lifetime, content)
    answers = [mode.load("ants"), mode.unload("ants"), mode.load("ants"), mode.load("ants"), "done"]
    model = script(by_step(answers))
    bench = await open_agent(Keeper, skills, **mode.options)
    await turns(bench, 1)
    assert all_copies(model) == [{}, {"ants": 1}, {}, {"ants": 1}, {"ants": 1}]
    assert_said(model.requests[2], ["ants"])
    # The prefix of the request changes once: what replaced the first result stays.
    assert results(model.requests[2])[0] == results(model.requests[3])[0] == results(model.requests[4])[0]

    requests, journal = list(model.requests), list(bench.journal)
    for done in range(len(journal)):
        model.requests.clear()
        outcome = await bench.turn("event 1", journal=journal[:done])
        assert outcome.status == TurnStatus.DONE, outcome.message
        assert model.requests == requests[len(requests) - len(model.requests) :], f"after {done} entries of the journal"
    assert done > len(answers)


@every_mode
async def test_a_skill_over_the_limit_leaves_the_next_request(
    open_agent: OpenAgent, script: Script, skills: Path, profile: str, lifetime: str, content: str
) -> None:
    seen: list[list[str]] = []

    class Evicts(Keeper):
        def evict(self, loaded: Sequence[str], ctx: Any) -> Any:
            seen.append(ctx.skills)
            return "cats" if "cats" in loaded else None

    mode = Mode(profile, lifetime, content)
    answers = [mode.load("ants"), mode.load("bees"), mode.load("ants", "cats"), "done"]
    model = script(by_step(answers))
    bench = await open_agent(Evicts, skills, **mode.options, **{"skills.max-loaded": "1"})
    await turns(bench, 1)
    assert all_copies(model) == [{}, {"ants": 1}, {"bees": 1}, {"ants": 1}]
    assert_said(model.requests[2], ["ants"])
    assert_said(model.requests[3], ["bees", "cats"])
    assert seen[-1][-2:] == ["ants", "cats"]

    requests, journal, hooks = list(model.requests), list(bench.journal), len(seen)
    model.requests.clear()
    await bench.turn("event 1", journal=journal[:-1])
    assert model.requests == requests[-1:]
    assert len(seen) == hooks + 1, "a replay calls evict for the request that it sends, and for no other"


@every_mode
async def test_a_restored_session_has_what_is_loaded(
    open_agent: OpenAgent, script: Script, skills: Path, profile: str, lifetime: str, content: str
) -> None:
    mode = Mode(profile, lifetime, content)
    model = script([mode.load("ants", "bees"), "one", "two", mode.unload("ants", "bees"), "three", "four"])
    bench = await open_agent(Keeper, skills, **mode.options)
    outcome = await turns(bench, 4)
    there = {"ants": 1, "bees": 1} if lifetime == "session" else {}
    assert all_copies(model) == [{}, {"ants": 1, "bees": 1}, there, there, {}, {}]
    for request in model.requests[2 if not there else 4 :]:
        assert_said(request, ["ants", "bees"])
    kept = repr(outcome.session.conversation().messages)
    assert "Body of" not in kept, "the state has content of unloaded skills"
