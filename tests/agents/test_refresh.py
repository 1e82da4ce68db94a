"""Skills that change while an agent is open: turns keep theirs, new turns get the new ones, sessions are told."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills import Agent, ConfigError, ResourceDescriptor, SkillConfig, chat_model_setup
from flink_skills.agents import compile_plan, open_plan
from flink_skills.errors import SkillFormatError, SkillLockError, SourceError
from flink_skills.manager import SkillLock, SkillScope
from flink_skills.models import (
    ModelRequest,
    ModelResponse,
    Notice,
    ToolCall,
    ToolMessage,
    UserMessage,
    named_in_notice,
    notice_message,
)
from flink_skills.skill import load_folder
from tests.kit.agents import OpenAgent
from tests.kit.models import Script
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("proved_once")

DEADLINE = 60.0


class Keyed(Agent):
    name = "keyed"
    session = "key"

    @chat_model_setup
    @staticmethod
    def chat_model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted.setup")


class PerEvent(Keyed):
    session = "event"


class Filtered(Keyed):
    @chat_model_setup
    @staticmethod
    def chat_model() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="scripted.setup", skill_names=["count"])


class Offline(Agent):
    model = "offline"
    session = "key"


def loads(name: str) -> Callable[[ModelRequest], ModelResponse | str]:
    """A model that loads a skill where the last message asks for it, and repeats what it was given."""

    def answer(request: ModelRequest) -> ModelResponse | str:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and "load" in last.content:
            return ModelResponse("", (ToolCall("c", "load_skill", {"name": name}),))
        return last.content

    return answer


def rewrite(folder: Path, name: str, body: str) -> None:
    """Replace a skill's file as an editor does: a new file under the old name."""
    target = folder / name / "SKILL.md"
    new = target.with_suffix(".new")
    new.write_text(f"---\nname: {name}\ndescription: Made anew.\n---\n{body}\n")
    new.replace(target)


def prompts(request: ModelRequest) -> list[str]:
    return [message.content for message in request.messages if isinstance(message, UserMessage)]


@pytest.mark.row("B17")
async def test_new_turns_use_what_a_refresh_found(open_agent: OpenAgent, skill_folder: Path, script: Script) -> None:
    script(loads("count"))
    bench = await open_agent(PerEvent, skill_folder)
    before = bench.runtime.generation
    assert not await bench.runtime.skills.refresh()
    assert bench.runtime.generation is before
    rewrite(skill_folder, "count", "Count twice.")
    shutil.copytree(skill_folder / "shout", skill_folder / "third")
    rewrite(skill_folder, "third", "Third.")
    assert await bench.runtime.skills.refresh()
    after = bench.runtime.generation
    assert after.number == before.number + 1
    assert after.model(None).view.names == ("count", "shout", "third")
    assert "third" in after.model(None).system
    assert before.model(None).view.names == ("count", "shout")
    outcome = await bench.turn("load it")
    assert "Count twice." in outcome.outputs[0][1]


