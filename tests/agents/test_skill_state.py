"""How long skills stay loaded, where their content stands in requests, and what a restart makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, agent_tool, tool
from flink_skills.agents import TurnStatus
from flink_skills.models import ModelRequest, ToolMessage
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script


class Full(Agent):
    model = "scripted:m"
    session = "key"


FULL = {"skills.tools": "full"}


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    root = tmp_path / "three"
    for name in ("ants", "bees", "cats"):
        folder = root / name
        (folder / "references").mkdir(parents=True)
        (folder / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: About {name}.\n---\nBody of {name}.\n\n```sh\necho {name}\n```\n"
        )
        (folder / "references" / "more.md").write_text(f"More about {name}.\n")
        (folder / "other.txt").write_text(f"Other things about {name}.\n")
    return root


def bodies(request: ModelRequest) -> list[str]:
    """The skills whose instructions are in the system text."""
    return [name for name in ("ants", "bees", "cats") if f"Body of {name}." in request.system]


def as_sent(request: ModelRequest) -> str:
    """A request as providers cache it: tools, then the system text, then the messages."""
    tools = [[spec.name, spec.description, spec.parameters] for spec in request.tools]
    return json.dumps([tools, request.system, [repr(message) for message in request.messages]])


def common_share(before: ModelRequest, after: ModelRequest) -> float:
    one, other = as_sent(before).rstrip("]"), as_sent(after)
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return same / len(one)


@pytest.mark.row("D7", "E12")
async def test_for_a_turn_content_is_in_the_system_text_and_the_transcript_has_a_line(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    model = script([calls(call("skill_load", skill="ants")), "done", "again"])
    bench = await open_agent(Full, skills, **FULL)
    first = await bench.turn("x")
    assert [bodies(request) for request in model.requests] == [[], ["ants"]]
    assert "Body of" not in repr(model.requests[1].messages)
    assert "loaded: ants" in repr(model.requests[1].messages)
    second = await bench.turn("y", number=2, session=first.session)
    assert second.status == TurnStatus.DONE
    assert bodies(model.requests[2]) == []
    assert "loaded: ants" in repr(model.requests[2].messages)


@pytest.mark.row("D9")
async def test_for_a_session_it_is_there_until_it_is_unloaded(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    answers = [calls(call("skill_load", skill="ants")), "done", calls(call("skill_unload", skill="ants")), "done"]
    model = script(answers)
    bench = await open_agent(Full, skills, **FULL, **{"skills.load.lifetime": "session"})
    first = await bench.turn("x")
    second = await bench.turn("y", number=2, session=first.session)
    assert second.status == TurnStatus.DONE
    assert [bodies(request) for request in model.requests] == [[], ["ants"], ["ants"], []]
    # Another conversation knows nothing of it.
    model = script(["done"])
    bench = await open_agent(Full, skills, **FULL, **{"skills.load.lifetime": "session"})
    await bench.turn("z")
    assert bodies(model.requests[0]) == []


@pytest.mark.row("D8")
async def test_for_one_request_it_is_there_once_and_the_calls_of_its_answer_still_know_it(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    model = script(
        [
            calls(call("skill_load", skill="ants")),
            calls(call("skill_run", skill="ants", command="cat references/more.md"), prefix="b"),
            calls(call("skill_run", skill="ants", command="true"), prefix="c"),
            "done",
        ]
    )
    bench = await open_agent(Full, skills, **FULL, **{"skills.load.lifetime": "once"})
    assert (await bench.turn("x")).status == TurnStatus.DONE
    assert [bodies(request) for request in model.requests] == [[], ["ants"], [], []]
    results = [message for message in model.requests[3].messages if isinstance(message, ToolMessage)]
    assert "More about ants." in results[1].content
    assert results[2].is_error
    assert "skill_load" in results[2].content


@pytest.mark.row("D10")
async def test_the_skill_used_longest_ago_goes_before_a_request(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    model = script(
        [
            calls(call("skill_load", skill="ants"), call("skill_load", skill="bees")),
            calls(call("skill_select_docs", skill="ants", docs=["other.txt"]), prefix="b"),
            calls(call("skill_load", skill="cats"), prefix="c"),
            "done",
        ]
    )
    bench = await open_agent(Full, skills, **FULL, **{"skills.max-loaded": "2"})
    await bench.turn("x")
    assert [bodies(request) for request in model.requests] == [[], ["ants", "bees"], ["ants", "bees"], ["ants", "cats"]]
    assert "Other things about ants." in model.requests[3].system


@pytest.mark.row("E4", "E11")
async def test_content_in_the_last_result_that_is_about_the_skill(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    model = script(
        [
            calls(call("skill_load", skill="ants")),
            calls(call("skill_select_docs", skill="ants", docs=["other.txt"]), prefix="b"),
            "done",
        ]
    )
    bench = await open_agent(Full, skills, **FULL, **{"skills.load.content": "tool-result"})
    outcome = await bench.turn("x")
    assert len({request.system for request in model.requests}) == 1
    results = [message.content for message in model.requests[2].messages if isinstance(message, ToolMessage)]
    assert "Body of ants." not in results[0]
    assert "Body of ants." in results[1]
    assert "Other things about ants." in results[1]
    # The conversation that is kept has neither.
    kept = repr(outcome.session.conversation().messages)
    assert "loaded: ants" in kept
    assert "Body of" not in kept


@pytest.mark.row("E5")
async def test_what_no_result_can_hold_is_said_in_the_system_text(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    class Loads(Agent):
        model = "scripted:m"

        async def on_event(self, event: Any, ctx: Any) -> Any:
            await ctx.call_tool("load_skill", name="ants")
            return await ctx.chat(event)

    model = script(["done"])
    bench = await open_agent(Loads, skills)
    await bench.turn("x")
    assert "Loaded skill context:" in model.requests[0].system
    assert bodies(model.requests[0]) == ["ants"]


@pytest.mark.row("E5")
async def test_documents_alone_are_no_home_for_instructions(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    class Loads(Full):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            await ctx.call_tool("skill_load", skill="ants")
            return await ctx.chat(event)

    model = script(
        [
            calls(call("skill_select_docs", skill="ants", docs=["other.txt"])),
            calls(call("skill_load", skill="ants", docs=["references/more.md"]), prefix="b"),
            "done",
        ]
    )
    options = {"skills.load.content": "tool-result", "skills.load.lifetime": "session"}
    bench = await open_agent(Loads, skills, **FULL, **options)
    await bench.turn("x")
    assert [bodies(request) for request in model.requests] == [["ants"]] * 3


@pytest.mark.row("D8")
async def test_for_one_request_a_selection_counts_for_the_next(
    open_agent: OpenAgent, script: Script, tmp_path: Path
) -> None:
    class Weighs(Full):
        @tool(dynamic=True)
        def weigh(self) -> str:
            """Weighs."""
            return "5"

    folder = tmp_path / "weighing" / "scales"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: scales\ndescription: Weighs.\n---\nUse it.\n")
    model = script(
        [
            calls(call("skill_load", skill="scales")),
            calls(call("skill_select_tools", skill="scales", tools=["weigh"], mode="add"), prefix="b"),
            "done",
        ]
    )
    bench = await open_agent(Weighs, folder.parent, **FULL, **{"skills.load.lifetime": "once"})
    await bench.turn("x")
    assert ["weigh" in [spec.name for spec in request.tools] for request in model.requests] == [False, False, True]


@pytest.mark.row("E7")
async def test_the_fixed_text_is_there_once_and_never_changes(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    model = script(
        [
            calls(call("skill_list")),
            calls(call("skill_run", skill="bees", command="true"), prefix="b"),
            calls(call("skill_exec", skill="bees", command="true"), prefix="c"),
            "done",
        ]
    )
    bench = await open_agent(Full, skills, **FULL)
    await bench.turn("x")
    first = model.requests[0]
    assert first.system.count("About ants.") == 1
    assert first.system.count("Tooling and workspace guidance:") == 1
    assert all(request.system == first.system and request.tools == first.tools for request in model.requests)


@pytest.mark.row("E2")
@pytest.mark.parametrize("text", ["", "Only run what a skill says."])
async def test_the_guidance_may_be_another_or_none(
    open_agent: OpenAgent, script: Script, skills: Path, text: str
) -> None:
    model = script(["done"])
    bench = await open_agent(Full, skills, **FULL, **{"skills.prompt.guidance": text})
    await bench.turn("x")
    assert "Tooling and workspace guidance" not in model.requests[0].system
    assert model.requests[0].system.rstrip().endswith(text)


@pytest.mark.row("E4", "E11")
async def test_requests_of_a_session_begin_with_the_one_before(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    """What providers cache: as long as a conversation goes on, loading included."""
    script_of_turn = [
        calls(call("load_skill", name="ants")),
        calls(call("execute_shell_command", command="cat references/more.md"), prefix="b"),
        calls(call("load_skill", name="bees"), prefix="c"),
        calls(call("load_skill_resource", name="bees", path="other.txt"), prefix="d"),
        "done",
    ]
    model = script([*script_of_turn, *script_of_turn])
    bench = await open_agent(Full, skills)
    first = await bench.turn("x")
    await bench.turn("y", number=2, session=first.session)
    shares = [common_share(*pair) for pair in zip(model.requests, model.requests[1:], strict=False)]
    assert len(shares) == 9
    assert min(shares) >= 0.95


@pytest.mark.row("D13", "J12")
async def test_what_an_agent_loads_that_is_a_tool_is_not_in_the_prompt_of_its_caller(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    class Helper(Agent):
        """Looks things up."""

        model = "scripted:m"
        instructions = "You look things up."

    class Boss(Agent):
        model = "scripted:m"
        instructions = "You decide."

        @agent_tool
        def look_up(self) -> Agent:
            return Helper()

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if request.system.startswith("You decide."):
            if isinstance(last, ToolMessage):
                return f"heard: {last.content}"
            return calls(call("look_up", request="what of ants"))
        return "found" if isinstance(last, ToolMessage) else calls(call("skill_load", skill="ants"), prefix="h")

    model = script(answer)
    bench = await open_agent(Boss, skills, **FULL)
    outcome = await bench.turn("x")
    assert [value for tag, value in outcome.outputs if not tag] == ["heard: found"]
    mine = [request for request in model.requests if request.system.startswith("You decide.")]
    theirs = [request for request in model.requests if not request.system.startswith("You decide.")]
    assert [bodies(request) for request in mine] == [[], []]
    assert [bodies(request) for request in theirs] == [[], ["ants"]]
    assert theirs[0].messages[0].content == "what of ants"
    spec = next(spec for spec in mine[0].tools if spec.name == "look_up")
    assert spec.description == "Looks things up."


@pytest.mark.row("D4")
async def test_an_agent_knows_what_its_turn_saved(
    open_agent: OpenAgent, script: Script, skills: Path, tmp_path: Path
) -> None:
    class Saves(Full):
        async def on_event(self, event: Any, ctx: Any) -> Any:
            await ctx.chat(event)
            return ctx.artifacts

    command = "mkdir -p out && echo hello > $OUTPUT_DIR/a.txt"
    run = call("skill_run", skill="ants", command=command, output_files=["out/a.txt"], save_as_artifacts=True)
    script([calls(call("skill_load", skill="ants"), run), "done", "done"])
    bench = await open_agent(Saves, skills, **FULL, **{"skills.artifacts.dir": str(tmp_path / "kept")})
    first = await bench.turn("x")
    ((_, saved),) = first.outputs
    assert list(saved) == ["out/a.txt"]
    assert saved["out/a.txt"].startswith("artifact://out/a.txt@")
    second = await bench.turn("y", number=2, session=first.session)
    assert second.outputs == first.outputs, "the conversation goes on, and what it saved is still there"


class Callee(Agent):
    """Asks without end."""

    model = "scripted:m"
    instructions = "You are called."


class Caller(Agent):
    model = "scripted:m"

    @agent_tool(description="Asks somebody else.")
    def ask(self) -> Agent:
        return Callee()


@pytest.mark.row("J12")
async def test_the_limits_of_the_turn_are_those_of_all_its_agents(
    open_agent: OpenAgent, script: Script, skills: Path
) -> None:
    script(
        lambda request: calls(
            call("skill_list" if request.system.startswith("You are called.") else "ask", request="x")
        )
    )
    bench = await open_agent(Caller, skills, **FULL, **{"skills.turn.max-steps": "10"})
    outcome = await bench.turn("x")
    assert outcome.status == TurnStatus.FAILED
    assert "skills.turn.max-steps = 10" in outcome.message


@pytest.mark.row("J12")
async def test_a_callee_whose_code_changed_meanwhile_begins_anew_with_its_turn(
    open_agent: OpenAgent, script: Script
) -> None:
    class Steps(Agent):
        name = "steps"
        argument = "old"

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return await ctx.step("note", str.upper, self.argument)

    class Above(Agent):
        name = "above"

        def __init__(self, callee: Agent) -> None:
            self.callee = callee

        @agent_tool
        def ask(self) -> Agent:
            return self.callee

        async def on_event(self, event: Any, ctx: Any) -> Any:
            return await ctx.call_tool("ask", request=event)

    bench = await open_agent(Above(Steps()))
    await bench.turn("x")
    inner = bench.journal[:1]
    changed = Steps()
    changed.argument = "new"
    bench = await open_agent(Above(changed))
    outcome = await bench.turn("x", journal=inner)
    assert [value for _, value in outcome.outputs] == ["NEW"]
