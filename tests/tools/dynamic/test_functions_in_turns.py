"""Functions as tools of a pool, in whole turns: schema, context, lifetimes, sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flink_skills import (
    Agent,
    ResourceDescriptor,
    SkillOptions,
    ToolContext,
    chat_model_setup,
    tool_pool,
)
from flink_skills.models import ToolMessage
from flink_skills.testing import ScriptedModel, call, calls
from flink_skills.tools import TOOL_NAMES, FunctionTool
from tests.kit.local import local_environment
from tests.kit.models import scripted_provider

PROVIDER = "functions-test"


class Address(BaseModel):
    street: str
    zip_code: int


def ship(article: str, to: Address, kilograms: float, fragile: bool, notes: list[str], options: dict[str, int]) -> Any:
    """Send an article to an address.

    Args:
        article: Number of the article.
        kilograms: Weight with packing.

    Returns:
        What was sent.
    """
    return {"sent": article, "to": to.zip_code, "weight": kilograms, "notes": len(notes), "fragile": fragile}


def who_asks(context: ToolContext) -> str:
    "For whom the call is."
    return f"{context.agent} {context.key} {context.turn}"


def breaks(how: str) -> str:
    "Breaks."
    raise ValueError(how)


class Counter:
    """A callable object with a state."""

    def __call__(self, by: int) -> int:
        "Count on."
        return by + 1


Run = Callable[..., ScriptedModel]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    def turns(
        answers: Any, pool: list[Any], events: int = 1, tools: tuple[str, ...] = (), **said: Any
    ) -> ScriptedModel:
        folder = tmp_path / "skills" / "kit"
        folder.mkdir(parents=True, exist_ok=True)
        names = tools or tuple(item.spec.name if isinstance(item, FunctionTool) else item.__name__ for item in pool)
        section = "\n".join(f"- {name}" for name in names)
        (folder / "SKILL.md").write_text(f"---\nname: kit\ndescription: All tools.\n---\nTools:\n{section}\n\nEnd\n")

        class Clerk(Agent):
            name = "clerk"
            session = "key"

            @chat_model_setup
            def model(self) -> ResourceDescriptor:
                return ResourceDescriptor(clazz=f"{PROVIDER}.setup", skill_tools="full", **said)

            @tool_pool
            def business(self) -> list[Any]:
                return pool

        model = script(answers)
        env = local_environment()
        env.add_skills_from_paths([str(tmp_path / "skills")])
        env.get_config().set(SkillOptions.SHELL_ENABLED, False)
        output = env.from_list(["event"] * events, key_selector=lambda _: "key").apply(Clerk())
        assert output.to_list("errors") == []
        return model

    with scripted_provider(PROVIDER) as script:
        yield turns


LOAD = calls(call("skill_load", skill="kit"))


def offered(request: Any) -> dict[str, Any]:
    return {spec.name: spec for spec in request.tools if spec.name not in TOOL_NAMES}


def told(model: ScriptedModel) -> list[ToolMessage]:
    return [message for message in model.requests[-1].messages if isinstance(message, ToolMessage)][1:]


@pytest.mark.row("J1", "J33")
def test_signature_and_docstring_are_what_a_model_is_told(run: Run) -> None:
    arguments = {
        "article": "7",
        "to": {"street": "Gasse", "zip_code": 89073},
        "kilograms": 1.5,
        "fragile": True,
        "notes": ["a"],
        "options": {},
    }
    count = FunctionTool(Counter(), name="count")
    model = run(
        [LOAD, calls(call("ship", **arguments), call("ship", article="7"), call("count", by=2)), "done"], [ship, count]
    )
    spec = offered(model.requests[1])["ship"]
    assert spec.description == "Send an article to an address. Returns: What was sent."
    properties = spec.parameters["properties"]
    assert properties["article"] == {"type": "string", "description": "Number of the article."}
    assert properties["kilograms"]["type"] == "number"
    assert properties["fragile"]["type"] == "boolean"
    assert properties["notes"] == {"type": "array", "items": {"type": "string"}}
    assert properties["options"]["type"] == "object"
    assert "zip_code" in json.dumps(spec.parameters)
    assert set(spec.parameters["required"]) == set(arguments)
    sent, refused, counted = told(model)
    assert json.loads(sent.content) == {"sent": "7", "to": 89073, "weight": 1.5, "notes": 1, "fragile": True}
    assert refused.is_error
    assert "ship: the arguments do not fit" in refused.content
    assert "- to: Field required" in refused.content
    assert counted.content == "3"


@pytest.mark.row("J2")
def test_the_context_is_filled_in_and_hidden(run: Run) -> None:
    model = run([LOAD, calls(call("who_asks")), "done"], [who_asks])
    assert offered(model.requests[1])["who_asks"].parameters["properties"] == {}
    assert told(model)[0].content == "clerk key 1"


@pytest.mark.row("I6")
@pytest.mark.parametrize(("lifetime", "later"), [("turn", []), ("session", ["who_asks"])])
def test_tools_stay_as_long_as_their_skill(run: Run, lifetime: str, later: list[str]) -> None:
    model = run([LOAD, "done", "done"], [who_asks], events=2, skill_lifetime=lifetime)
    assert [list(offered(request)) for request in model.requests] == [[], ["who_asks"], later]


@pytest.mark.row("C2")
def test_a_skill_lists_what_it_declares_and_nothing_else(run: Run) -> None:
    model = run(
        [LOAD, calls(call("skill_list_tools", skill_name="kit")), "done"], [who_asks, breaks], tools=("breaks", "gone")
    )
    assert told(model)[0].content == '["breaks", "gone"]'


@pytest.mark.row("C15")
@pytest.mark.parametrize(("there", "chosen", "saved"), [(3, 1, 2 / 3), (3, 2, 1 / 3), (10, 2, 0.8)])
def test_a_selection_saves_the_share_of_tools_that_it_leaves_out(
    run: Run, there: int, chosen: int, saved: float
) -> None:
    pool = [FunctionTool(ship, name=f"ship_{number}") for number in range(there)]
    names = [tool.spec.name for tool in pool]
    model = run(
        [LOAD, calls(call("skill_select_tools", skill="kit", tools=names[:chosen])), calls(call("skill_list")), "done"],
        pool,
    )

    def size(request: Any) -> int:
        return sum(len(json.dumps([s.name, s.description, s.parameters])) for s in offered(request).values())

    _, before, after, still = map(size, model.requests)
    assert 1 - after / before == pytest.approx(saved, abs=0.01)
    assert still == after
