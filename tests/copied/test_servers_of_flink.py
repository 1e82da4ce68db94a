"""An MCP server in the words of Flink Agents."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, PlanError, ResourceDescriptor, ResourceName, mcp_server
from flink_skills.agents import compile_plan
from flink_skills.testing import call, calls
from tests.kit.local import local_environment
from tests.kit.models import scripted_provider
from tests.kit.ports import free_port, listens
from tests.kit.waiting import wait_until

SERVER = Path(__file__).parents[1] / "tools/mcp/shop_server.py"


@pytest.fixture
def endpoint() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(SERVER), "streamable-http", str(port)])
    try:
        wait_until(lambda: listens(port) or process.poll() is not None, "the server to listen", within=60)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(60)


def test_a_descriptor_of_a_server(endpoint: str) -> None:
    class Clerk(Agent):
        model = "copied:any"

        @mcp_server
        @staticmethod
        def my_mcp_server() -> ResourceDescriptor:
            return ResourceDescriptor(
                clazz=ResourceName.MCP_SERVER, endpoint=endpoint, headers={"X-Shop": "1"}, timeout=30
            )

    with scripted_provider("copied") as use:
        model = use([calls(call("price", article="abc")), "done"])
        assert local_environment().from_list(["an event"]).apply(Clerk).to_list() == ["done"]
    assert "price" in [spec.name for spec in model.requests[0].tools]
    assert model.requests[1].messages[-1].content == "3"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"clazz": ResourceName.SKILLS_MANAGER}, "clazz 'skills.manager': write ResourceName.MCP_SERVER"),
        ({"clazz": ResourceName.MCP_SERVER, "endpoint": "http://127.0.0.1:1/mcp", "colour": 1}, "colour"),
        ({"clazz": ResourceName.MCP_SERVER, "endpoint": "here"}, "url of an MCP server"),
    ],
)
def test_a_wrong_descriptor_is_named(given: dict[str, Any], problem: str) -> None:
    class Clerk(Agent):
        model = "offline"

        @mcp_server
        def shop(self) -> ResourceDescriptor:
            return ResourceDescriptor(**given)

    with pytest.raises(PlanError, match=re.escape(problem)) as caught:
        compile_plan(Clerk)
    assert "@mcp_server shop()" in str(caught.value)
