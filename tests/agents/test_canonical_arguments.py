"""One form of a call's arguments for hooks, approvers, questions, records, events, spans and the tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import AliasChoices, BaseModel, Field, SecretStr

from flink_skills import (
    Agent,
    AgentContext,
    Approval,
    ApprovalRequest,
    Refusal,
    Tool,
    ToolContext,
    ToolInvocation,
    ToolResult,
    ToolSpec,
    agent_tool,
    later,
    tool,
    tool_set,
)
from flink_skills.models import ModelRequest, ToolMessage
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.local import local_environment

SEEN: list[Mapping[str, Any]] = []
RAN: list[Any] = []
#: The answers of the model in turns that fail, whose error record has the calls.
SAID: list[Any] = []


def nothing_is_kept() -> None:
    for kept in (SEEN, RAN, SAID):
        kept.clear()


nothing_is_seen = pytest.fixture(autouse=True)(nothing_is_kept)


class Line(BaseModel):
    """One line of an order."""

    article: str
    pieces: int = 1


class Request(BaseModel):
    """The request to an agent that is a tool."""

    cents: int = Field(validation_alias=AliasChoices("cents", "Cents"))
    currency: str = "EUR"


class Wired(Tool):
    """A tool of a user, described by a JSON schema alone."""

    spec = ToolSpec(
        "wire",
        "Send money.",
        {
            "type": "object",
            "properties": {"cents": {"type": "integer"}, "to": {"type": "string"}, "currency": {"default": "EUR"}},
            "required": ["cents"],
        },
    )

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        RAN.append(dict(arguments))
        return ToolResult("wired")


class Bank(Agent):
    """The agent behind a tool."""

    model = "offline"
    input_type = Request

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        RAN.append(event)
        return "banked"


class Desk(Agent):
    """Pays, with every kind of tool."""

    name = "desk"
    model = "offline"
    approve_tools = ("*",)

    @tool(idempotent=False)
    def pay(self, order: str, cents: int, currency: str = "EUR") -> str:
        """Pay a refund."""
        RAN.append({"order": order, "cents": cents, "currency": currency})
        return f"paid {cents}"

    @tool
    def book(self, lines: list[Line], note: str | None = None) -> str:
        """Book lines."""
        RAN.append(lines)
        return "booked"

    @tool
    def login(self, password: SecretStr) -> str:
        """Log in."""
        RAN.append(password.get_secret_value())
        return "welcome"

    @tool
    def tagged(self, tags: set[str], more: Annotated[int, Field(ge=1)] = 2) -> str:
        """Tag."""
        RAN.append((tags, more))
        return "tagged"

    @tool_set
    def others(self) -> list[Any]:
        return [Wired()]

    @agent_tool
    def bank(self) -> Any:
        return Bank()

    def approve(self, request: ApprovalRequest) -> Any:
        SEEN.append(request.arguments)
        return True

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        answer = await ctx.chat(event)
        if "record" not in event:
            return answer
        SAID.append(answer)
        raise ValueError("the error record has the calls")


def recorded(agent: type[Agent], name: str, arguments: Mapping[str, Any], answers: Any = (), **options: Any) -> Any:
    """Run a turn that fails after its call, for the record."""
    return run(agent, name, arguments, answers, {"order": "A-1", "record": True}, **options)


def run(
    agent: type[Agent],
    name: str,
    arguments: Mapping[str, Any],
    answers: Any = (),
    order: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Run one turn whose model makes one call, and answers with its result. The answers get the id of the question."""
    if answers:
        (asked,) = run(agent, name, arguments, (), order, **options).to_wait_list()[:1]
        answers = [{"wait_id": asked["wait_id"], **answer} for answer in answers]
        nothing_is_kept()

    def script(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.content if isinstance(last, ToolMessage) else calls(call(name, **arguments))

    env = local_environment()
    if "skills" in options:
        env.add_skills_from_paths([options.pop("skills")])
    for key, value in options.items():
        env.get_config().set(key, value)
    with agent.override(model=ScriptedModel(script)):
        output = env.from_list([order or {"order": "A-1"}], "order").apply(agent)
        output = output.answers([{"order": "A-1", **answer} for answer in answers], "order") if answers else output
        output.to_list()
    return output


def record(output: Any) -> dict[str, Any]:
    found: dict[str, Any] = output.to_list("errors")[0]["tool_calls"][0]
    return found


def event(output: Any) -> dict[str, Any]:
    found: dict[str, Any] = next(of for of in output.to_event_list() if of["kind"] == "tool")
    return {**found, "detail": json.loads(found["detail"] or "{}")}


# what approvers see is what runs


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("pay", {"order": "A-1", "cents": "9000"}, {"order": "A-1", "cents": 9000, "currency": "EUR"}),
        ("pay", {"order": "A-1", "cents": 5.0}, {"order": "A-1", "cents": 5, "currency": "EUR"}),
        ("wire", {"Cents": "9000", "to": None}, {"cents": 9000, "currency": "EUR"}),
        ("bank", {"Cents": "9000"}, {"cents": 9000, "currency": "EUR"}),
    ],
)
def test_an_approver_sees_the_names_types_and_defaults_of_the_call(
    name: str, given: dict[str, Any], shown: dict[str, Any]
) -> None:
    output = recorded(Desk, name, given)
    assert SEEN == RAN == [shown]
    assert json.dumps(record(output)["arguments"], sort_keys=True) == json.dumps(shown, sort_keys=True)
    # 5.0 and 5 are one number.
    assert record(output).get("requested_arguments") == (given if given.get("cents") != 5 else None)


