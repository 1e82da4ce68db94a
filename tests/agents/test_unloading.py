"""Requests after a skill is unloaded, in each lifetime, content and profile."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, agent_tool
from flink_skills.agents import Session, SessionOp, TurnOutcome, TurnStatus, encode
from flink_skills.models import AssistantMessage, ModelRequest
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.models import Script, results

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
    """Return the number of copies of the instructions of each skill in a request, for those that it has."""
    found = {name: text_of(request).count(f"Body of {name}.") for name in NAMES}
    return {name: number for name, number in found.items() if number}


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


@pytest.mark.row("C9")
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


@pytest.mark.row("D10", "D11")
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


@pytest.mark.row("D9")
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


def documents(request: ModelRequest) -> dict[str, int]:
    """Return the number of copies of each document of the skill ants in a request, for those that it has."""
    found = {name: text_of(request).count(f"Document {name} of ants.") for name in ("one", "two")}
    return {name: number for name, number in found.items() if number}


def select(mode: str, *docs: str, prefix: str) -> Any:
    return calls(call("skill_select_docs", skill="ants", mode=mode, docs=[f"{d}.md" for d in docs]), prefix=prefix)


@pytest.mark.row("C5", "C9")
@pytest.mark.parametrize("content", ["system", "tool-result"])
@pytest.mark.parametrize("lifetime", ["turn", "session"])
async def test_documents_are_there_once_and_leave_with_their_skill(
    open_agent: OpenAgent, script: Script, skills: Path, lifetime: str, content: str
) -> None:
    mode = Mode("full", lifetime, content)
    with_one = {"skill": "ants", "docs": ["one.md"]}
    answers = [
        calls(call("skill_load", **with_one), prefix="a"),
        select("add", "two", prefix="b"),
        select("replace", "two", prefix="d"),
        select("add", "one", prefix="e"),
        select("clear", prefix="f"),
        calls(call("skill_load", **with_one), prefix="g"),
        mode.unload("ants"),
        calls(call("skill_load", **with_one), prefix="h"),
        "done",
    ]
    model = script(by_step(answers))
    bench = await open_agent(Keeper, skills, **mode.options)
    await turns(bench, 1)
    one, two = {"one": 1}, {"two": 1}
    assert [documents(request) for request in model.requests] == [
        *({}, one, one | two, two, one | two, {}, one),
        *({}, one),
    ]
    assert all_copies(model) == [{}, *[{"ants": 1}] * 6, {}, {"ants": 1}]
    assert_said(model.requests[7], ["ants"])


@pytest.mark.row("C9")
async def test_documents_of_a_skill_that_the_code_loaded_are_there_once(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    class Loads(Keeper):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            await ctx.call_tool("skill_load", skill="ants")
            return await ctx.chat(event)

    model = script([select("add", "one", prefix="a"), "done"])
    bench = await open_agent(Loads, skills, **Mode("full", "session", "tool-result").options)
    await turns(bench, 1)
    assert documents(model.requests[1]) == {"one": 1}
    assert all_copies(model) == [{"ants": 1}] * 2
    assert "references/one.md" in results(model.requests[1])[0]


@pytest.mark.row("C9")
async def test_skills_of_many_turns_cost_a_line_each(open_agent: OpenAgent, script: Script, tmp_path: Path) -> None:
    names = [f"skill-{number}" for number in range(6)]
    for name in names:
        folder = tmp_path / "six" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\n{'x' * 5_000}\n")
    mode = Mode("core", "session", "tool-result")
    model = script([of for name in names for of in (mode.load(name), mode.unload(name), "done")])
    bench = await open_agent(Keeper, tmp_path / "six")
    outcome = await turns(bench, len(names))
    sizes = [len(text_of(request)) for request in model.requests]
    assert sizes[-1] - sizes[0] < 1_500, sizes
    assert outcome.session.size < 6_000, "the session has content of unloaded skills"


@pytest.mark.row("C9")
async def test_the_session_is_written_again_when_half_of_it_is_content_of_unloaded_skills(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    mode = Mode("core", "session", "tool-result")
    model = script([mode.load("ants"), "y" * 30_000, mode.unload("ants"), "done", mode.load("bees"), "done", "last"])
    bench = await open_agent(Keeper, skills)
    outcome = await bench.turn("event 1")
    found, operations = [outcome.session], []
    for number, event in ((2, "event 2"), (3, "event 3"), (4, "event 4")):
        outcome = await bench.turn(event, number=number, session=found[-1])
        found.append(outcome.session)
        operations.append(outcome.change.op)
    # The next request omits the content.
    assert all_copies(model)[-4:] == [{}, {}, {"bees": 1}, {"bees": 1}]
    assert operations == [SessionOp.APPEND] * 3, "a turn writes a long session again"
    script([mode.load("ants"), "done", mode.unload("ants"), "done"])
    bench = await open_agent(Keeper, skills)
    short = (await bench.turn("event 1")).session
    outcome = await bench.turn("event 2", number=2, session=short)
    assert outcome.change.op == SessionOp.REPLACE
    assert outcome.session.size < short.size / 2
    assert Session.decode(outcome.change.chunks).conversations == outcome.session.conversations


@pytest.mark.row("C9")
async def test_a_limit_of_tokens_removes_content_of_unloaded_skills_first(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    mode = Mode("core", "session", "tool-result")
    answers = [mode.load("ants"), "y" * 10_000, mode.unload("ants"), "done", "last"]
    model = script(answers)
    bench = await open_agent(Keeper, skills, **{"skills.session.max-tokens": "4000"})
    session = Session()
    for number in (1, 2, 3):
        outcome = await bench.turn(f"event {number}", number=number, session=session)
        session = outcome.session
    assert text_of(model.requests[-1]).count("event 1") == 1, "messages were removed"
    assert copies(model.requests[-1]) == {}
    assert_said(model.requests[-1], ["ants"])


@pytest.mark.row("C9", "D5")
async def test_stored_results_of_an_earlier_release_become_a_line(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    """An earlier release kept the content of unloaded skills, and did not mark documents and repeated loads."""
    conversation = [
        {"u": "event 1"},
        {"a": "", "c": [["c0", "skill_load", {"skill": "ants"}], ["c1", "skill_load", {"skill": "bees"}]]},
        {"t": "<skill_content name=\"ants\">\nBody of ants.\n", "i": "c0", "n": "skill_load", "e": False,
         "k": ["ants", False, "d1"]},
        {"t": "<skill_content name=\"bees\">\nBody of bees.\n", "i": "c1", "n": "skill_load", "e": False,
         "k": ["bees", False, "d2"]},
        {"a": "", "c": [["c2", "skill_select_docs", {"skill": "ants"}]]},
        {"t": "{}\nDocument one of ants.\n", "i": "c2", "n": "skill_select_docs", "e": False, "k": ["ants", False, ""]},
        {"a": "done", "c": []},
    ]  # fmt: skip
    session = Session.decode([encode({"m": {"model": conversation}, "a": {"model": {"loaded": []}}})])
    model = script(["done"])
    bench = await open_agent(Keeper, skills, **Mode("full", "session", "tool-result").options)
    outcome = await bench.turn("event 2", number=2, session=session)
    assert outcome.status == TurnStatus.DONE
    assert all_copies(model) == [{}]
    assert documents(model.requests[0]) == {}
    assert_said(model.requests[0], ["ants", "bees"])


@pytest.mark.row("D12")
@pytest.mark.parametrize("lifetime", ["turn", "once", "session"])
async def test_the_context_has_the_skills_that_are_loaded_now(
    open_agent: OpenAgent, script: Script, skills: Path, lifetime: str
) -> None:
    in_hook: list[list[str]] = []

    class Tells(Keeper):
        def before_model(self, request: ModelRequest, ctx: Any) -> None:
            in_hook.append(ctx.skills)

        async def on_event(self, event: Any, ctx: Any) -> Any:
            before = ctx.skills
            await ctx.chat(event)
            return [before, ctx.skills, ctx.skills_loaded_in_turn]

    mode = Mode("core", lifetime, "tool-result")
    script([mode.load("ants", "bees"), mode.load("ants"), "one", mode.unload("bees"), "two"])
    bench = await open_agent(Tells, skills, **mode.options)
    told, session = [], Session()
    for number in (1, 2):
        outcome = await bench.turn("x", number=number, session=session)
        told += [output for _, output in outcome.outputs]
        session = restored(outcome)
    loaded, in_turn = ["bees", "ants"], ["ants", "bees"]
    # With the lifetime "once" the second load of ants is for one more request.
    first = ["ants"] if lifetime == "once" else loaded
    assert told[0] == [[], first, in_turn]
    assert in_hook[:3] == [[], ["ants", "bees"], first]
    if lifetime == "session":
        assert told[1] == [loaded, ["ants"], []]
        assert in_hook[3:] == [loaded, ["ants"]]
    else:
        assert told[1] == [[], [], []]


def test_the_former_name_has_a_hint() -> None:
    with pytest.raises(AttributeError, match=r"'loaded_skills': use ctx\.skills .* ctx\.skills_loaded_in_turn"):
        AgentContext.__getattr__(object(), "loaded_skills")


@pytest.mark.row("C9")
async def test_an_agent_that_is_a_tool_frees_what_an_earlier_call_loaded(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    class Reader(Agent):
        """Reads."""

        model = "scripted:m"
        instructions = "You read."

    class Caller(Keeper):
        @agent_tool(sessions=True)
        def read(self) -> Agent:
            return Reader()

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return await ctx.call_tool("read", request=event, session_id="a")

    mode = Mode("core", "session", "tool-result")
    model = script([mode.load("ants"), "one", mode.unload("ants"), "two", "three"])
    bench = await open_agent(Caller, skills)
    outcome = await turns(bench, 3)
    assert all_copies(model) == [{}, {"ants": 1}, {"ants": 1}, {}, {}]
    assert_said(model.requests[-1], ["ants"])
    assert "Body of" not in repr(outcome.session.conversation().messages)