async def test_a_running_turn_keeps_what_it_began_with(
    open_agent: OpenAgent, skill_folder: Path, script: Script
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    systems: list[str] = []

    async def answer(request: ModelRequest) -> ModelResponse | str:
        systems.append(request.system)
        if len(systems) == 1:
            reached.set()
            await go_on.wait()
            return ModelResponse("", (ToolCall("c", "load_skill", {"name": "late"}),))
        return request.messages[-1].content

    script(answer)
    bench = await open_agent(PerEvent, skill_folder)
    turn = asyncio.create_task(bench.turn("x"))
    await asyncio.wait_for(reached.wait(), DEADLINE)
    shutil.copytree(skill_folder / "shout", skill_folder / "late")
    rewrite(skill_folder, "late", "Late.")
    assert await bench.runtime.skills.refresh()
    go_on.set()
    outcome = await turn
    assert "There is no skill 'late'" in outcome.outputs[0][1]
    assert systems[0] == systems[1]
    assert "late" in bench.runtime.generation.model(None).system


async def test_a_session_is_told_once_and_can_load_the_skill_again(
    open_agent: OpenAgent, skill_folder: Path, script: Script
) -> None:
    model = script(loads("count"))
    bench = await open_agent(Keyed, skill_folder)
    first = await bench.turn("load it")
    rewrite(skill_folder, "count", "Count twice.")
    assert await bench.runtime.skills.refresh()
    second = await bench.turn("go on", number=2, session=first.session)
    told = prompts(model.requests[-1])
    assert named_in_notice(UserMessage(told[-2])) == {"count"}
    assert told[-1] == "go on"
    third = await bench.turn("and on", number=3, session=second.session)
    assert sum(bool(named_in_notice(UserMessage(text))) for text in prompts(model.requests[-1])) == 1
    assert prompts(model.requests[-1])[-1] == "and on"
    fourth = await bench.turn("load it", number=4, session=third.session)
    assert "Count twice." in fourth.outputs[0][1]
    fifth = await bench.turn("on", number=5, session=fourth.session)
    assert fifth.outputs[0][1] == "on"
    assert sum(bool(named_in_notice(UserMessage(text))) for text in prompts(model.requests[-1])) == 1


async def test_a_session_is_told_of_a_skill_that_is_gone(
    open_agent: OpenAgent, skill_folder: Path, script: Script
) -> None:
    model = script(loads("count"))
    bench = await open_agent(Keyed, skill_folder)
    first = await bench.turn("load it")
    shutil.rmtree(skill_folder / "count")
    assert await bench.runtime.skills.refresh()
    second = await bench.turn("go on", number=2, session=first.session)
    (notice,) = [text for text in prompts(model.requests[-1]) if named_in_notice(UserMessage(text))]
    assert "no longer available" in notice
    third = await bench.turn("load it", number=3, session=second.session)
    assert "There is no skill 'count'" in third.outputs[0][1]


async def test_a_session_that_did_not_load_it_and_one_event_sessions_are_not_told(
    open_agent: OpenAgent, skill_folder: Path, script: Script
) -> None:
    model = script(loads("count"))
    keyed = await open_agent(Keyed, skill_folder)
    other = await keyed.turn("hello")
    single = await open_agent(PerEvent, skill_folder)
    loaded = await single.turn("load it")
    rewrite(skill_folder, "count", "Count twice.")
    for bench, outcome in ((keyed, other), (single, loaded)):
        assert await bench.runtime.skills.refresh()
        await bench.turn("go on", number=2, session=outcome.session)
        assert not any(named_in_notice(UserMessage(text)) for text in prompts(model.requests[-1]))


async def test_a_replay_tells_what_the_first_run_told(
    open_agent: OpenAgent, skill_folder: Path, script: Script
) -> None:
    """The journal decides: with a notice although the skill changed back, without one although it changed since."""
    model = script(loads("count"))
    bench = await open_agent(Keyed, skill_folder)
    first = await bench.turn("load it")
    original = (skill_folder / "count" / "SKILL.md").read_text()

    whole = await bench.turn("go on", number=2, session=first.session)
    untold = list(bench.journal)
    rewrite(skill_folder, "count", "Count twice.")
    assert await bench.runtime.skills.refresh()
    again = await bench.turn("go on", number=2, session=first.session, journal=untold)
    assert again.change == whole.change

    whole = await bench.turn("go on", number=2, session=first.session)
    told = list(bench.journal)
    (skill_folder / "count" / "SKILL.md").write_text(original)
    assert await bench.runtime.skills.refresh()
    asked = len(model.requests)
    again = await bench.turn("go on", number=2, session=first.session, journal=told)
    assert len(model.requests) == asked
    assert again.change == whole.change
    assert again.session.conversation().skill_states == whole.session.conversation().skill_states


async def test_the_offline_model_loads_a_changed_skill_again(open_agent: OpenAgent, skill_folder: Path) -> None:
    bench = await open_agent(Offline, skill_folder)
    first = await bench.turn("count the letters of this text")
    assert first.outputs[0][1] == str(len("count the letters of this text"))
    second = await bench.turn("count the letters", number=2, session=first.session)
    assert second.outputs[0][1] == str(len("count the letters"))
    (skill_folder / "count" / "scripts" / "count.sh").write_text("cat; echo ' counted'\n")
    assert await bench.runtime.skills.refresh()
    third = await bench.turn("count the letters", number=3, session=second.session)
    assert third.outputs[0][1] == "count the letters counted"


async def test_a_refresh_that_cannot_be_used_keeps_the_skills(
    open_agent: OpenAgent, skill_folder: Path, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script(loads("count"))
    bench = await open_agent(Filtered, skill_folder)
    before = bench.runtime.generation
    hidden = skill_folder.parent / "hidden"
    (skill_folder / "count").rename(hidden)
    assert not await bench.runtime.skills.refresh()
    assert bench.runtime.generation is before
    assert bench.runtime.figures()["refreshFailures"] == 1
    assert "unknown skill 'count' in skill_names of chat model 'chat_model' of agent keyed" in caplog.text
    hidden.rename(skill_folder / "count")
    rewrite(skill_folder, "count", "Count again.")
    assert await bench.runtime.skills.refresh()
    assert "Count again." in (await bench.turn("load it")).outputs[0][1]
    assert bench.runtime.figures()["refreshes"] == 2


async def test_a_source_that_goes_away_is_said_once_and_counted(
    open_agent: OpenAgent, skill_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await open_agent(Offline, skill_folder)
    away = skill_folder.parent / "away"
    shutil.move(skill_folder, away)
    with caplog.at_level(logging.INFO):
        assert not await bench.runtime.skills.refresh()
        assert not await bench.runtime.skills.refresh()
    assert bench.runtime.generation.model(None).view.names == ("count", "shout")
    assert caplog.text.count("does not exist") == 1
    assert bench.runtime.figures()["refreshFailures"] == 2
    shutil.move(away, skill_folder)
    await bench.runtime.skills.refresh()
    assert bench.runtime.figures()["refreshFailures"] == 2


@pytest.mark.row("B17", "K3")
async def test_an_interval_refreshes_by_itself_and_ends_with_the_agent(skill_folder: Path, tmp_path: Path) -> None:
    figures: list[dict[str, int]] = []
    before = asyncio.all_tasks()
    config = SkillConfig({"skills.refresh.interval": "20 ms", "skills.store.dir": str(tmp_path / "store")})
    plan = compile_plan(Offline, job_scopes=[SkillScope(level="job", paths=(str(skill_folder),))], config=config)
    runtime = await open_plan(
        plan, scratch_dir=str(tmp_path / "scratch"), on_figures=lambda latest: figures.append(dict(latest))
    )
    try:
        assert figures[0]["skills"] == 2
        assert (figures[0]["generation"], figures[0]["refreshes"]) == (1, 0)
        shutil.rmtree(skill_folder / "count")
        await until(lambda: runtime.generation.number == 2)
        await until(lambda: figures[-1]["skills"] == 1)
        assert figures[-1]["refreshes"] >= 1
    finally:
        await runtime.close()
    assert asyncio.all_tasks() == before


async def test_opening_says_once_what_it_found(
    open_agent: OpenAgent, skill_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (skill_folder / "broken").mkdir()
    (skill_folder / "broken" / "SKILL.md").write_text("no front matter\n")
    rewrite(skill_folder, "count", "See [the guide](guide.md).")
    with caplog.at_level(logging.INFO, "flink_skills.runtime"):
        bench = await open_agent(Offline, skill_folder)
    records = [record for record in caplog.records if record.name == "flink_skills.runtime"]
    (summary,) = [record for record in records if "is open" in record.message]
    assert "2 skills from 1 source (0 failed); 1 error," in summary.message
    assert records[0] is summary
    said = [record.message for record in records[1:]]
    assert len(said) == len(set(said))
    assert len([text for text in said if "F02" in text]) == 1
    assert len([text for text in said if "F19" in text]) == 1
    levels = {code: record.levelno for record in records[1:] for code in ("F02", "F19") if code in record.message}
    assert levels == {"F02": logging.ERROR, "F19": logging.INFO}
    figures = bench.runtime.figures()
    assert (figures["skills"], figures["diagnosticErrors"], figures["failedSources"]) == (2, 1, 0)
    assert figures["diagnosticInfos"] >= 1


async def test_strict_fails_with_all_errors_at_once(open_agent: OpenAgent, skill_folder: Path) -> None:
    for name in ("broken", "empty"):
        (skill_folder / name).mkdir()
        (skill_folder / name / "SKILL.md").write_text("no front matter\n")
    with pytest.raises(SkillFormatError, match="2 errors") as failure:
        await open_agent(Offline, skill_folder, **{"skills.strict": True})
    assert "broken" in str(failure.value) and "empty" in str(failure.value)


def lock_of(folder: Path) -> SkillLock:
    found = [load_folder(str(child), root=str(folder)).skill for child in sorted(folder.iterdir())]
    return SkillLock.of([skill for skill in found if skill is not None])


async def test_a_lock_is_held_where_the_agent_opens_and_when_it_refreshes(
    open_agent: OpenAgent, skill_folder: Path, tmp_path: Path, script: Script
) -> None:
    script(loads("count"))
    file = tmp_path / "skills.lock"
    file.write_text(lock_of(skill_folder).to_text())
    bench = await open_agent(Keyed, skill_folder, **{"skills.lock": str(file)})
    rewrite(skill_folder, "count", "Not what was locked.")
    assert not await bench.runtime.skills.refresh()
    assert bench.runtime.figures()["refreshFailures"] == 1
    with pytest.raises(SkillLockError, match="'count'") as failure:
        await open_agent(Keyed, skill_folder, **{"skills.lock": str(file)})
    assert not failure.value.retryable
    with pytest.raises(ConfigError, match="cannot be read"):
        await open_agent(Keyed, skill_folder, **{"skills.lock": str(tmp_path / "nowhere")})


async def test_a_source_that_is_away_is_no_mismatch_of_the_lock(
    open_agent: OpenAgent, skill_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "skills.lock"
    file.write_text(lock_of(skill_folder).to_text())
    with pytest.raises(SourceError):
        await open_agent(Offline, tmp_path / "away", **{"skills.lock": str(file)})


def test_a_notice_names_its_skills_and_nothing_else_is_one() -> None:
    names = ['a"b', "x<y>&", "plain"]
    message = notice_message([Notice(name, gone=name == "plain") for name in names])
    assert named_in_notice(message) == set(names)
    assert named_in_notice(UserMessage("go on <skills_changed>")) == set()
    assert named_in_notice(ToolMessage("i", "load_skill", message.content)) == set()