def test_arguments_that_a_default_completes_are_not_recorded_twice() -> None:
    output = recorded(Desk, "pay", {"order": "A-1", "cents": 5})
    assert record(output) == {
        "name": "pay",
        "arguments": {"order": "A-1", "cents": 5, "currency": "EUR"},
        "error": False,
    }


def test_models_of_arguments_are_shown_as_json_and_passed_as_models() -> None:
    run(Desk, "book", {"lines": [{"article": "tea", "pieces": "2"}, {"article": "cup"}], "note": None})
    assert SEEN == [{"lines": [{"article": "tea", "pieces": 2}, {"article": "cup", "pieces": 1}]}]
    (lines,) = RAN
    assert lines == [Line(article="tea", pieces=2), Line(article="cup")]


def test_a_value_without_a_json_form_that_is_read_again_stays_as_it_was_given() -> None:
    run(Desk, "login", {"password": "pl4nted"})
    assert SEEN == [{"password": "pl4nted"}]
    assert RAN == ["pl4nted"]
    run(Desk, "tagged", {"tags": ["b", "a", "b"]})
    assert SEEN[1] == {"tags": ["b", "a", "b"], "more": 2}
    assert RAN[1] == ({"a", "b"}, 2)


def test_an_approver_cannot_change_the_call_in_place() -> None:
    class Careless(Desk):
        def approve(self, request: ApprovalRequest) -> Any:
            request.arguments["cents"] = 1  # type: ignore[index]
            return True

    run(Careless, "pay", {"order": "A-1", "cents": 5})
    assert RAN == [{"order": "A-1", "cents": 5, "currency": "EUR"}]


# a call that does not fit asks no approver


class Watched(Desk):
    """Has a hook and an approver that ask a person."""

    hooked: ClassVar[list[Any]] = []

    async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
        self.hooked.append(call.arguments)
        return await call.run()

    def approve(self, request: ApprovalRequest) -> Any:
        SEEN.append(request.arguments)
        return later("Pay?", timeout=5)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("pay", {"order": "A-1"}, "cents: Missing required argument|cents: Field required"),
        ("pay", {"order": "A-1", "cents": "abc"}, "cents: Input should be a valid integer"),
        ("pay", {"order": "A-1", "cents": 5, "Cents": 9000}, "Cents"),
        ("wire", {"cents": 5, "Cents": 9000}, "the argument cents is given twice, as 'cents' and 'Cents'"),
        ("wire", {"Cents": 9000, "CENTS": 5}, "the argument cents is given twice, as 'Cents' and 'CENTS'"),
        ("wire", {"to": "ann"}, "cents is missing"),
        ("wire", {"cents": "many"}, "cents must be an integer"),
        ("bank", {"cents": 5, "Cents": 9000}, "the argument cents is given twice"),
        ("bank", {"currency": "EUR"}, "cents"),
        ("none", {"cents": 1}, "There is no tool 'none'"),
    ],
)
def test_a_call_that_does_not_fit_asks_no_approver(name: str, given: dict[str, Any], said: str) -> None:
    Watched.hooked.clear()
    output = recorded(Watched, name, given)
    (answer,) = SAID
    assert any(part in answer for part in said.split("|")), answer
    assert (SEEN, RAN, Watched.hooked, output.to_wait_list()) == ([], [], [], [])
    assert record(output) == {"name": name, "arguments": given, "error": True}
    assert event(output)["status"] == "error"


