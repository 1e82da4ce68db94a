"""Annotations mean the same on each supported Python, for agents, tools and tables."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
from typing import Annotated, Any, Callable, ClassVar, Literal, Union  # noqa: UP035 - as users write them

import pytest

from flink_skills import Agent, PlanError, tool, tool_pool
from flink_skills.agents import compile_plan
from flink_skills.hints import is_class, type_hints
from flink_skills.prompts import fields_of_type
from flink_skills.tools import FunctionTool

pytestmark = pytest.mark.each_python


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


# Objects, as a module without the import from __future__ has them.
ANNOTATIONS: dict[str, tuple[Any, Any]] = {
    "list": (list["Line"], list[Line]),
    "string": ("list['Line']", list[Line]),
    "nested": (dict[str, list["Line"]], dict[str, list[Line]]),
    "string in a string": (list["list['Line']"], list[list[Line]]),
    "optional": (Union[list["Line"], None], Union[list[Line], None]),
    "union": (list["Line"] | None, Union[list[Line], None]),
    "annotated": (Annotated[list["Line"], "x"], Annotated[list[Line], "x"]),
    "callable": (Callable[["Line"], int], Callable[[Line], int]),
    "tuple": (tuple["Line", ...], tuple[Line, ...]),
    "literal": (Literal["Line"], Literal["Line"]),
    "list of literals": (list[Literal["Line"]], list[Literal["Line"]]),
    "plain": (int, int),
}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_names_in_built_in_generics_are_resolved(name: str) -> None:
    written, meant = ANNOTATIONS[name]

    def function(value):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    function.__annotations__ = {"value": written, "return": written}
    holder = type("Holder", (), {"__annotations__": {"value": written}, "__module__": __name__})
    inherits = type("Inherits", (holder,), {"__annotations__": {"own": int}, "__module__": __name__})
    assert type_hints(function, include_extras=True) == {"value": meant, "return": meant}
    assert type_hints(holder, include_extras=True) == {"value": meant}
    assert type_hints(inherits, include_extras=True) == {"value": meant, "own": int}


def test_a_default_of_none_does_not_change_the_type() -> None:
    def function(limit: int = None, text: str | None = None) -> None:  # type: ignore[assignment] # noqa: RUF013
        raise NotImplementedError

    assert type_hints(function) == {"limit": int, "text": str | None, "return": type(None)}


def test_class_variables_and_extras() -> None:
    class Holder:
        shared: ClassVar[list[Line]]
        described: Annotated[int, "cents"]

    assert type_hints(Holder) == {"shared": ClassVar[list[Line]], "described": int}
    with pytest.raises(NameError, match="Missing"):
        type_hints(type("Wrong", (), {"__annotations__": {"value": "Missing"}, "__module__": __name__}))


@pytest.mark.parametrize("value", [list[int], dict[str, int], collections.abc.Callable[[int], int], int | None, 1])
def test_generics_are_not_classes(value: Any) -> None:
    assert not is_class(value)
    assert fields_of_type(value) is None


def test_classes_are_classes() -> None:
    assert is_class(Line) and is_class(list) and is_class(type)
    assert fields_of_type(Line) == ("sku", "count")


@pytest.mark.parametrize("returned", [list[int], dict[str, int], "list[int]", list[int] | None, Any, None])
def test_a_tool_without_arguments_returns_any_type(returned: Any) -> None:
    def codes(self):  # type: ignore[no-untyped-def]
        """List the codes."""
        return [1]

    codes.__annotations__["return"] = returned
    plan = compile_plan(type("Codes", (Agent,), {"model": "offline", "codes": tool(codes)}))
    assert "codes" in json.dumps(plan.to_json(), default=str)


@pytest.mark.parametrize(
    "attributes",
    [
        {"state_type": dict[str, int]},
        {"model": list[int]},
        {"pool": tool_pool(lambda self: [list[int]])},
    ],
    ids=["state", "model", "pool"],
)
def test_a_generic_in_place_of_a_class_is_an_error_of_the_plan(attributes: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=r"list\[int\]|dict\[str, int\]"):
        compile_plan(type("Wrong", (Agent,), {"model": "offline", **attributes}))
    with pytest.raises(PlanError, match="takes an Agent class or instance"):
        compile_plan(list[int])  # type: ignore[arg-type]


@pytest.mark.parametrize("output_type", [list[Line], dict[str, int]])
def test_a_generic_is_a_type_of_outputs(output_type: Any) -> None:
    compile_plan(type("Typed", (Agent,), {"model": "offline", "output_type": output_type}))


def test_tools_describe_their_arguments_alike() -> None:
    def order(lines, limit=None):  # type: ignore[no-untyped-def]
        """Order lines."""

    order.__annotations__ = {"lines": list["Line"], "limit": int, "return": str}
    properties = FunctionTool(order).spec.parameters["properties"]
    assert properties == {
        "lines": {"items": {"$ref": "#/$defs/Line"}, "type": "array"},
        "limit": {"default": None, "type": "integer"},
    }
