"""MCP servers of agents: declared by a method or in YAML; programs run in the sandbox of commands."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import sysconfig
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from flink_skills import Agent, ExecutionError, PlanError, SkillConfig, agent_tool, load_agent_yaml, mcp_server, tool
from flink_skills.agents import Turn, TurnStart, compile_plan, open_plan
from flink_skills.models import ToolMessage
from flink_skills.testing import call, calls
from flink_skills.tools.mcp import McpToolSet
from tests.kit.agents import OpenAgent
from tests.kit.models import Script, offered, results
from tests.kit.passable import passable_folder
from tests.kit.waiting import until, wait_until

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "shop_server.py"
PLAIN = SERVER.with_name("plain_server.py")
SECRET = "s3cr3t-of-the-shop"
WORKER = Path(__file__).with_name("mcp_worker.py")


@pytest.fixture
def isolation() -> dict[str, str]:
    """The isolation of a job as it is without options, which is what these tests are about."""
    return {}


@pytest.fixture
def sandboxed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Agent]:
    """An agent with a server that runs as commands do."""
    monkeypatch.setenv("OF_THE_WORKER", "not for servers")
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    # As words: a checkout need not be readable for the user of commands.
    program = PLAIN.read_text()

    class Clerk(Agent):
        model = "scripted:m"

        @mcp_server(prefix="shop_")
        def shop(self) -> dict[str, Any]:
            return {
                "command": "python3",
                "args": ["-c", program],
                "env": {"SHOP_TOKEN": "${env:SHOP_SECRET}"},
                "timeout": 60,
            }

    return Clerk


@pytest.mark.row("J7", "J8")
async def test_a_program_runs_in_the_sandbox_and_is_shared_by_turns(
    sandboxed: type[Agent], open_agent: OpenAgent, script: Script, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    secret = tmp_path / "secret.txt"
    secret.write_text("of the worker")
    secret.chmod(0o600)
    asked = calls(call("shop_count", text="abc"), call("shop_surroundings"), call("shop_read", text=str(secret)))
    model = script([asked, "done", calls(call("shop_surroundings")), "done"])
    bench = await open_agent(sandboxed)
    await bench.turn("x")
    assert offered(model) == ["shop_count", "shop_surroundings", "shop_read", "shop_end", "shop_scream"]
    count, surroundings, read = results(model)
    found = json.loads(surroundings)
    assert count == "3"
    assert read in {"PermissionError", "FileNotFoundError"}
    assert found["token"] == SECRET
    assert not {"OF_THE_WORKER", "SHOP_SECRET"} & set(found["names"])
    assert found["cwd"].startswith(str(tmp_path / "scratch")), "in a workspace of its own"
    await bench.turn("x", key='"other"', number=2)
    assert json.loads(results(model)[0])["pid"] == found["pid"], "the same process"
    assert "MCP server shop says: ready, with the token [hidden]" in caplog.text


async def test_secrets_are_in_no_plan_no_command_line_and_no_state(
    sandboxed: type[Agent], open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    plan = compile_plan(sandboxed, job_scopes=[], config=SkillConfig({}))
    assert SECRET not in json.dumps(plan.to_json())
    script([calls(call("shop_count", text="abc")), "done"])
    bench = await open_agent(sandboxed)
    outcome = await bench.turn("x")
    lines = []
    for process in psutil.process_iter(["cmdline"]):
        lines.append(" ".join(process.info["cmdline"] or []))
    assert any("the token" in line for line in lines), "the server runs"
    assert not [line for line in lines if SECRET in line]
    assert SECRET not in repr((outcome, bench.journal))
    assert SECRET not in caplog.text


async def test_a_program_that_ends_is_started_again(
    sandboxed: type[Agent], open_agent: OpenAgent, script: Script
) -> None:
    def answer(request: Any) -> Any:
        said = [message.content for message in request.messages if isinstance(message, ToolMessage)]
        if not said:
            return calls(call("shop_end"))
        return "done" if said[-1] == "3" else calls(call("shop_count", text="abc"))

    model = script(answer)
    bench = await open_agent(sandboxed)
    outcome = await bench.turn("x")
    assert outcome.outputs == (("", "done"),)
    assert "went away during the request" in results(model)[0]


async def test_a_long_answer_arrives(sandboxed: type[Agent], open_agent: OpenAgent, script: Script) -> None:
    model = script([calls(call("shop_scream", text="3000000")), "done"])
    bench = await open_agent(sandboxed, **{"skills.tool.max-output": 0})
    await bench.turn("x")
    assert results(model) == ["x" * 3_000_000]


async def test_yaml_declares_servers(open_agent: OpenAgent, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "clerk.yaml"
    server = {
        "shop": {
            "command": [sys.executable, str(SERVER), "stdio"],
            "sandbox": False,
            "prefix": "shop_",
            "tools": ["price"],
        }
    }
    file.write_text(json.dumps({"model": "scripted:m", "mcp_servers": server}))
    model = script([calls(call("shop_price", article="abc")), "done"])
    await (await open_agent(load_agent_yaml(file))).turn("x")
    assert results(model) == ["3"]


@pytest.mark.row("J7")
async def test_an_agent_does_not_open_without_a_required_server(open_agent: OpenAgent) -> None:
    class Helper(Agent):
        model = "scripted:m"

        @mcp_server
        def shop(self) -> dict[str, Any]:
            return {"command": "python3", "args": ["-c", "import sys; sys.exit('no module named shop')"]}

    class Clerk(Agent):
        model = "scripted:m"

        @agent_tool
        def helper(self) -> Agent:
            """Helps."""
            return Helper()

    for agent in (Helper, Clerk):
        with pytest.raises(ExecutionError) as caught:
            await open_agent(agent)
        text = str(caught.value)
        assert "the MCP server 'shop' (program python3) cannot be started" in text
        assert "exit code 1" in text
        assert "no module named shop" in text


@pytest.mark.row("J7")
async def test_a_worker_that_replaces_another_one_opens_while_a_server_is_down(tmp_path: Path, script: Script) -> None:
    class Clerk(Agent):
        model = "scripted:m"

        @mcp_server
        def shop(self) -> dict[str, Any]:
            return {"command": "python3", "args": ["-c", (tmp_path / "server.py").read_text()], "sandbox": False}

    script(lambda request: "ok")
    (tmp_path / "server.py").write_text(PLAIN.read_text())
    plan = compile_plan(Clerk, job_scopes=[], config=SkillConfig({"skills.store.dir": str(tmp_path / "store")}))
    downs = []
    for code in (PLAIN.read_text(), "import sys; sys.exit('down')"):
        (tmp_path / "server.py").write_text(code)
        runtime = await open_plan(plan, scratch_dir=str(tmp_path / "scratch"))
        downs.append(runtime.figures()["mcpServersDown"])
        await runtime.close()
    assert downs == [0, 1]
    with pytest.raises(ExecutionError, match="down"):
        await open_plan(plan, scratch_dir=str(tmp_path))


async def test_yaml_makes_a_server_optional(open_agent: OpenAgent, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "clerk.yaml"
    server = {"url": "http://127.0.0.1:9/mcp"}
    file.write_text(json.dumps({"model": "scripted:m", "mcp_servers": {"shop": server}}))
    with pytest.raises(ExecutionError, match="the MCP server 'shop'"):
        await open_agent(load_agent_yaml(file))
    file.write_text(json.dumps({"model": "scripted:m", "mcp_servers": {"shop": {**server, "required": False}}}))
    script(lambda request: "ok")
    outcome = await (await open_agent(load_agent_yaml(file))).turn("x")
    assert outcome.outputs == (("", "ok"),)


async def test_an_optional_server_that_is_not_there_is_no_failed_job(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Clerk(Agent):
        model = "scripted:m"

        @mcp_server(required=False)
        def shop(self) -> str:
            return "http://127.0.0.1:9/mcp"

    model = script(lambda request: "ok")
    outcome = await (await open_agent(Clerk)).turn("x")
    assert (offered(model), outcome.outputs) == ([], (("", "ok"),))
    assert "the MCP server shop (http://127.0.0.1:9/mcp) cannot be reached: ConnectError" in caplog.text


async def test_mistakes_are_found_at_submission(open_agent: OpenAgent) -> None:
    class Wrong(Agent):
        model = "scripted:m"

        @mcp_server
        def shop(self) -> Any:
            return {"uri": "http://h"}

    with pytest.raises(PlanError, match=r"@mcp_server shop\(\): unknown key 'uri' in MCP server shop"):
        await open_agent(Wrong)


@pytest.mark.row("J8", "J11")
def test_no_program_outlives_a_worker_that_is_killed() -> None:
    mark = f"mcp-{uuid.uuid4().hex}"

    def servers() -> list[int]:
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if mark in words and str(WORKER) not in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        return found

    with passable_folder() as folder:
        worker = subprocess.Popen([sys.executable, str(WORKER), str(folder), mark], stdout=subprocess.PIPE)
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"0\n", "both are connected"
            # The launcher of commands is there in between, with the words of its command.
            assert len(servers()) >= 2
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()  # type: ignore[union-attr]
        wait_until(lambda: not servers(), "the MCP servers to end with their worker")


async def test_two_servers_with_tools_of_one_name_give_each_tool_once(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    program = PLAIN.read_text()

    class Clerk(Agent):
        model = "scripted:m"

        @tool
        def read(self) -> str:
            """The agent's own."""
            return "own"

        @mcp_server
        def one(self) -> dict[str, Any]:
            return {"command": sys.executable, "args": ["-c", program], "sandbox": False}

        @mcp_server
        def two(self) -> dict[str, Any]:
            return {"command": sys.executable, "args": ["-c", program], "sandbox": False}

    model = script([calls(call("read"), call("count", text="abc")), "done"])
    await (await open_agent(Clerk)).turn("x")
    assert sorted(offered(model)) == ["count", "end", "read", "scream", "surroundings"]
    assert results(model) == ["own", "3"]
    assert "tool 'count' of tool set 'two' is omitted" in caplog.text
    assert "tool 'read' of a tool set is omitted" in caplog.text


