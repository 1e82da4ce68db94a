"""Tools of LangChain, as models and code of an agent see them."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Annotated, Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
    tool,
)
from langchain_core.tools import Tool as PlainTool
from pydantic import BaseModel, Field

from flink_skills import ToolResult
from flink_skills.errors import ConfigError
from flink_skills.integrations import LangChainTool
from flink_skills.tools import ToolContext

pytestmark = pytest.mark.row("J20")
CONTEXT = ToolContext(key="k1", call_id="c-1")


class Asked(BaseModel):
    city: str = Field(description="Name of a city.")
    days: int = Field(1, ge=1, le=7)


@tool(args_schema=Asked)
def forecast(city: str, days: int = 1) -> dict[str, Any]:
    """The weather of the next days."""
    return {"city": city, "days": days, "at": dt.date(2026, 5, 1)}


async def call(of: Any, arguments: dict[str, Any], **more: Any) -> ToolResult:
    adapter = of if isinstance(of, LangChainTool) else LangChainTool(of, **more)
    return await adapter.call(arguments, CONTEXT)


def giving(value: Any, **more: Any) -> StructuredTool:
    async def run() -> Any:
        return value

    return StructuredTool.from_function(coroutine=run, name="give", description="Gives.", **more)


def test_a_model_is_told_what_langchain_says() -> None:
    spec = LangChainTool(forecast).spec
    assert (spec.name, spec.description) == ("forecast", "The weather of the next days.")
    assert spec.parameters["required"] == ["city"]
    assert spec.parameters["properties"]["city"] == {"description": "Name of a city.", "type": "string"}
    assert spec.parameters["properties"]["days"]["maximum"] == 7
    named = LangChainTool(forecast, "weather", "Weather.").spec
    assert (named.name, named.description) == ("weather", "Weather.")


@pytest.mark.parametrize(
    ("value", "content", "data"),
    [
        ("plain", "plain", "plain"),
        ({"a": dt.date(2026, 5, 1)}, '{"a": "2026-05-01"}', {"a": "2026-05-01"}),
        ([{"url": "https://a"}, 2], '[{"url": "https://a"}, 2]', [{"url": "https://a"}, 2]),
        (3.5, "3.5", 3.5),
        (None, "null", None),
        (
            [Document(page_content="text", metadata={"n": 1})],
            None,
            [{"id": None, "metadata": {"n": 1}, "page_content": "text", "type": "Document"}],
        ),
    ],
)
async def test_results_are_json_like_whatever_they_were(value: Any, content: str | None, data: Any) -> None:
    result = await call(giving(value), {})
    assert not result.is_error
    assert content is None or result.content == content
    assert result.value == data


async def test_a_content_is_for_the_model_and_its_artifact_for_code() -> None:
    result = await call(giving(("two hits", [{"n": 1}, {"n": 2}]), response_format="content_and_artifact"), {})
    assert result.content == "two hits"
    assert result.value == {"content": "two hits", "artifact": [{"n": 1}, {"n": 2}]}


async def test_a_message_is_its_content() -> None:
    failed = ToolMessage("no such row", tool_call_id="1", status="error")
    assert (await call(giving(failed), {})).is_error
    parts = ToolMessage([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], tool_call_id="1")
    result = await call(giving(parts), {})
    assert (result.content, result.value, result.is_error) == ("a\nb", "a\nb", False)
    several = await call(giving([parts, ToolMessage('{"n": 1}', tool_call_id="1")]), {})
    assert several.value == ["a\nb", {"n": 1}]


def failing(error: BaseException, **more: Any) -> StructuredTool:
    def run() -> str:
        raise error

    return StructuredTool.from_function(run, name="fails", description="Fails.", **more)


async def test_errors_are_results() -> None:
    result = await call(failing(ToolException("the index is closed")), {})
    assert (result.content, result.is_error) == ("fails: the index is closed", True)
    result = await call(failing(ToolException("closed"), handle_tool_error="try another index"), {})
    assert (result.content, result.is_error) == ("try another index", True)
    result = await call(failing(ValueError("bad")), {})
    assert (result.content, result.is_error, result.retryable) == ("fails failed: ValueError: bad", True, False)
    assert (await call(failing(ConnectionError("down")), {})).retryable
    assert (await call(failing(SystemExit(3)), {})).is_error


@pytest.mark.row("J4")
async def test_arguments_that_do_not_fit_are_answered_with_the_schema() -> None:
    result = await call(forecast, {"city": "Ulm", "days": 9})
    assert result.is_error
    assert "days: Input should be less than or equal to 7" in result.content
    assert "Expected:" in result.content
    assert "city: Field required" in (await call(forecast, {})).content
    assert (await call(forecast, {"city": "Ulm", "more": 1})).value["city"] == "Ulm"


@tool
def account(
    what: str,
    user: Annotated[str, InjectedToolArg],
    call_id: Annotated[str, InjectedToolCallId],
) -> dict[str, str]:
    """Look an account up."""
    return {"what": what, "user": user, "call_id": call_id}


@pytest.mark.row("J2")
async def test_hidden_arguments_come_from_the_job_and_never_from_the_model() -> None:
    adapter = LangChainTool(account, injected={"user": lambda context: context.display_key})
    assert list(adapter.spec.parameters["properties"]) == ["what"]
    result = await call(adapter, {"what": "limit", "user": "somebody else", "call_id": "made up"})
    assert result.value == {"what": "limit", "user": "k1", "call_id": "c-1"}

    async def looked_up(context: ToolContext) -> str:
        return "later"

    assert (await call(account, {"what": "x"}, injected={"user": looked_up})).value["user"] == "later"
    assert (await call(account, {"what": "x"}, injected={"user": "fixed"})).value["user"] == "fixed"


def test_mistakes_are_told_when_the_adapter_is_made() -> None:
    with pytest.raises(ConfigError, match="models cannot give 'user', which LangChain injects"):
        LangChainTool(account)
    with pytest.raises(ConfigError, match=r"hides no argument 'usr' from models \(it hides: user, call_id\)"):
        LangChainTool(account, injected={"usr": 1})
    with pytest.raises(ConfigError, match="is not a LangChain tool"):
        LangChainTool(len)


async def test_all_kinds_of_tools_work() -> None:
    class Old(BaseTool):
        name: str = "old"
        description: str = "Only has a synchronous form."

        def _run(self, text: str) -> str:
            return text.upper()

    assert (await call(Old(), {"text": "a"})).content == "A"
    plain = LangChainTool(PlainTool(name="plain", func=lambda text: text * 2, description="One text."))
    [argument] = plain.spec.parameters["properties"]
    assert (await call(plain, {argument: "ab"})).content == "abab"
    by_schema = StructuredTool(
        name="by_schema",
        description="Of a schema.",
        args_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        coroutine=lambda **given: asyncio.sleep(0, given),
    )
    assert (await call(by_schema, {"n": 3, "m": 4})).value == {"n": 3}


async def test_a_call_has_the_limits_of_a_tool() -> None:
    adapter = LangChainTool(forecast, idempotent=False, timeout=3.0, max_output=10, max_concurrent=2)
    assert (adapter.idempotent, adapter.timeout, adapter.max_output, adapter.max_concurrent) == (False, 3.0, 10, 2)
