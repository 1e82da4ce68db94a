"""Send the same request in a loop with one client: ``python -m benchmarks.model_clients CLIENT JSON``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from benchmarks import peers
from benchmarks.stub_server import stub_server

FLINK_AGENTS = "flink-agents==0.3.1"
SYSTEM = "You answer questions about an event, in one sentence, from what its tools return. " * 12
PARAMETERS = {
    "type": "object",
    "properties": {
        "article": {"type": "string", "description": "The name of the article."},
        "count": {"type": "integer", "description": "The number of pieces."},
    },
    "required": ["article"],
}
TOOLS = [(f"tool_{number}", "Returns the price of an article in a currency.") for number in range(4)]
_Ask = Callable[[int], Awaitable[str]]


def _ours(url: str) -> _Ask:
    from flink_skills import ToolSpec
    from flink_skills.models import ModelRequest, ModelSetup, ToolMessage, UserMessage, create_model

    model = create_model(ModelSetup("openai-compatible", "stub", base_url=url))
    tools = [ToolSpec(name, text, PARAMETERS) for name, text in TOOLS]

    async def ask(number: int) -> str:
        messages = [UserMessage(f"event {number}"), ToolMessage("call-1", "tool_0", "1.5")]
        return (await model.request(ModelRequest(SYSTEM, messages, tools, timeout=60))).text

    return ask


def _messages(number: int) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"event {number}"},
        {"role": "tool", "tool_call_id": "call-1", "content": "1.5"},
    ]


def _functions() -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": name, "description": text, "parameters": PARAMETERS}}
        for name, text in TOOLS
    ]


def _openai(url: str) -> _Ask:
    import openai

    client = openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0)

    async def ask(number: int) -> str:
        found = await client.chat.completions.create(model="stub", messages=_messages(number), tools=_functions())  # type: ignore[call-overload]
        return str(found.choices[0].message.content)

    return ask


def _pydantic_ai(url: str) -> _Ask:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, ToolReturnPart, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.tools import ToolDefinition

    model = OpenAIChatModel("stub", provider=OpenAIProvider(base_url=url, api_key="none"))
    tools = [ToolDefinition(name=name, parameters_json_schema=PARAMETERS, description=text) for name, text in TOOLS]

    async def ask(number: int) -> str:
        said = ModelRequest(
            [
                SystemPromptPart(SYSTEM),
                UserPromptPart(f"event {number}"),
                ToolReturnPart(tool_name="tool_0", content="1.5", tool_call_id="call-1"),
            ]
        )
        parameters = ModelRequestParameters(function_tools=tools)
        found = await model_request(model, [said], model_request_parameters=parameters)
        return str(found.parts[0].content)  # type: ignore[union-attr]

    return ask


def _aiohttp(url: str) -> _Ask:
    """The least that a request costs: a session, and JSON."""
    import aiohttp

    session: aiohttp.ClientSession | None = None
    tools = json.dumps(_functions())

    async def ask(number: int) -> str:
        nonlocal session
        session = session or aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        body = f'{{"model": "stub", "messages": {json.dumps(_messages(number))}, "tools": {tools}}}'
        headers = {"Content-Type": "application/json"}
        async with session.post(f"{url}/chat/completions", data=body.encode(), headers=headers) as answer:
            return str(json.loads(await answer.read())["choices"][0]["message"]["content"])

    return ask


def price(article: str, count: int = 1) -> float:
    """Returns the price of an article in a currency.

    Parameters
    ----------
    article : str
        The name of the article.
    count : int
        The number of pieces.
    """
    return len(article) * count


def _flink_agents(url: str) -> _Ask:
    """Flink Agents calls its connection, which blocks, in threads."""
    problem = peers.unpacked(FLINK_AGENTS)
    if problem:
        raise SystemExit(f"{FLINK_AGENTS} is not here: {problem}")
    from flink_agents.api.chat_message import ChatMessage, MessageRole
    from flink_agents.integrations.chat_models.openai.openai_chat_model import OpenAIChatModelConnection
    from flink_agents.plan.function import PythonFunction
    from flink_agents.plan.tools.function_tool import FunctionTool

    connection = OpenAIChatModelConnection(api_key="none", api_base_url=url, max_retries=0)
    threads = ThreadPoolExecutor(100)
    tools = [FunctionTool(func=PythonFunction.from_callable(price)) for _ in TOOLS]

    def chat(number: int) -> str:
        said = [
            ChatMessage(role=MessageRole.SYSTEM, content=SYSTEM),
            ChatMessage(role=MessageRole.USER, content=f"event {number}"),
            ChatMessage(role=MessageRole.TOOL, content="1.5", extra_args={"external_id": "call-1"}),
        ]
        return str(connection.chat(said, tools=tools, model="stub").content)

    async def ask(number: int) -> str:
        return await asyncio.get_running_loop().run_in_executor(threads, chat, number)

    return ask


CLIENTS: dict[str, Callable[[str], _Ask]] = {
    "flink_skills": _ours,
    "openai": _openai,
    "pydantic-ai": _pydantic_ai,
    "flink-agents": _flink_agents,
    "aiohttp": _aiohttp,
}


async def _measure(ask: _Ask, requests: int, in_flight: int) -> dict[str, Any]:
    waiting = asyncio.Semaphore(in_flight)

    async def one(number: int) -> None:
        async with waiting:
            if not await ask(number):
                raise SystemExit("an answer is empty")

    await asyncio.gather(*(one(number) for number in range(min(requests, 2 * in_flight))))
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(requests)))
    seconds = time.perf_counter() - began
    return {
        "cpu_ms_per_request": (time.process_time() - cpu) / requests * 1000,
        "requests_per_second": requests / seconds,
        "resident_mb": psutil.Process(os.getpid()).memory_info().rss / 2**20,
    }


def main(client: str, request: dict[str, Any]) -> dict[str, Any]:
    """Measure one client against a server in another process."""
    with stub_server(request.get("latency", 0.0)) as url:
        return asyncio.run(_measure(CLIENTS[client](url), request["requests"], request["in_flight"]))


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))), flush=True)
    # Sessions of the clients are still open: their warnings say nothing about a measurement.
    os._exit(0)