SHELL = {
    "skills.shell.enabled": True,
    "skills.shell.backend": "hygiene",
    "skills.shell.min-isolation": "HYGIENE",
}


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, Any]:
    """Return the options of a job with commands, which need a skill."""
    skill = tmp_path / "skills" / "greet" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: greet\ndescription: Says hello.\n---\nSay hello.\n")
    return {**SHELL, "skills": str(skill.parent.parent)}


@pytest.mark.parametrize("other", ["Command", "COMMAND", "cmd", "Cmd", "command_"])
def test_two_spellings_of_a_command_run_nothing(tmp_path: Path, shell: dict[str, Any], other: str) -> None:
    planted = tmp_path / "planted"
    given = {other: f"touch {planted}", "command": "echo safe"}
    for arguments in (given, dict(reversed(given.items()))):
        output = run(Watched, "execute_shell_command", arguments, **shell)
        assert "given twice" in output.to_list()[0]
    assert not planted.exists()
    assert SEEN == []


def test_a_command_under_another_name_is_shown_as_the_command(shell: dict[str, Any]) -> None:
    output = recorded(Desk, "execute_shell_command", {"Cmd": "echo safe", "why": "to see"}, **shell)
    assert SEEN == [{"command": "echo safe", "timeout": 300.0}]
    assert "safe" in SAID[0]
    assert record(output)["requested_arguments"] == {"Cmd": "echo safe", "why": "to see"}


# changed arguments


class Halved(Desk):
    """The hook changes the amount."""

    approve_tools = ()

    async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
        return await call.run({**call.arguments, "cents": call.arguments["cents"] // 2})


class Capped(Desk):
    """The approver changes the amount."""

    def approve(self, request: ApprovalRequest) -> Any:
        return Approval(True, arguments={**request.arguments, "cents": 50})


class Asking(Desk):
    """A person decides."""

    def approve(self, request: ApprovalRequest) -> Any:
        return later("Pay?")


@pytest.mark.parametrize(
    ("agent", "given", "answers", "ran"),
    [
        (Halved, 12900, (), 6450),
        (Capped, 12900, (), 50),
        (Asking, 12900, [{"approved": True, "arguments": {"order": "A-1", "cents": "50"}}], 50),
    ],
)
def test_record_event_and_span_have_the_arguments_that_ran(
    agent: type[Agent], given: int, answers: Any, ran: int
) -> None:
    output = recorded(agent, "pay", {"order": "A-1", "cents": given}, answers, **{"skills.events.content": "full"})
    shown = {"order": "A-1", "cents": ran, "currency": "EUR"}
    requested = {"order": "A-1", "cents": given}
    (call_that_ran,) = RAN
    assert call_that_ran == shown
    assert record(output) == {"name": "pay", "arguments": shown, "error": False, "requested_arguments": requested}
    detail = event(output)["detail"]
    assert json.loads(detail["arguments"]) == shown
    assert json.loads(detail["requested_arguments"]) == requested
    assert detail["arguments_sha256"] != detail["requested_arguments_sha256"]


@pytest.mark.parametrize(
    "arguments", [{"order": "A-1", "cents": "abc"}, {"order": "A-1"}, {"order": "A-1", "Cents": 5}]
)
def test_an_approver_that_changes_arguments_to_others_that_do_not_fit_pays_nothing(
    arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Desk):
        def approve(self, request: ApprovalRequest) -> Any:
            return Approval(True, arguments=arguments)

    output = run(Wrong, "pay", {"order": "A-1", "cents": 5})
    assert output.to_list()[0].startswith("pay was not called: approve() approved the call with other arguments")
    assert RAN == []
    assert "approve() changed the arguments of tool pay" in caplog.text


def test_a_hook_that_changes_arguments_to_others_that_do_not_fit_gets_the_error_of_the_tool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Wrong(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            return await call.run({**call.arguments, "cents": "abc"})

    output = run(Wrong, "pay", {"order": "A-1", "cents": 5})
    assert "cents: Input should be a valid integer" in output.to_list()[0]
    assert (SEEN, RAN) == ([], [])
    assert "a hook of agent desk changed the arguments of tool pay" in caplog.text


def test_a_hook_that_refuses_leaves_the_canonical_arguments_in_the_record() -> None:
    class Closed(Desk):
        async def around_tool(self, call: ToolInvocation, ctx: AgentContext) -> Any:
            call.arguments["cents"] = 1  # type: ignore[index]
            return Refusal("closed")

    output = recorded(Closed, "pay", {"order": "A-1", "cents": "5"})
    assert record(output)["arguments"] == {"order": "A-1", "cents": 5, "currency": "EUR"}
    assert RAN == []
