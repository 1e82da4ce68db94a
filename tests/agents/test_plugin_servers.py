"""MCP servers of plugins in turns: only those that the job names start, in the sandbox, with what the job grants."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ConfigError, SkillsError
from flink_skills.testing import call, calls
from tests.kit.agents import OpenAgent
from tests.kit.models import Script, offered, results
from tests.kit.passable import passable_folder

SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
MCP = "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"
SECRET = "s3cr3t-of-the-job"

# A server of Python alone, because the sandbox lacks the packages of the tests.
PROGRAM = """\
import json, os, sys
PREFIX = "".join(arg for arg in sys.argv[1:] if arg.endswith("_"))
def called(name, text):
    if name == "end":
        os._exit(3)
    if name == "show":
        return json.dumps({"args": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()})
    if name == "keep":
        path = os.path.join(os.environ["PLUGIN_DATA"], "kept")
        before = open(path).read() if os.path.exists(path) else "nothing"
        open(path, "w").write(text)
        return before
    try:
        with open(text, "a"):
            return "written"
    except OSError as error:
        return type(error).__name__
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        answer["result"] = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "plain", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        answer["result"] = {"tools": [{"name": PREFIX + name, "description": name, "inputSchema": schema}
                                      for name in ("show", "keep", "write", "end")]}
    elif method == "tools/call":
        text = called(params["name"].removeprefix(PREFIX), params.get("arguments", {}).get("text", ""))
        answer["result"] = {"content": [{"type": "text", "text": text}]}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
