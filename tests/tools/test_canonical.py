"""Canonical arguments are their own canonical form, for each tool of the package and for those of users."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import importlib
import json
import math
import pkgutil
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel

import flink_skills.tools
from flink_skills.tools import (
    ArgumentError,
    Arguments,
    FunctionTool,
    StreamingFunctionTool,
    Tool,
    ToolContext,
    ToolResult,
    ToolSet,
    ToolSpec,
)
from flink_skills.tools.files import FileToolSet

#: The base class of the arguments of the package's tools.
GIVEN: type[BaseModel] = FileToolSet().tools[0].model.__base__  # type: ignore[attr-defined]


def _given_models() -> list[type[BaseModel]]:
    for module in pkgutil.walk_packages(flink_skills.tools.__path__, "flink_skills.tools."):
        importlib.import_module(module.name)

    def below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
        for derived in model.__subclasses__():
            yield derived
            yield from below(derived)

    return [model for model in below(GIVEN) if model.__module__.startswith("flink_skills.")]


MODELS = _given_models()

TEXTS = st.sampled_from(
    [
        "artifact://x@",
        "COPY",
        "workspace://out/{a,b}",
        "en",
        "python",
        "*",
        "é\x00",
        "",
        " ",
        "\n",
        "a",
        "a.md, b.md",
        '["a", "b"]',
        "[",
        "{}",
        '{"globs": ["x"], "inline": true}',
        "5",
        "5.5",
        "true",
    ]
)
SCALARS = st.one_of(TEXTS, st.integers(-3, 400), st.floats(allow_nan=False, width=32), st.booleans(), st.none())
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.dictionaries(st.sampled_from(["from", "src", "to", "globs", "inline", "maxFiles", "A"]), SCALARS, max_size=3),
    st.lists(st.dictionaries(st.sampled_from(["from", "to", "mode"]), TEXTS, max_size=3), max_size=2),
)
STYLES = (str, str.upper, str.title, lambda name: name.replace("_", "-"))


@st.composite
def call_arguments(draw: st.DrawFn) -> tuple[type[BaseModel], dict[str, Any]]:
    model = draw(st.sampled_from(MODELS))
    names = list(Arguments("tool", model).schema["properties"]) + list(model.model_fields)
    chosen = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    styles = draw(st.lists(st.sampled_from(STYLES), min_size=len(chosen), max_size=len(chosen)))
    return model, {style(name): draw(VALUES) for style, name in zip(styles, chosen, strict=True)}


@settings(max_examples=600, deadline=None)
@given(call_arguments())
def test_the_arguments_of_each_tool_of_the_package_are_their_own_canonical_form(
    drawn: tuple[type[BaseModel], dict[str, Any]],
) -> None:
    model, arguments = drawn
    of = Arguments("tool", model)
    try:
        found = of.canonical(arguments)
    except ArgumentError:
        return
    assert json.loads(json.dumps(found)) == found
    again = of.canonical(json.loads(json.dumps(found)))
    assert again == found
    assert again.made.model_dump() == found.made.model_dump()


def test_each_tool_of_the_package_is_covered() -> None:
    names = {model.__name__ for model in MODELS}
    assert {"RunArguments", "ExecArguments", "_ShellArguments", "_GrepArguments", "SessionArguments"} <= names
    assert len(MODELS) > 20


class Color(enum.Enum):
    RED = "red"


class Line(BaseModel):
    article: str
    at: dt.date | None = None


def everything(
    text: str,
    number: float,
    color: Color = Color.RED,
    lines: list[Line] = [],  # noqa: B006
    price: decimal.Decimal = decimal.Decimal("1.50"),
    when: dt.datetime | None = None,
    doubled: Annotated[int, AfterValidator(lambda value: value * 2)] = 1,
    tags: frozenset[str] = frozenset(),
    anything: Any = None,
    odd: int = None,  # type: ignore[assignment]  # noqa: RUF013
) -> str:
    """Have every kind of argument."""
    return repr((text, number, color, lines, price, when, doubled, sorted(tags), anything, odd))


# JSON has no infinite numbers, and arguments with one are rejected.
JSON_LIKE = st.recursive(
    SCALARS.filter(lambda value: value not in (math.inf, -math.inf)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
)
EVERYTHING = st.fixed_dictionaries(
    {"text": st.text(max_size=3), "number": st.one_of(st.integers(), st.just("2.5"))},
    optional={
        "color": st.just("red"),
        "lines": st.lists(st.just({"article": "tea", "at": "2026-03-01"}), max_size=2),
        "price": st.sampled_from(["1.10", 2, 2.5]),
        "when": st.sampled_from([None, "2026-03-01T10:00:00Z", 1_700_000_000]),
        "doubled": st.sampled_from([1, "2"]),
        "tags": st.lists(st.sampled_from("abc")),
        "anything": JSON_LIKE,
    },
)


@settings(max_examples=150, deadline=None)
@given(EVERYTHING)
def test_the_arguments_of_a_function_are_their_own_canonical_form(arguments: dict[str, Any]) -> None:
    tool = FunctionTool(everything)
    found = tool.canonical(arguments)
    again = tool.canonical(json.loads(json.dumps(found)))
    assert again == found
    assert again.made == found.made
    assert (found["color"], found["price"]) == ("red", found["price"])


def keep(cents: int, **more: Any) -> str:
    """Keep everything."""
    return json.dumps([cents, more])


async def test_a_function_with_further_arguments_takes_one_spelling_of_its_own() -> None:
    tools = ToolSet([FunctionTool(keep)])
    assert tools.prepare("keep", {"Cents": "5", "tags": ["b"]}).arguments == {"cents": 5, "tags": ["b"]}
    for twice in ({"cents": 5, "Cents": 9000}, {"cents": 5, "a_b": 1, "A-B": 2}):
        result = await tools.call("keep", twice, ToolContext())
        assert "is given twice" in result.content


READ: list[Any] = []


def watched(value: list[int]) -> list[int]:
    READ.append(value)
    return value


def add(items: Annotated[list[int], AfterValidator(watched)]) -> int:
    """Add an item."""
    items.append(1)
    return len(items)


async def test_a_call_uses_the_values_that_were_read_before_hooks_and_approvals() -> None:
    tools = ToolSet([FunctionTool(add)])
    prepared = tools.prepare("add", {"items": ["5"]})
    before = len(READ)
    assert (await tools.run(prepared, ToolContext())).content == "2"
    assert len(READ) == before
    assert prepared.arguments == {"items": [5]}  # what the tool did to its list is not in the record


# schemas


class Described(Tool):
    """A tool that a schema describes."""

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        self._spec = ToolSpec(name, "Do it.", schema)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("done")


def fit_schema(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return Described(name, schema).canonical(arguments)


SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "orderId": {"type": "string", "enum": ["A", "B"]},
        "cents": {"type": "integer", "minimum": 1, "maximum": 100, "default": 5},
        "price": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "wait": {"type": "boolean"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "broken": {"type": "integer", "default": "many"},
    },
    "required": ["orderId"],
    "additionalProperties": False,
    "$defs": {"Line": {"type": "object", "properties": {"pieces": {"type": "integer"}}, "required": ["pieces"]}},
}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"order_id": "A"}, {"orderId": "A", "cents": 5}),
        ({"ORDERID": "A", "cents": "7"}, {"orderId": "A", "cents": 7}),
        ({"orderId": "A", "cents": None}, {"orderId": "A", "cents": 5}),
        ({"orderId": "A", "cents": 7.0, "price": None}, {"orderId": "A", "cents": 7, "price": None}),
        ({"orderId": "A", "price": "2.5", "wait": "true"}, {"orderId": "A", "price": 2.5, "wait": True, "cents": 5}),
        ({"orderId": "A", "lines": [{"pieces": "3"}]}, {"orderId": "A", "lines": [{"pieces": 3}], "cents": 5}),
    ],
)
def test_arguments_by_a_schema(given: dict[str, Any], found: dict[str, Any]) -> None:
    assert fit_schema("pay", given, SCHEMA) == found
    assert fit_schema("pay", found, SCHEMA) == found


def order(cents: int, price: float = 1.0, limit: float = math.inf, pieces: list[int] | None = None) -> float:
    """Place an order.

    Args:
        cents: Cents.
        price: Price.
        limit: Limit.
        pieces: Pieces.
    """
    return limit


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"cents": True}, "cents: Input should be a number, not true"),
        ({"cents": 5, "price": False}, "price: Input should be a number, not false"),
        ({"cents": 5, "pieces": [1, True]}, "pieces.1: Input should be a number, not true"),
        ({"cents": 5, "price": "inf"}, "price: Input should be a finite number"),
        ({"cents": 5, "price": float("nan")}, "price: Input should be a finite number"),
        ({"cents": 5, "limit": float("inf")}, "limit: Input should be a finite number"),
    ],
)
def test_arguments_that_json_does_not_read_so_do_not_fit(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ArgumentError, match=problem):
        FunctionTool(order).canonical(given)


async def test_a_default_without_a_json_form_is_left_to_the_tool() -> None:
    tool = FunctionTool(order)
    found = tool.canonical({"cents": 5.0})
    assert found == {"cents": 5, "price": 1.0}
    result = await ToolSet([tool]).call("order", found, ToolContext())
    assert result.content == '"Infinity"'


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "orderId is missing"),
        ({"orderId": None}, "orderId must be a string"),
        ({"orderId": "C"}, 'orderId must be one of "A", "B"'),
        ({"orderId": "A", "cents": 0}, "cents must be 1 or more"),
        ({"orderId": "A", "cents": "101"}, "cents must be 100 or less"),
        ({"orderId": "A", "cents": True}, "cents must be an integer"),
        ({"orderId": "A", "cents": 5.5}, "cents must be an integer"),
        ({"orderId": "A", "price": float("inf")}, "price must be a number or null .given: Infinity"),
        ({"orderId": "A", "price": "dear"}, "price must be a number or null"),
        ({"orderId": "A", "lines": [{}]}, "lines.0.pieces is missing"),
        ({"orderId": "A", "lines": {}}, "lines must be an array"),
        ({"orderId": "A", "tint": "red"}, "tint is unknown"),
        ({"orderId": "A", "order_id": "B"}, "orderId is given twice, as 'orderId' and 'order_id'"),
    ],
)
def test_arguments_that_do_not_fit_a_schema(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ArgumentError, match=problem):
        fit_schema("pay", given, SCHEMA)


@given(st.dictionaries(st.text(max_size=8), JSON_LIKE, max_size=4), st.dictionaries(TEXTS, JSON_LIKE, max_size=4))
def test_any_schema_and_any_arguments_give_arguments_or_an_error(arguments: Any, schema: Any) -> None:
    try:
        found = fit_schema("x", arguments, schema)
    except ArgumentError:
        return
    assert fit_schema("x", found, schema) == found


def test_a_hostile_schema_takes_no_time() -> None:
    nested = {"anyOf": [{"$ref": "#/$defs/A"}] * 16}
    schema = {"properties": {"a": nested}, "$defs": {"A": nested}}
    started = time.monotonic()
    fit_schema("x", {"a": [1, {"b": "c"}]}, schema)
    assert time.monotonic() - started < 30  # without a limit it takes years


def test_names_that_a_schema_tells_apart_are_two_arguments() -> None:
    schema = {"properties": {"a_b": {}, "ab": {}}}
    assert fit_schema("x", {"a_b": 1, "ab": 2}, schema) == {"a_b": 1, "ab": 2}


# tools of users


class Free(Tool):
    """A tool with its own canonical form."""

    spec = ToolSpec("free", "Do it.", {"type": "object", "properties": {"cents": {"type": "integer"}}})

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if "fail" in arguments:
            raise KeyError("broken")
        if "wrong" in arguments:
            raise ValueError("give cents")
        return super().canonical({"currency": "EUR", **arguments})

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(json.dumps(arguments))


@pytest.mark.parametrize("tool", [Free(), StreamingFunctionTool(Free())])
async def test_a_tool_can_have_its_own_canonical_form(tool: Tool) -> None:
    tools = ToolSet([tool])

    async def call(**arguments: Any) -> ToolResult:
        return await tools.call("free", arguments, ToolContext())

    assert json.loads((await call(cents="5")).content) == {"currency": "EUR", "cents": 5}
    assert await call(wrong=1) == ToolResult("give cents", is_error=True)
    assert (await call(fail=1)).content == "free failed to read its arguments: KeyError: 'broken'"
