"""Programs in the words of the tools guide of trpc-agent: tools for files, streaming tools, web tools, and filters.

Each test stands for one example or for a group of them, and looks at the next request of the model.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flink_skills import (
    BaseToolSet,
    FunctionTool,
    StreamingFunctionTool,
    Tool,
    ToolContext,
    ToolSpec,
    agent_tool,
    mcp_server,
    register_tool,
    tool,
    tool_pool,
    tool_set,
)
from flink_skills.telemetry import Activity, Delta, Observer, ToolCallDelta
from flink_skills.testing import call
from flink_skills.tools import FileToolSet, WebFetchTool, WebSearchTool
from flink_skills.tools.files import Bash, Edit, Glob, Grep, Read, Write
from tests.copied.conftest import Run
from tests.kit.models import Script

SERVER = Path(__file__).parents[1] / "tools/mcp/shop_server.py"


# The tool set of files, with the calls of the guide.
def test_the_tools_for_files(script: Script) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 31))
    run = Run(
        script,
        [FileToolSet(cwd="project")],
        call("Write", path="config.ini", content="host=localhost\n"),
        call("Write", path="log.txt", content="one\n"),
        call("Write", path="log.txt", content="New log entry\n", append=True),
        call("Read", path="log.txt"),
        call("Write", path="src/app.py", content=f"def my_function():\n    pass  # TODO\n{lines}"),
        call("Read", path="src/app.py", start_line=10, end_line=20),
        call("Edit", path="config.ini", old_string="host=localhost", new_string="host=production-server"),
        call("Read", path="config.ini"),
        call("Grep", pattern="DEF.*function", path="src/", case_sensitive=False),
        call("Grep", pattern="TODO|FIXME", path=".", max_results=50),
        call("Bash", command="ls -la", cwd="src/"),
        call("Bash", command="find . -name '*.py' | head -10", timeout=60),
        call("Glob", pattern="*.txt"),
        call("Glob", pattern="**/*.{py,js}"),
        call("Read", path="none.txt"),
    )
    assert list(run.specs) == ["Read", "Write", "Edit", "Grep", "Glob", "Bash"]
    found = [json.loads(text) for text in run.texts]
    assert [each["success"] for each in found] == [True] * 14 + [False]
    written, _, _, log, _, part, _, config, defined, marked, listed, piped, texts, sources, missing = found
    assert "config.ini" in written["message"]
    assert log["content"] == "1 | one\n2 | New log entry"
    assert (part["read_range"], part["total_lines"]) == ("10-20", 32)
    assert part["content"].startswith("10 | line 8\n")
    assert config["content"] == "1 | host=production-server"
    assert [(match["file"], match["line"]) for match in defined["matches"]] == [("src/app.py", 1)]
    assert marked["total_matches"] == 1
    assert (listed["return_code"], "app.py" in listed["stdout"]) == (0, True)
    assert piped["stdout"] == "./src/app.py\n"
    assert [Path(path).name for path in texts["matches"]] == ["log.txt"]
    assert [Path(path).name for path in sources["matches"]] == ["app.py"]
    assert "none.txt" in json.dumps(missing)


# Single tools with different folders.
def test_single_tools_for_files(script: Script) -> None:
    run = Run(
        script,
        [Write(cwd="a"), Read(cwd="a"), Edit(cwd="a"), Grep(cwd="b"), Bash(cwd="a"), Glob(cwd="b")],
        call("Write", path="x.txt", content="text"),
        call("Read", path="x.txt"),
        call("Glob", pattern="*"),
        call("Bash", command="cat x.txt"),
    )
    _, read, none, shown = (json.loads(text) for text in run.texts)
    assert (read["content"], none.get("count"), shown["stdout"]) == ("1 | text", 0, "text")


def write_file(path: str, content: str) -> dict[str, Any]:
    """Write content to a file (streaming)."""
    return {"success": True, "path": path, "size": len(content)}


async def async_write_file(path: str, content: str) -> dict[str, Any]:
    """Write to a file asynchronously."""
    return write_file(path, content)


class CustomStreamingWriteTool(Tool):
    is_streaming = True

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("write_file", "Custom streaming write tool", {"type": "object", "properties": {"path": {}}})

    async def call(self, arguments: Any, context: ToolContext) -> Any:
        return {"success": True, "path": arguments["path"], "size": 4}


class StreamingFiles(BaseToolSet):
    def __init__(self) -> None:
        super().__init__(name="file_tools")
        self._tools = [StreamingFunctionTool(self.write_file), FunctionTool(self.get_file_info)]

    def write_file(self, path: str, content: str) -> dict[str, Any]:
        """Write content to a file (streaming)."""
        return write_file(path, content)

    def get_file_info(self, path: str) -> dict[str, Any]:
        """Get file information."""
        return {"path": path, "exists": True}

    async def get_tools(self, invocation_context: Any = None) -> Any:
        return self._tools


STREAMING = {
    "function": lambda: StreamingFunctionTool(write_file),
    "async function": lambda: StreamingFunctionTool(async_write_file, name="write_file"),
    "function tool": lambda: StreamingFunctionTool(FunctionTool(write_file)),
    "own class": CustomStreamingWriteTool,
    "tool set": StreamingFiles,
}


# A streaming tool from a function, an asynchronous one, another tool, a class, and within a tool set.
@pytest.mark.parametrize("form", STREAMING)
def test_a_streaming_tool(form: str, script: Script) -> None:
    pieces: list[ToolCallDelta] = []

    class Watch(Observer):
        wants_deltas = True

        def delta(self, activity: Activity, delta: Delta) -> None:
            if isinstance(delta, ToolCallDelta):
                pieces.append(delta)

    made = call("write_file", path="a.md", content="text")
    run = Run(script, [STREAMING[form]()], made, listeners=lambda self: [Watch()])
    assert "write_file" in run.specs
    assert json.loads(run.texts[0]) == {"success": True, "path": "a.md", "size": 4}
    assert {piece.name for piece in pieces} == {"write_file"}
    assert (StreamingFunctionTool(write_file).is_streaming, FunctionTool(write_file).is_streaming) == (True, False)


# The arguments of the web tools: calls cannot change what the agent sets.
def test_the_web_tools(script: Script) -> None:
    def web_tools() -> list[Tool]:
        return [web_fetch(), web_search()]

    def web_fetch() -> Tool:
        return WebFetchTool(
            timeout=10.0,
            user_agent="example/1.0",
            max_content_length=4000,
            max_response_bytes=1024 * 1024,
            follow_redirects=True,
            max_redirects=3,
            block_private_network=True,
            allowed_domains=None,  # type: ignore[arg-type]
            blocked_domains=["example.com"],
            enable_cache=True,
            cache_ttl_seconds=120.0,
            cache_max_bytes=1024 * 1024,
        )

    def web_search() -> Tool:
        return WebSearchTool(
            provider="google",
            api_key="key",
            engine_id="engine",
            user_agent="example/1.0",
            proxy=None,
            lang="en",
            http_client=httpx2.AsyncClient(),
            results_num=3,
            snippet_len=240,
            title_len=80,
            timeout=15.0,
            dedup_urls=True,
            google_extra_params={"safe": "active"},
        )

    run = Run(
        script,
        web_tools,
        call("web_fetch", url="http://127.0.0.1/"),
        call("web_fetch", url="https://www.example.com/page"),
    )
    names = {name: set(spec.parameters["properties"]) for name, spec in run.specs.items()}
    assert "url" in names["web_fetch"] and not names["web_fetch"] & {"allowed_domains", "block_private_network"}
    assert {"query", "allowed_domains", "blocked_domains"} <= names["web_search"]
    assert "key" not in names["web_search"]
    private, blocked = (json.loads(text) for text in run.texts)
    assert private["error"].startswith("BLOCKED_URL") or "private" in private["error"].lower()
    assert "example.com" in blocked["error"]


# The search without a key.
def test_the_search_without_a_key(script: Script) -> None:
    search = WebSearchTool(
        provider="duckduckgo",
        results_num=3,
        snippet_len=300,
        title_len=80,
        timeout=10.0,
        dedup_urls=False,
        ddg_extra_params={"region": "us-en"},
    )
    assert list(Run(script, [search]).specs) == ["web_search"]


# Filters are hooks here, and the errors of all that takes a tool say so.
@pytest.mark.parametrize("name", ["filters_name", "filters"])
@pytest.mark.parametrize(
    "make",
    [
        partial(FunctionTool, write_file),
        partial(StreamingFunctionTool, write_file),
        partial(register_tool, "a_filtered_tool"),
        tool,
        tool_set,
        tool_pool,
        agent_tool,
        mcp_server,
        FileToolSet,
        WebFetchTool,
    ],
)
def test_filters_are_named_as_hooks(make: Any, name: str) -> None:
    with pytest.raises(TypeError, match=rf"has no argument '{name}': override around_tool"):
        make(**{name: ["a filter"]})
