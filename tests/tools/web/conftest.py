from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from flink_skills.tools import ToolContext, ToolResult
from flink_skills.tools.web import WebFetchTool
from tests.tools.web.site import Names, Site

Fetch = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.start()
    yield site
    await site.close()


@pytest.fixture
def names() -> Names:
    """All names lead to loopback, unless the test says otherwise."""
    return Names()


@pytest.fixture
def fetch(names: Names) -> Fetch:
    """Calls a tool that may reach loopback; ``tool`` are its options."""

    async def call(url: str, arguments: dict[str, Any] | None = None, **tool: Any) -> ToolResult:
        options = {"resolver": names, "block_private_network": False, "timeout": 20, **tool}
        result = await WebFetchTool(**options).call({"url": url, **(arguments or {})}, ToolContext())
        assert result.is_error == bool(result.value["error"])
        return result

    return call


def code_of(result: ToolResult) -> str:
    return str(result.value["error"]).partition(":")[0]