async def test_a_line_without_end_costs_the_connection_and_not_the_memory(
    sandboxed: type[Agent], open_agent: OpenAgent, script: Script
) -> None:
    model = script([calls(call("shop_scream", text=str(25 << 20))), "done"])
    await (await open_agent(sandboxed)).turn("x")
    assert "the program writes a line of more than 25,165,824 bytes" in results(model)[0]


async def test_other_keys_go_on_while_a_server_is_down(open_agent: OpenAgent, script: Script) -> None:
    class Clerk(Agent):
        model = "scripted:m"

        @mcp_server(prefix="shop_")
        def shop(self) -> dict[str, Any]:
            return {"command": sys.executable, "args": ["-c", PLAIN.read_text()], "sandbox": False}

        @tool
        def look(self) -> str:
            """Looks."""
            return "seen"

    def answer(request: Any) -> Any:
        said = [message.content for message in request.messages if isinstance(message, ToolMessage)]
        if said and said[-1] in ("3", "seen"):
            return f"done: {said[-1]}"
        if any(message.content == "other" for message in request.messages):
            return calls(call("look"))
        return calls(call("shop_count", text="abc")) if said else calls(call("shop_end"))

    script(answer)
    bench = await open_agent(Clerk)
    outcomes = await asyncio.gather(
        *(bench.turn("x", key=f'"{number}"') for number in range(3)),
        *(bench.turn("other", key=f'"other-{number}"') for number in range(3)),
    )
    for outcome in outcomes[:3]:
        assert outcome.outputs[0][1] == "done: 3"
    for outcome in outcomes[3:]:
        assert outcome.outputs == (("", "done: seen"),)


