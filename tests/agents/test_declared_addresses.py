"""Addresses that agents and options declare: what cannot be used is refused where it is declared, and never shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    ResourceDescriptor,
    ResourceName,
    SkillConfig,
    SkillsError,
    chat_model_connection,
    chat_model_setup,
    load_agent_yaml,
    mcp_server,
    tool_set,
)
from flink_skills.tools.mcp import SseConnectionParams
from flink_skills.tools.web import WebFetchTool, WebSearchTool
from tests.kit.local import local_environment

ADDRESSES = {
    "https://me:S3CRET/x@host.example.org/v1": "unescaped '/', '?' or '#' (https://host.example.org/v1)",
    "https://me:S3CRET@host.example.org:S3CRET/v1": "the port is not a number from 1 to 65535",
    "https://me:S3CRET@/v1": "the host is missing or cannot be parsed (https://…)",
    "gopher://me:S3CRET@host.example.org/v1": "the address does not start with http:// or https://",
    "https://me:S3CRET x@host.example.org/v1": "the address contains spaces or control characters (https://host.example.org/v1)",
}
KINDS = ["unescaped", "port", "no host", "scheme", "space"]


def connection(url: str, folder: Path) -> Any:
    class Asker(Agent):
        @chat_model_connection
        @staticmethod
        def server() -> ResourceDescriptor:
            return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=url)

        @chat_model_setup
        @staticmethod
        def asks() -> ResourceDescriptor:
            return ResourceDescriptor(
                clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, connection="server", model="m"
            )

    return Asker


def setup(url: str, folder: Path) -> Any:
    class Asker(Agent):
        @chat_model_setup
        @staticmethod
        def asks() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai:m", base_url=url)

    return Asker


def in_yaml(url: str, folder: Path) -> Any:
    file = folder / "asker.yaml"
    file.write_text(
        "chat_model_connections:\n"
        f"  server: {{clazz: openai-compatible.connection, base_url: '{url}'}}\n"
        "chat_model_setups:\n  asks: {clazz: openai-compatible.setup, connection: server, model: m}\n"
    )
    return load_agent_yaml(file)


def mcp(url: str, folder: Path) -> Any:
    class Asker(Agent):
        model = "offline"

        @mcp_server
        def shop(self) -> Any:
            return {"url": url}

    return Asker


def mcp_sse(url: str, folder: Path) -> Any:
    class Asker(Agent):
        model = "offline"

        @mcp_server
        def shop(self) -> Any:
            return SseConnectionParams(url)

    return Asker


def mcp_in_yaml(url: str, folder: Path) -> Any:
    file = folder / "asker.yaml"
    file.write_text(f"model: offline\nmcp_servers:\n  shop: {{url: '{url}'}}\n")
    return load_agent_yaml(file)


def search(url: str, folder: Path) -> Any:
    class Asker(Agent):
        model = "offline"

        @tool_set
        def web(self) -> Any:
            return [WebSearchTool("searxng", base_url=url)]

    return Asker


DECLARED: list[tuple[Callable[[str, Path], Any], str]] = [
    (connection, "asks"),
    (setup, "asks"),
    (in_yaml, "asks"),
    (mcp, "shop"),
    (mcp_sse, "url of an MCP server"),
    (mcp_in_yaml, "shop"),
    (search, "tool 'web_search': base_url"),
]


def all_of(error: BaseException) -> str:
    """The message and the traceback, and those of all causes and contexts, also of suppressed ones."""
    texts, links = [], [error]
    while links:
        link = links.pop()
        texts += [str(link), repr(link), *traceback.format_exception_only(link)]
        links += [other for other in (link.__cause__, link.__context__) if other is not None]
    return "\n".join(texts)


@pytest.mark.parametrize(("declare", "place"), DECLARED, ids=[declare.__name__ for declare, _ in DECLARED])
@pytest.mark.parametrize(("url", "problem"), ADDRESSES.items(), ids=KINDS)
def test_an_address_that_cannot_be_used_is_refused_at_apply(
    declare: Callable[[str, Path], Any], place: str, url: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(SkillsError) as raised:
        local_environment().from_list(["a"]).apply(declare(url, tmp_path))
    assert problem in str(raised.value)
    assert place in str(raised.value)
    assert "S3CRET" not in all_of(raised.value)


@pytest.mark.parametrize("tool", [WebFetchTool, WebSearchTool])
def test_a_proxy_that_cannot_be_used_is_refused(tool: Any) -> None:
    tool(proxy="socks5://me:pw@proxy.example.org:1080")
    with pytest.raises(SkillsError, match="proxy cannot be used: a user or a password contains an unescaped") as raised:
        tool(proxy="http://me:S3CRET/x@proxy.example.org:3128")
    assert "S3CRET" not in all_of(raised.value)


@pytest.mark.parametrize("name", ["url", "api"])
@pytest.mark.parametrize(("url", "problem"), ADDRESSES.items(), ids=KINDS)
def test_an_address_in_an_option_is_refused(name: str, url: str, problem: str) -> None:
    with pytest.raises(SkillsError) as raised:
        SkillConfig().set(f"skills.shell.remote.{name}", url)
    assert f"option skills.shell.remote.{name}: the address cannot be used: " in str(raised.value)
    assert problem in str(raised.value)
    assert "S3CRET" not in all_of(raised.value)


def test_a_reference_is_an_address_that_is_known_later(tmp_path: Path) -> None:
    for address in ("${env:ROUTER}", "http://${env:ROUTER}:${env:PORT}", ""):
        SkillConfig().set("skills.shell.remote.url", address)
    local_environment().from_list(["a"]).apply(
        mcp("https://${env:ME}:${file:/run/pw}@${env:HOST}:${env:PORT}/mcp", tmp_path)
    )