"""


class Desk(Agent):
    model = "scripted:model"


@pytest.fixture
def isolation() -> dict[str, str]:
    """The isolation of a job without options, which these tests are about."""
    return {}


@pytest.fixture
def source() -> Iterator[Path]:
    with passable_folder() as folder:
        folder.chmod(0o755)
        yield folder


def write_plugin(folder: Path, servers: dict[str, Any], name: str = "ops", skill: str = "deploy") -> None:
    (folder / "skills" / skill).mkdir(parents=True)
    (folder / "skills" / skill / "SKILL.md").write_text(
        f"---\nname: {skill}\ndescription: Does {skill}.\nallowed-tools: mcp__desk__show\n---\nDo it.\n"
    )
    (folder / "bin").mkdir()
    program = folder / "bin/server"
    program.write_text('#!/bin/sh\nexec python3 "$PLUGIN_ROOT/server.py" "$@"\n')
    program.chmod(0o755)
    (folder / "server.py").write_text(PROGRAM)
    (folder / "plugin.json").write_text(json.dumps({"$schema": SCHEMA, "name": name}))
    (folder / "mcp.json").write_text(json.dumps({"$schema": MCP, "mcpServers": servers}))


def stdio(**fields: Any) -> dict[str, Any]:
    return {"type": "stdio", "command": "./bin/server", **fields}


@pytest.mark.row("B27")
async def test_a_server_that_the_job_does_not_name_does_not_start(
    open_agent: OpenAgent, script: Script, source: Path
) -> None:
    write_plugin(source / "ops", {"desk": stdio()})
    model = script(["done"])
    await (await open_agent(Desk, source)).turn("x")
    assert "show" not in offered(model)


@pytest.mark.row("B27")
async def test_a_named_server_starts_in_the_sandbox_with_its_folders(
    open_agent: OpenAgent, script: Script, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_WORKER", "not for servers")
    monkeypatch.setenv("JOB_SECRET", SECRET)
    monkeypatch.setenv("GRANTED", "by the job")
    literal = ["${env:JOB_SECRET}", "$PLUGIN_ROOT", "${PLUGIN_ROOTX}", "${PLUGIN_ROOT:-x}"]
    args = ["${PLUGIN_ROOT}/a", "${PLUGIN_DATA}", *literal]
    env = {"CONFIG": "${PLUGIN_ROOT}/c.json", "LEAK": "${env:JOB_SECRET}${JOB_SECRET}"}
    write_plugin(source / "ops", {"desk": stdio(args=args, env=env)})
    inside = str(source / "ops/server.py")
    model = script([calls(call("show"), call("write", text=inside), call("write", text="/tmp/../etc/x")), "done"])
    options = {"skills.plugins.servers": ["ops:desk"], "skills.shell.env": ["GRANTED"]}
    options |= {"skills.plugins.env.ops:desk.TOKEN": "${env:JOB_SECRET}"}
    await (await open_agent(Desk, source, **options)).turn("x")
    assert {"show", "keep", "write"} <= set(offered(model))
    shown, *written = results(model)
    found = json.loads(shown)
    root, data = found["env"]["PLUGIN_ROOT"], found["env"]["PLUGIN_DATA"]
    assert root == str((source / "ops").resolve())
    assert data.startswith(str(tmp_path / "scratch")), "in a workspace"
    assert found["cwd"] == root
    assert found["args"] == [f"{root}/a", data, *literal]
    assert found["env"]["CONFIG"] == f"{root}/c.json"
    assert found["env"]["LEAK"] == "${env:JOB_SECRET}${JOB_SECRET}"
    assert found["env"]["GRANTED"] == "by the job"
    assert found["env"]["TOKEN"] == SECRET
    assert "OF_THE_WORKER" not in found["env"]
    assert not {"written"} & set(written), "the plugin's folder and the system are read-only"


@pytest.mark.row("B27")
async def test_the_data_of_a_plugin_stays_and_its_servers_share_it(
    open_agent: OpenAgent, script: Script, source: Path
) -> None:
    servers = {"one": stdio(cwd="${PLUGIN_DATA}/a/../b"), "two": stdio(cwd="./bin", args=["two_"])}
    write_plugin(source / "ops", servers)
    steps = [
        calls(call("keep", text="first"), call("show")),
        calls(call("end")),
        calls(call("keep", text="second")),
        calls(call("two_keep", text="third"), call("two_show")),
        "done",
    ]
    model = script(steps)
    await (await open_agent(Desk, source, **{"skills.plugins.servers": ["ops:one", "ops:two"]})).turn("x")
    first, shown, _, second, third, other = results(model)
    one, two = json.loads(shown), json.loads(other)
    assert (first, second, third) == ("nothing", "first", "second")
    assert one["cwd"] == one["env"]["PLUGIN_DATA"] + "/b"
    assert two["cwd"] == str((source / "ops/bin").resolve())
    assert one["env"]["PLUGIN_DATA"] == two["env"]["PLUGIN_DATA"]


@pytest.mark.parametrize("names", [["ops:desk", "ops:dsk"], ["opz:desk"], ["desk"]])
@pytest.mark.row("B27")
async def test_a_name_that_matches_no_server_is_an_error_with_near_names(
    open_agent: OpenAgent, source: Path, names: list[str]
) -> None:
    write_plugin(source / "ops", {"desk": stdio()})
    with pytest.raises(ConfigError, match=r"option skills.plugins.servers: '.*' matches no plugin server.*ops:desk"):
        await open_agent(Desk, source, **{"skills.plugins.servers": names})


async def test_a_name_of_servers_of_two_plugins_is_an_error(open_agent: OpenAgent, source: Path) -> None:
    write_plugin(source / "a", {"desk": stdio()})
    write_plugin(source / "b", {"desk": stdio()}, skill="other")
    with pytest.raises(ConfigError, match=r"'ops:desk' is a server of several plugins \(.*/a/mcp.json, .*/b/mcp.json"):
        await open_agent(Desk, source, **{"skills.plugins.servers": ["ops:desk"]})


async def test_an_agent_that_sees_no_skill_of_the_plugin_has_no_tools_of_it(
    open_agent: OpenAgent, script: Script, source: Path
) -> None:
    write_plugin(source / "ops", {"desk": stdio()})
    write_plugin(source / "web", {}, name="web", skill="other")

    class Narrow(Agent):
        model = "scripted:model"
        skill_names = ("other",)

    model = script(["done"])
    await (await open_agent(Narrow, source, **{"skills.plugins.servers": ["ops:desk"]})).turn("x")
    assert "show" not in offered(model)


@pytest.mark.row("B27")
async def test_a_server_that_fails_does_not_affect_other_servers_and_skills(
    open_agent: OpenAgent, script: Script, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_plugin(source / "ops", {"desk": stdio(), "bad": stdio(command="no-such-program")})
    model = script([calls(call("load_skill", name="deploy")), "done"])
    await (await open_agent(Desk, source, **{"skills.plugins.servers": ["ops:desk", "ops:bad"]})).turn("x")
    assert "show" in offered(model)
    assert "Do it." in results(model)[0]
    assert "ops:bad" in caplog.text


async def test_a_program_without_commands_is_an_error(open_agent: OpenAgent, source: Path) -> None:
    write_plugin(source / "ops", {"desk": stdio()})
    options = {"skills.plugins.servers": ["ops:desk"], "skills.shell.enabled": "false"}
    with pytest.raises(ConfigError, match=r"'ops:desk'.*set skills.shell.enabled to true"):
        await open_agent(Desk, source, **options)


async def test_tools_of_a_server_need_approval_as_others_do(
    open_agent: OpenAgent, script: Script, source: Path
) -> None:
    write_plugin(source / "ops", {"desk": stdio()})
    model = script([calls(call("show")), "done"])
    options = {"skills.plugins.servers": ["ops:desk"], "skills.tools.approve": ["show"]}
    await (await open_agent(Desk, source, **options)).turn("x")
    assert "PLUGIN_ROOT" not in results(model)[0]


@pytest.mark.parametrize("unsupported", ["refuse", "hide"])
@pytest.mark.row("B27")
async def test_a_skill_that_names_tools_of_a_server_that_is_not_started_is_not_supported(
    open_agent: OpenAgent, script: Script, source: Path, unsupported: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_plugin(source / "ops", {"desk": stdio()})
    options = {"skills.unsupported": unsupported}
    model = script(["done", "done"])
    if unsupported == "refuse":
        with pytest.raises(
            SkillsError, match=r"deploy: U13 .*'ops:desk'.*\(add 'ops:desk' to skills.plugins.servers\)"
        ):
            await open_agent(Desk, source, **options)
    else:
        bench = await open_agent(Desk, source, **options)
        await bench.turn("x")
        assert "Does deploy" not in model.requests[-1].system
        assert "add 'ops:desk' to skills.plugins.servers" in caplog.text
    await (await open_agent(Desk, source, **options, **{"skills.plugins.servers": ["ops:desk"]})).turn("x")
    assert "Does deploy" in model.requests[-1].system
    assert "show" in offered(model)


@pytest.mark.row("B27")
async def test_a_vendor_server_has_variables_that_the_job_grants(
    open_agent: OpenAgent, script: Script, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOB_SECRET", SECRET)
    monkeypatch.setenv("OTHER", "o" * 8)
    args = ["${CLAUDE_PLUGIN_ROOT}/a", "${TOKEN}", "${OTHER:-none}"]
    args += ["${OT${UNSET:-}HER}", "${X_PLUGIN_ROOT:-.}", "${en${UNSET:-v:OTHER}}"]
    server = {"command": "${CLAUDE_PLUGIN_ROOT}/bin/server", "args": args, "env": {"OWN": "Bearer ${env:TOKEN}"}}
    write_plugin(source / "ops", {})
    (source / "ops/plugin.json").unlink()
    (source / "ops/.claude-plugin").mkdir()
    (source / "ops/.claude-plugin/plugin.json").write_text(json.dumps({"name": "ops"}))
    (source / "ops/mcp.json").write_text(json.dumps({"desk": server}))
    options = {"skills.plugins.servers": ["ops:desk"]}
    with pytest.raises(ConfigError, match=r"TOKEN\} is not granted by the job; set skills.plugins.env.ops:desk.TOKEN"):
        await open_agent(Desk, source, **options)
    model = script([calls(call("show")), "done"])
    options |= {"skills.plugins.env.ops:desk.TOKEN": "${env:JOB_SECRET}"}
    (source / "ops/.mcp.json").write_text(json.dumps({"desk": {"command": "a", "args": ["${TOKEN}" + args[-1]]}}))
    with pytest.raises(ConfigError, match=r"contains '\$\{' in addition"):
        await open_agent(Desk, source, **options)
    (source / "ops/.mcp.json").unlink()
    await (await open_agent(Desk, source, **options)).turn("x")
    found = json.loads(results(model)[0])
    root = str((source / "ops").resolve())
    assert found["args"] == [f"{root}/a", SECRET, "none", "${OTHER}", root, "${env:OTHER}"]
    assert found["env"]["OWN"] == f"Bearer {SECRET}"
    assert found["env"]["CLAUDE_PLUGIN_ROOT"] == found["env"]["PLUGIN_ROOT"] == root
    assert found["env"]["CLAUDE_PLUGIN_DATA"] == found["env"]["PLUGIN_DATA"]


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({"command": "a", "sandbox": False}, "sandbox cannot be set by a plugin"),
        ({"command": "a", "approve": False, "tools": ["x"]}, "approve, tools cannot be set by a plugin"),
        ({"command": "a", "disabled": True}, "is disabled there"),
        ({"command": "../../bin/sh"}, "'command' leaves the plugin"),
        ({"command": "a", "cwd": "/etc"}, "'cwd' leaves the plugin"),
        ({"command": "a", "env": {"LD_PRELOAD": "x"}}, "'LD_PRELOAD' is never passed on to commands"),
    ],
)
async def test_a_vendor_server_with_keys_of_the_job_is_an_error(
    open_agent: OpenAgent, source: Path, server: dict[str, Any], problem: str
) -> None:
    write_plugin(source / "ops", {})
    (source / "ops/plugin.json").rename(source / "ops/other.json")
    (source / "ops/.claude-plugin").mkdir()
    (source / "ops/.claude-plugin/plugin.json").write_text(json.dumps({"name": "ops", "mcpServers": {"desk": server}}))
    with pytest.raises(ConfigError, match=f"MCP server 'ops:desk' of .*{problem}"):
        await open_agent(Desk, source, **{"skills.plugins.servers": ["ops:desk"]})


@pytest.mark.parametrize("kind", ["streamable-http", "sse"])
async def test_an_address_has_its_headers_literally(
    open_agent: OpenAgent, source: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOB_SECRET", SECRET)
    received: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            received.append(dict(self.headers))
            self.send_response(503)
            self.end_headers()

        do_GET = do_POST = answer

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        headers = {"X-Tenant": "${env:JOB_SECRET}", "X-Root": "${PLUGIN_ROOT}"}
        address = f"http://127.0.0.1:{web.server_address[1]}/mcp"
        write_plugin(source / "ops", {"far": {"type": kind, "url": address, "headers": headers}})
        await open_agent(Desk, source, **{"skills.plugins.servers": ["ops:far"]})
        web.shutdown()
    assert received
    assert {name: received[0][name] for name in headers} == headers