async def test_a_tool_set_is_not_said_twice(open_agent: OpenAgent) -> None:
    class Wrong(Agent):
        model = "scripted:m"

        @mcp_server(prefix="shop_")
        def shop(self) -> Any:
            return McpToolSet("http://h/mcp")

    with pytest.raises(PlanError, match=r"@mcp_server shop\(\) returns a tool set: pass prefix to that tool set"):
        await open_agent(Wrong)


@pytest.mark.row("J7")
async def test_figures_say_which_servers_are_there(tmp_path: Path, script: Script) -> None:
    class Helper(Agent):
        model = "scripted:m"

        @mcp_server(required=False)
        def nowhere(self) -> str:
            return "http://127.0.0.1:9/mcp"

    class Clerk(Agent):
        model = "scripted:m"

        @mcp_server(prefix="shop_")
        def shop(self) -> dict[str, Any]:
            return {"command": sys.executable, "args": ["-c", PLAIN.read_text()], "sandbox": False}

        @agent_tool
        def helper(self) -> Agent:
            """Helps."""
            return Helper()

    told: list[Any] = []
    script([calls(call("shop_end")), "done"])
    plan = compile_plan(Clerk, job_scopes=[], config=SkillConfig({"skills.store.dir": str(tmp_path / "store")}))
    runtime = await open_plan(plan, scratch_dir=str(tmp_path / "scratch"), on_figures=told.append)
    try:
        assert (told[-1]["mcpServers"], told[-1]["mcpServersDown"], told[-1]["mcpReconnects"]) == (2, 1, 0)
        await Turn(runtime, TurnStart('"k"', 1, b"x", "x"), lambda *entry: None).run()
        await until(lambda: told[-1]["mcpReconnects"], "the server to be connected again", within=60)
        assert any(figures["mcpServersDown"] == 2 for figures in told)
        assert told[-1]["mcpServersDown"] == 1
    finally:
        await runtime.close()


@pytest.mark.row("J8")
async def test_a_server_of_the_package_runs_in_the_sandbox_where_that_can_read_it(
    open_agent: OpenAgent, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    class Clerk(Agent):
        model = "scripted:m"

        @mcp_server(prefix="shop_", prompts=True, required=False)
        def shop(self) -> dict[str, Any]:
            return {"command": sys.executable, "args": ["-c", SERVER.read_text(), "stdio"], "timeout": 60}

    model = script([calls(call("shop_price", article="abc"), call("shop_end")), *["done"] * 2])
    # Packages of this Python may be anywhere.
    readable = [str(Path(sysconfig.get_path("purelib"))), sys.prefix, sys.base_prefix]
    bench = await open_agent(Clerk, **{"skills.shell.readable": ";".join(readable)})
    await bench.turn("x")
    if "shop_price" not in offered(model):
        pytest.skip(f"commands cannot run this Python: {caplog.text[-300:]}")
    assert results(model)[0] == "3"
    assert "went away during the request (the program ended with exit code 3)" in results(model)[1]
