"""Servers that others have written, as they are published."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flink_skills import AgentSkillManager, SkillConfig, ToolContext
from flink_skills.tools.mcp import (
    McpStdioServerParameters,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from tests.kit.ports import free_port, listens
from tests.kit.waiting import until, wait_until
from tests.tools.mcp.conftest import DEADLINE, OpenToolSet
from tests.tools.mcp.installing import conformance, everything, hf_skills, python_server
from tests.tools.mcp.skills_server import entry_of
from tests.tools.mcp.skills_site import OPEN, write_skill
from tests.tools.mcp.test_servers import tools_of


def installed(install: Callable[..., Any], *arguments: str) -> Any:
    try:
        return install(*arguments)
    except RuntimeError as error:
        pytest.skip(str(error))


def program(command: str, *args: str, **arguments: Any) -> StdioConnectionParams:
    return StdioConnectionParams(McpStdioServerParameters(command, args), sandbox=False, timeout=DEADLINE, **arguments)


async def said(tools: Any, name: str, /, **arguments: Any) -> str:
    return (await tools[name].call(arguments, ToolContext())).content


@pytest.mark.row("J7", "J8")
@pytest.mark.nightly  # to install it takes far longer than to use it
async def test_the_time_server_tells_times(opened: OpenToolSet) -> None:
    server = str(installed(python_server, "mcp-server-time"))
    tools = await tools_of(await opened(program(server, "--local-timezone", "UTC"), prefix="time_"))
    assert set(tools) == {"time_get_current_time", "time_convert_time"}
    converted = await said(
        tools, "time_convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
    )
    assert "21:00:00+09:00" in converted
    wrong = await tools["time_get_current_time"].call({"timezone": "Mars/Base"}, ToolContext())
    assert wrong.is_error
    assert "Mars/Base" in wrong.content


def make_repository(folder: Path) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (folder / "a.txt").write_text("a\n")
    subprocess.run([*git, "add", "a.txt"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "The first"], check=True)


@pytest.mark.row("J7", "J8")
@pytest.mark.nightly  # to install it takes far longer than to use it
async def test_the_git_server_reads_a_repository_and_is_killed_meanwhile(opened: OpenToolSet, tmp_path: Path) -> None:
    server = str(installed(python_server, "mcp-server-git"))
    make_repository(tmp_path)
    tools = await tools_of(await opened(program(server, "--repository", str(tmp_path)), tool_filter=["git_log"]))
    assert set(tools) == {"git_log"}
    assert "The first" in await said(tools, "git_log", repo_path=str(tmp_path))
    for process in psutil.Process().children(recursive=True):
        if server in process.cmdline():
            process.send_signal(signal.SIGKILL)

    async def again() -> bool:
        return "The first" in await said(tools, "git_log", repo_path=str(tmp_path))

    await until(again)


@pytest.fixture(scope="module")
def reference() -> tuple[str, str]:
    found: tuple[str, str] = installed(everything)
    return found


@pytest.mark.row("J7", "J8")
async def test_the_reference_server_has_tools_prompts_and_resources(
    opened: OpenToolSet, reference: tuple[str, str]
) -> None:
    toolset = await opened(program(*reference, "stdio"), prompts=True, resources=True, prefix="e_")
    tools = await tools_of(toolset)
    assert "hello" in await said(tools, "e_echo", message="hello")
    assert "5" in await said(tools, "e_get-sum", a=2, b=3)
    assert "[image image.png, " in await said(tools, "e_get-tiny-image")
    structured = await tools["e_get-structured-content"].call({"location": "Chicago"}, ToolContext())
    assert set(structured.value) >= {"temperature", "conditions"}
    wrong = await tools["e_get-sum"].call({"a": "two"}, ToolContext())
    assert wrong.is_error
    assert "simple-prompt" in await said(tools, "e_list_prompts")
    assert "simple prompt" in await said(tools, "e_get_prompt", name="simple-prompt")
    assert "uri_template" in await said(tools, "e_list_resources")
    # It asks its client in turn, which has no answer: an error or a text, and never a wait without end.
    for name in ("e_trigger-sampling-request", "e_trigger-elicitation-request"):
        if name in tools:
            await tools[name].call({"prompt": "hello"}, ToolContext())
    assert "again" in await said(tools, "e_echo", message="again")


BehindHttp = tuple[str, int, Callable[[], None]]


@pytest.fixture(params=["sse", "streamableHttp"])
def behind_http(request: pytest.FixtureRequest, reference: tuple[str, str]) -> Iterator[BehindHttp]:
    port = free_port()
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        env = {**os.environ, "PORT": str(port)}
        running.append(
            subprocess.Popen([*reference, request.param], env=env, stdout=sys.stderr, stdin=subprocess.DEVNULL)
        )

    def restart() -> None:
        running[-1].kill()
        running[-1].wait()
        start()

    start()
    yield request.param, port, restart
    running[-1].kill()
    running[-1].wait()


@pytest.mark.row("J7", "J8")
@pytest.mark.row("J9", "J10")
async def test_the_reference_server_behind_http_is_killed_and_comes_back(
    opened: OpenToolSet, behind_http: BehindHttp
) -> None:
    kind, port, restart = behind_http
    made = SseConnectionParams if kind == "sse" else StreamableHTTPConnectionParams
    toolset = await opened(made(f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"), required=False)
    # It may not listen yet.
    tools = await until(lambda: tools_of(toolset))
    assert "hello" in await said(tools, "echo", message="hello")
    restart()

    async def again() -> bool:
        answer = await tools["echo"].call({"message": "hello"}, ToolContext())
        return "hello" in answer.content and not answer.is_error

    await until(again)
    assert toolset.figures()["mcpReconnects"] >= 1


@pytest.mark.row("J7", "J8")
def test_nothing_of_these_servers_is_left() -> None:
    def left() -> list[str]:
        lines = [" ".join(process.cmdline()) for process in psutil.Process().children(recursive=True)]
        return [line for line in lines if "mcp-server" in line or "server-everything" in line]

    wait_until(lambda: not left(), "the servers to end", within=10)


AGENT = Path(__file__).with_name("conformance_agent.py")
# Scenarios of auth/ with a person need a browser.
SCENARIOS = {
    "initialize": 1,
    "tools_call": 1,
    "sse-retry": 3,
    "elicitation-sep1034-client-defaults": 5,
    "auth/client-credentials-basic": 9,
    "auth/client-credentials-jwt": 9,
}


@pytest.fixture(scope="module")
def suite() -> tuple[str, str]:
    found: tuple[str, str] = installed(conformance)
    return found


@pytest.mark.row("J7")
@pytest.mark.nightly
@pytest.mark.parametrize(("scenario", "checks"), SCENARIOS.items())
def test_a_scenario_passes_with_all_its_checks(
    suite: tuple[str, str], scenario: str, checks: int, tmp_path: Path
) -> None:
    command = [*suite, "client", "--command", f"{sys.executable} {AGENT}", "--scenario", scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert f"Passed: {checks}/{checks}, 0 failed, 0 warnings" in done.stdout + done.stderr, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.nightly  # to install it takes far longer than to use it
def test_the_skills_of_a_server_that_others_have_written(tmp_path: Path) -> None:
    node, script = installed(hf_skills)
    folder = tmp_path / "skills"
    entry = entry_of(write_skill(folder / "refunds"), "skill://refunds/SKILL.md")
    for resource in entry["resources"]:
        del resource["size"]
    (folder / "skills.json").write_text(json.dumps({"skills": [entry]}))
    port = free_port()
    environment = {**os.environ, "HF_SKILLS_DIR": str(folder)}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([node, script, "--port", str(port)], env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: listens(port) or server.poll() is not None, "the server to listen", within=DEADLINE)
        config = SkillConfig({**OPEN, "skills.store.dir": str(tmp_path / "store")})
        with AgentSkillManager(urls=[f"mcp+http://127.0.0.1:{port}/mcp#label=hf"], config=config) as manager:
            assert [skill.full_name for skill in manager.load_skills()] == ["hf:refunds"], manager.failures
            # The server sends no sizes.
            assert [one.code for one in manager.diagnostics] == ["M01"]
            assert "# refunds" in manager.view().activate("refunds").text
            assert manager.view().read_resource("refunds", "refs/notes.md").text == "Notes of refunds\n"
    finally:
        server.kill()
        server.wait(DEADLINE)
