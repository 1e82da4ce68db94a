from __future__ import annotations

import asyncio
import enum
import functools
import json
import sys
import threading
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from flink_skills import FunctionTool
from flink_skills.errors import ConfigError
from flink_skills.tools import Media, ToolContext, ToolResult, parse_docstring, parse_returns, read_docstring
from tests.kit.media import PDF, PNG
from tests.kit.waiting import MARGIN

if TYPE_CHECKING:
    from decimal import Decimal


CONTEXT = ToolContext(key="k", call_id="c-1")


class Colour(enum.Enum):
    RED = "red"


class Order(BaseModel):
    item: str
    count: int = 1


@dataclass
class Point:
    x: int
    y: int


def add(a: int, b: int = 1) -> int:
    """Add two
    numbers.

    Longer text.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


async def call(func: Any, /, **arguments: Any) -> ToolResult:
    return await FunctionTool(func).call(arguments, CONTEXT)


@pytest.mark.row("J1")
def test_spec_from_the_function() -> None:
    spec = FunctionTool(add).spec
    assert (spec.name, spec.description) == ("add", "Add two numbers.\n\nLonger text.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"type": "integer", "description": "The second.", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert FunctionTool(add).spec.parameters == FunctionTool(add).spec.parameters
    named = FunctionTool(add, name="plus", description="Sum.").spec
    assert (named.name, named.description) == ("plus", "Sum.")


@pytest.mark.row("J1", "J33")
def test_schema_of_richer_types() -> None:
    def order(
        what: Order,
        colour: Colour,
        mode: Literal["a", "b"],
        title: Annotated[str, Field(description="Own words.", max_length=5)],
        when: Optional[date] = None,  # noqa: UP045
        tags: list[str] | None = None,
    ) -> None:
        """Order.

        Args:
            title: Not these words.
        """

    parameters = FunctionTool(order).spec.parameters
    properties = parameters["properties"]
    assert properties["title"] == {"type": "string", "description": "Own words.", "maxLength": 5}
    assert properties["when"] == {"type": "string", "format": "date"}
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}}
    assert properties["mode"] == {"type": "string", "enum": ["a", "b"]}
    assert parameters["$defs"]["Order"]["properties"] == {
        "item": {"type": "string"},
        "count": {"type": "integer", "default": 1},
    }
    assert parameters["required"] == ["what", "colour", "mode", "title"]


async def test_plain_functions_run_in_a_thread_and_async_ones_in_the_loop() -> None:
    def plain() -> str:
        return "loop" if threading.current_thread() is threading.main_thread() else "thread"

    async def coroutine() -> str:
        return "loop" if threading.current_thread() is threading.main_thread() else "thread"

    assert (await call(plain)).content == "thread"
    assert (await call(coroutine)).content == "loop"
    assert (
        await call(
            lambda: coroutine()  # noqa: PLW0108 - a plain function that returns an awaitable
        )
    ).content == "loop"


async def test_values_are_checked_and_converted() -> None:
    def order(what: Order, when: date, point: Point) -> str:
        return f"{what.item}*{what.count} {when.year} {point.x}"

    result = await call(order, what={"item": "nut"}, when="2024-05-06", point={"x": "3", "y": 4})
    assert (result.content, result.is_error) == ("nut*1 2024 3", False)


@pytest.mark.row("J1")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "a: Field required"),
        ({"a": "many"}, "a: Input should be a valid integer"),
        ({"a": "many"}, "(given: 'many')"),
        ({"a": 1, "c": 2}, "c: Extra inputs are not permitted"),
        ({"a": None}, "a: Input should be a valid integer"),
        ({"a": 1, "b": "x" * 9999}, "b: Input should be a valid integer"),
    ],
)
async def test_wrong_arguments_name_the_argument_and_the_schema(arguments: dict[str, Any], says: str) -> None:
    result = await call(add, **arguments)
    assert result.is_error
    assert result.content.startswith("add: the arguments do not fit:")
    assert says in result.content
    assert '"a": {"type": "integer"' in result.content.replace('"description": "The first.", ', "")
    assert len(result.content) < 1000


async def test_nested_places_are_named() -> None:
    def order(what: list[Order]) -> None: ...

    result = await call(order, what=[{"item": "a"}, {"count": "x"}])
    assert "what.1.item: Field required" in result.content
    assert "what.1.count" in result.content


@pytest.mark.row("J2")
async def test_context_is_given_and_hidden() -> None:
    def first(ctx: ToolContext, n: int) -> str:
        return f"{ctx.call_id} {n}"

    def optional(n: int, ctx: ToolContext | None = None) -> str:
        return f"{ctx.call_id if ctx else None} {n}"

    for func in (first, optional):
        assert list(FunctionTool(func).spec.parameters["properties"]) == ["n"]
        assert (await call(func, n=1)).content == "c-1 1"
        forged = await call(func, n=1, ctx={"call_id": "forged"})
        assert forged.is_error


async def test_argument_names_that_pydantic_keeps_for_itself() -> None:
    def odd(schema: str, model_config: int, _hidden: int, json: str, self_: str = "s") -> str:
        return f"{schema}{model_config}{_hidden}{json}{self_}"

    tool = FunctionTool(odd)
    assert list(tool.spec.parameters["properties"]) == ["schema", "model_config", "_hidden", "json", "self_"]
    result = await tool.call({"schema": "a", "model_config": 1, "_hidden": 2, "json": "b"}, CONTEXT)
    assert result.content == "a12bs"


@pytest.mark.row("J1")
def test_an_object_is_described_by_its_call_or_its_class() -> None:
    class Adds:
        """Adds numbers."""

        def __call__(self, a: int, b: int) -> int:
            return a + b

    class Weighs:
        """Of no use to models."""

        def __call__(self, article: str) -> int:
            """Weigh an article."""
            return len(article)

    assert FunctionTool(Adds()).spec.description == "Adds numbers."
    assert FunctionTool(Weighs()).spec.description == "Weigh an article."
    partly = FunctionTool(functools.partial(Adds(), b=1)).spec
    assert (partly.name, partly.description, partly.parameters["required"]) == ("Adds", "Adds numbers.", ["a"])


@pytest.mark.row("J1")
async def test_kinds_of_callables() -> None:
    class Box:
        factor = 3

        def method(self, n: int) -> int:
            """Times three."""
            return n * self.factor

        @staticmethod
        def static(n: int) -> int:
            return n

        @classmethod
        def of_class(cls, n: int) -> int:
            return n * cls.factor

        async def __call__(self, n: int) -> int:
            """Call me."""
            return n * 10

    def positional(n: int, /, m: int, *, k: int = 1) -> int:
        return n * 100 + m * 10 + k

    box = Box()
    assert (await call(box.method, n=2)).value == 6
    assert FunctionTool(box.method).spec.description == "Times three."
    assert (await call(Box.static, n=2)).value == 2
    assert (await call(Box.__dict__["static"], n=2)).value == 2
    assert (await call(Box.of_class, n=2)).value == 6
    assert (await call(box, n=2)).value == 20
    assert FunctionTool(box).spec.name == "Box"
    assert (await call(functools.partial(add, b=5), a=1)).value == 6
    assert (await call(positional, n=1, m=2)).value == 121


async def test_any_keyword_arguments() -> None:
    def free(a: int, **rest: Any) -> str:
        return f"{a} {sorted(rest.items())}"

    assert (await call(free, a=1, b=2, c="x")).content == "1 [('b', 2), ('c', 'x')]"


@pytest.mark.row("J1")
@pytest.mark.parametrize(
    ("value", "content", "plain"),
    [
        ("text", "text", "text"),
        (None, "null", None),
        ({"a": (1, 2)}, '{"a": [1, 2]}', {"a": [1, 2]}),
        (Order(item="x"), '{"item": "x", "count": 1}', {"item": "x", "count": 1}),
        (Point(1, 2), '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
        (date(2024, 1, 2), '"2024-01-02"', "2024-01-02"),
        ("grün", "grün", "grün"),
        (["grün"], '["grün"]', ["grün"]),
        (Colour.RED, '"red"', "red"),
    ],
)
async def test_results(value: Any, content: str, plain: Any) -> None:
    result = await call(lambda: value)
    assert (result.content, result.value, result.is_error) == (content, plain, False)


@pytest.mark.parametrize(
    "value",
    [float("nan"), {"v": float("inf")}, object(), b"\xff\xfe", [b"text"], {1: {2, 3}}, {"v": 10**400}],
)
async def test_results_are_json_whatever_they_are(value: Any) -> None:
    result = await call(lambda: value)
    assert not result.is_error, result.content
    assert json.loads(result.content) == result.value
    json.dumps(result.value, allow_nan=False)


async def test_media_are_a_result_with_their_names_in_the_text() -> None:
    photo, paper = Media.of(PNG, "plot.png"), Media.of(PDF)

    async def result(value: Any) -> ToolResult:
        return await FunctionTool(lambda: value, name="draws").call({}, ToolContext())

    alone = await result(photo)
    assert (alone.content, alone.media) == (f"[image plot.png, {len(PNG)} bytes]", (photo,))
    assert alone.value == {"name": "plot.png", "media_type": "image/png", "size_bytes": len(PNG)}
    several = await result(["two pages", photo, {"n": 1}, paper])
    assert several.content.splitlines() == ["two pages", alone.content, '{"n": 1}', f"[PDF pdf.pdf, {len(PDF)} bytes]"]
    assert several.media == (photo, paper)
    assert (await result([])).media == ()


async def test_a_tool_result_is_kept() -> None:
    own = ToolResult("mine", is_error=True, value=3)
    assert await call(lambda: own) is own


@pytest.mark.row("J4")
@pytest.mark.parametrize(
    "error",
    [ValueError("too big"), StopIteration("over"), KeyError("k"), SystemExit(3), asyncio.TimeoutError()],
)
@pytest.mark.parametrize("plain", [True, False])
async def test_exceptions_are_results(error: BaseException, plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    result = await asyncio.wait_for(call(fail if plain else fail_later), MARGIN)
    assert result.is_error
    shown = f"{type(error).__name__}: {error}"
    if isinstance(error, StopIteration):
        shown = "RuntimeError: coroutine raised StopIteration"
    assert result.content == f"{'fail' if plain else 'fail_later'} failed: {shown}"
    assert "Traceback" in caplog.text


@pytest.mark.parametrize(
    ("func", "says"),
    [
        (lambda *items: None, r"\*items"),
        (3, "not callable"),
    ],
)
def test_functions_without_a_schema_are_refused(func: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        FunctionTool(func)


@pytest.mark.row("J33")
def test_types_without_a_schema_are_refused_with_the_fix() -> None:
    def lock(a: threading.Thread) -> None: ...

    with pytest.raises(ConfigError, match=r"'lock'.*annotate"):
        FunctionTool(lock)


def test_annotations_for_type_checkers_only_are_named() -> None:
    def pay(amount: Decimal) -> None: ...

    with pytest.raises(ConfigError, match=r"'pay'.*'Decimal'.*TYPE_CHECKING"):
        FunctionTool(pay)


async def test_builtin_without_annotations() -> None:
    assert (await call(sys.intern, string="x")).is_error is False


@pytest.mark.row("J33")
def test_what_a_docstring_says_of_the_result_is_told() -> None:
    def price(article: str) -> dict[str, Any]:
        """Price of an article.

        Args:
            article: Its name.

        Returns:
            dict: ``euro``, the price.
        """
        return {"euro": len(article)}

    assert FunctionTool(price).spec.description == "Price of an article. Returns: dict: ``euro``, the price."
    assert FunctionTool(price, description="Other.").spec.description == "Other."


@pytest.mark.row("J2")
async def test_a_parameter_is_known_as_the_context_by_its_name() -> None:
    def whose(article: str, tool_context) -> str:  # type: ignore[no-untyped-def]
        """Whose article it is."""
        return f"{article} of {tool_context.key}"

    tool = FunctionTool(whose)
    assert list(tool.spec.parameters["properties"]) == ["article"]
    assert (await tool.call({"article": "a"}, CONTEXT)).content == "a of k"
    refused = await tool.call({"article": "a", "tool_context": "x"}, CONTEXT)
    assert refused.is_error


@pytest.mark.row("J1", "J4")
async def test_a_mandatory_argument_that_is_missing_is_an_error_that_names_it() -> None:
    result = await FunctionTool(add).call({"b": 2}, CONTEXT)
    assert result.is_error
    assert "a: Field required" in result.content


@pytest.mark.row("J33")
@pytest.mark.parametrize(
    ("text", "summary", "arguments"),
    [
        (None, "", {}),
        ("", "", {}),
        ("One line.", "One line.", {}),
        ("Two\nlines.\n\nMore text.", "Two lines.", {}),
        ("Add.\nArgs:\n    a: One.", "Add.", {"a": "One."}),
        (
            "Add.\n\nArgs:\n    a: One.\n    b (int, optional): Two\n        lines.\n",
            "Add.",
            {"a": "One.", "b": "Two lines."},
        ),
        (
            "Add.\n\nArgs:\n    a: see\n        note: this is no argument\n",
            "Add.",
            {"a": "see note: this is no argument"},
        ),
        ("Add.\n\nArgs:\n    a: One.\n\nReturns:\n    b: not an argument", "Add.", {"a": "One."}),
        ("Add.\n\nArgs:\n    a: One.\nSomething else: yes", "Add.", {"a": "One."}),
        ("Add.\n\nArgs:\n    **more: Others.", "Add.", {"more": "Others."}),
    ],
)
def test_parse(text: str | None, summary: str, arguments: dict[str, str]) -> None:
    assert parse_docstring(text) == (summary, arguments)


@pytest.mark.row("J33")
@pytest.mark.parametrize(
    ("text", "returns"),
    [
        (None, ""),
        ("Add.", ""),
        ("Add.\n\nReturns:\n    The\n    sum.\n\nRaises:\n    ValueError: never", "The sum."),
        ("Add.\n\nReturn:\n    The sum.\nMore text.", "The sum."),
        ("Add.\n\nArgs:\n    a: One.\n\nReturns:\n    dict: With keys\n        a and b.", "dict: With keys a and b."),
        ("Add.\n\nReturns\n-------\nint\n    The sum.\n\nNotes\n-----\nNone.", "int The sum."),
        ("Add.\n\n:param a: One.\n:returns: The\n    sum.\n:rtype: int", "The sum."),
    ],
)
def test_what_it_says_of_the_result(text: str | None, returns: str) -> None:
    assert parse_returns(text) == returns


def rate(text: str, language: str = "de") -> dict[str, float]:
    """Rate the mood
    of a message.

    German and English are
    understood. Other languages:

    - have a lower confidence
    - cost more

    Args:
        text: The text.
        language: ``de`` or ``en``.

    Returns:
        The mood, with
        - mood: from -1 to 1

    Raises:
        ValueError: The text is empty.

    Example:
        rate("Schön!") returns

        {"mood": 0.9}

    Note: sarcasm is not recognized.
    """
    return {}


@pytest.mark.row("J1", "J33")
def test_a_model_reads_the_whole_docstring_but_for_arguments_and_errors() -> None:
    spec = FunctionTool(rate).spec
    assert spec.description == (
        "Rate the mood of a message.\n\nGerman and English are understood. Other languages:\n\n"
        "- have a lower confidence\n- cost more\n\nReturns: The mood, with - mood: from -1 to 1\n\n"
        'Example:\n    rate("Schön!") returns\n\n    {"mood": 0.9}\n\nNote: sarcasm is not recognized.'
    )
    assert spec.parameters["properties"]["text"]["description"] == "The text."


@pytest.mark.row("J33")
@pytest.mark.parametrize(
    ("text", "description"),
    [
        (
            "Add.\n\nMore.\n\nParameters\n----------\na : int\n    One.\n\nExamples\n--------\n>>> add(1)\n1\n",
            "Add.\n\nMore.\n\nExamples:\n>>> add(1)\n1",
        ),
        ("Add.\n\n:param a: One.\n:returns: The sum.\n\nAfter.", "Add.\n\nReturns: The sum.\n\nAfter."),
        ("Add.\n\nArgs:\n    a: One.\nSomething else: yes", "Add.\n\nSomething else: yes"),
        ("Args:\n    a: One.", ""),
    ],
)
def test_sections_that_are_told_apart(text: str, description: str) -> None:
    assert read_docstring(text)[0] == description
