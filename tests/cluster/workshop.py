"""A workshop around a job with tools of ten kinds: their far ends, which write down what was really done."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flink_skills.testing import Call, Reply
from tests.cluster.job_agents import note
from tests.cluster.shop import Request, Shop
from tests.kit.cluster import StandaloneCluster
from tests.kit.ports import free_port

__all__ = ["EFFECTS", "ONCE", "Workshop"]

HERE = Path(__file__).parent
NEAR = HERE / "kinds_near.py"

# What is done for each order, by the kind of tool: functions (cut, glue, pay, ship, polish), one of a tool set, one of
# an agent that is a tool, a command, MCP on stdio and over HTTP, a fetched page. The file tool leaves no trace outside.
EFFECTS = ("cut", "glue", "pay", "ship", "polish", "stamp", "measure", "command", "weigh", "reserve", "page")
# The tools that are not idempotent; no call of ``ship`` is made again that may have been made.
ONCE = ("pay", "ship", "weigh", "reserve")
KINDS = {
    *("load_skill", "cut", "glue", "pay", "ship", "polish", "stamp", "foreman", "execute_shell_command", "Write"),
    *("web_fetch", "near_weigh", "far_reserve"),
}


class Workshop(Shop):
    """Orders that take a turn with all tools at once."""

    requests_each = 4

    def __init__(self, folder: Path, latency: float) -> None:
        super().__init__(folder, latency)
        self.offered: set[str] = set()
        self.results_of_tools: dict[str, list[str]] = {}
        self._mcp_port = free_port()
        self._pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _pages(str(self._effects)))
        self._far: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Workshop]:
        """The workshop while its far ends answer."""
        with super().opened(), self._pages:
            keeper = threading.Thread(target=self._pages.serve_forever)
            keeper.start()
            self.start_far()
            try:
                yield self
            finally:
                self.kill_far()
                self._pages.shutdown()
                keeper.join()

    def start_far(self) -> None:
        """Start the MCP server behind HTTP."""
        self._far = subprocess.Popen(
            [sys.executable, str(HERE / "kinds_far.py"), str(self._mcp_port), str(self._effects)]
        )

    def kill_far(self) -> None:
        """End it with SIGKILL."""
        assert self._far is not None
        self._far.kill()
        self._far.wait()

    def submit(self, cluster: StandaloneCluster, *options: str, **_: Any) -> str:
        """Start the job, and wait until it runs."""
        host, port = self._record.server_address[:2]
        self.job = cluster.submit(
            HERE / "job_kinds.py",
            *("--orders", str(self._orders), "--results", str(self._results), "--effects", str(self._effects)),
            *("--model-url", self.server.url, "--skills", str(HERE / "skills_of_kinds")),
            *("--mcp-url", f"http://127.0.0.1:{self._mcp_port}/mcp"),
            *("--set", "skills.worker.processes=1", "--set", "skills.shell.network=allow"),
            *("--set", "skills.tool.lost-calls.ship=refuse"),
            *options,
            # As words: a checkout need not be readable for the user of commands.
            *("--", "-c", NEAR.read_text(), str(host), str(port)),
            python_files=[HERE / "kinds_agent.py"],
        )
        cluster.wait(self.job, "RUNNING", 120)
        return self.job

    @staticmethod
    def near_servers(cluster: StandaloneCluster) -> set[int]:
        """The processes of the MCP server on stdio."""
        return {pid for pid, command in cluster.processes().items() if "Weigh the goods" in command}

    async def _reply(self, body: dict[str, Any]) -> Reply:
        texts = [str(message["content"]) for message in body["messages"] if message["role"] == "user"]
        found = re.search(r"Handle order (\S+)\.", texts[-1])
        assert found is not None, texts
        order = found[1]
        number = sum(message["role"] == "assistant" for message in body["messages"])
        if "You are the foreman." in str(body["messages"][0]["content"]):
            await asyncio.sleep(self._latency * random.uniform(0.2, 0.6))
            return Reply("measured") if number else Reply(tool_calls=(Call("measure", {"order": order}),))
        self.offered |= {tool["function"]["name"] for tool in body["tools"]}
        self.results_of_tools[order] = [str(m["content"]) for m in body["messages"] if m["role"] == "tool"]
        request = Request(order, number, time.time())
        self._requests.append(request)
        # Uneven, so that turns which began together do not go in step. Most of a turn comes after the calls that must
        # not be made again, so that there always are turns with such calls in their journal.
        await asyncio.sleep(self._latency * random.uniform(0.6, 1.4) * (4 if number >= 2 else 1))
        request.answered = time.time()
        return self._replies(order)[number]

    def _replies(self, order: str) -> tuple[Reply, ...]:
        host, port = self._record.server_address[:2]
        pages = f"http://127.0.0.1:{self._pages.server_address[1]}"
        command = f"bash scripts/check.sh {order} {host!s} {port}"
        of_order = ("cut", "glue", "polish", "pay", "stamp", "near_weigh", "far_reserve")
        together = (
            *(Call(name, {"order": order}) for name in of_order),
            Call("foreman", {"request": f"Handle order {order}."}),
            Call("execute_shell_command", {"command": command}),
            Call("Write", {"path": f"{order}.txt", "content": order}),
            Call("web_fetch", {"url": f"{pages}/{order}"}),
        )
        return (
            Reply(tool_calls=(Call("load_skill", {"name": "order-rules"}),)),
            Reply(tool_calls=together),
            Reply(tool_calls=(Call("ship", {"order": order}),)),
            Reply(text=f"made {order}"),
        )


def _pages(effects: str) -> type[http.server.BaseHTTPRequestHandler]:
    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            order = self.path.strip("/")
            note(effects, order, "page", "-")
            text = f"<html><body><p>The page of {order}.</p></body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Pages
