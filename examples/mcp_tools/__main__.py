"""One question, call by call: the server and the result, with a server that stops in between.

python -m examples.mcp_tools
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.mcp_tools.agent import Traveller
from examples.mcp_tools.model import use_script
from flink_skills import AgentsExecutionEnvironment
from flink_skills.models import ToolMessage


class Server:
    """The server behind HTTP, always at the same port."""

    def __init__(self) -> None:
        with socket.socket() as made:
            made.bind(("127.0.0.1", 0))
            self.port: int = made.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        command = [sys.executable, "-m", "examples.mcp_tools.server", "streamable-http", str(self.port)]
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("mcp_tools: the server did not start")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> int:
    # It says that the server is lost; the table shows that.
    logging.getLogger("flink_skills.mcp").setLevel(logging.ERROR)
    server = Server()
    server.start()
    try:
        model = use_script(server.stop, server.start)
        Traveller.url = f"http://127.0.0.1:{server.port}/mcp"
        env = AgentsExecutionEnvironment.get_execution_environment()
        env.get_config().set("skills.shell.enabled", False)
        output = env.from_list(["What do I pack for Lisbon and Berlin?"]).apply(Traveller())
        answers, errors = output.to_list(), output.to_list("errors")
    finally:
        server.stop()
    if errors:
        print(f"mcp_tools: {errors[0]['error']}", file=sys.stderr)
        return 1

    table = Table(box=box.ROUNDED, title="What the agent did", title_justify="left")
    for heading in ("tool", "result", "what it gave"):
        table.add_column(heading, overflow="fold")
    for message in model.requests[-1].messages:
        if isinstance(message, ToolMessage):
            told = message.content.replace(str(server.port), "PORT")
            table.add_row(message.name, "error" if message.is_error else "ok", escape(" ".join(told.split())))
    Console().print(table)
    print(answers[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
