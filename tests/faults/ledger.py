"""The books of the far end: which step of which order was asked for when, and when it was answered."""

from __future__ import annotations

import asyncio
import random
import re
import socketserver
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from flink_skills.testing import Call, Reply, ScriptedModelServer

__all__ = ["Attempt", "Ledger", "has_command", "steps"]


@dataclass
class Attempt:
    """One time that a step of an order was asked for. ``answered`` is None while its answer has not been sent."""

    order: str
    step: str
    received: float
    answered: float | None = None
    call_id: str = ""


def has_command(order: str) -> bool:
    """Whether this order, such as ``run-c12-5``, is one that runs the command of a skill: each fifth of a customer,
    and not all customers at once."""
    _, customer, place = order.rsplit("-", 2)
    return (int(customer[1:]) + int(place)) % 5 == 0


def steps(order: str) -> list[str]:
    """The steps of an order that the far end sees, in their order."""
    if has_command(order):
        return ["model 0", "reserve", "model 1", "model 2", "command", "model 3"]
    return ["model 0", "reserve", "model 1"]


class Ledger:
    """A chat model, and a record of what tools and commands do; both keep every attempt."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._lock = threading.Lock()
        self._attempts: list[Attempt] = []
        self._server = ScriptedModelServer(self._reply, keep=1)
        self._record = _Record(self._note)
        self._keeper = threading.Thread(target=self._record.serve_forever)

    def __enter__(self) -> Ledger:
        self._server.start()
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._record.shutdown()
        self._keeper.join()
        self._record.server_close()
        self._server.stop()

    @property
    def environment(self) -> dict[str, str]:
        """What the agent has to know."""
        host, port = self._record.server_address[:2]
        return {"FAULTS_MODEL": self._server.url, "FAULTS_RECORD": f"{host!s}:{port}"}

    def attempts(self, run: str) -> list[Attempt]:
        """All attempts for the orders of a run, in the order in which they were received."""
        with self._lock:
            found = [attempt for attempt in self._attempts if attempt.order.startswith(f"{run}-")]
        return sorted(found, key=lambda attempt: attempt.received)

    def _enter(self, attempt: Attempt) -> None:
        with self._lock:
            self._attempts.append(attempt)

    def _note(self, order: str, step: str, call_id: str) -> None:
        # A tool has its answer at once. What happens to it afterwards, the next request to the model shows.
        self._enter(Attempt(order, step, now := time.time(), now, call_id))

    async def _reply(self, body: dict[str, Any]) -> Reply:
        users = [message["content"] for message in body["messages"] if message["role"] == "user"]
        found = re.search(r"Handle order (\S+)\.", str(users[-1]))
        assert found is not None, users
        order = found[1]
        number = sum(message["role"] == "tool" for message in body["messages"])
        attempt = Attempt(order, f"model {number}", time.time())
        self._enter(attempt)
        # Here and not by the server's own latency: a client that is gone meanwhile cancels this.
        await asyncio.sleep(self._latency * random.uniform(0.6, 1.4))
        replies: list[Reply] = self._replies(order)
        attempt.answered = time.time()
        return replies[number]

    def _replies(self, order: str) -> list[Reply]:
        host, port = self._record.server_address[:2]
        command = {"command": f"bash scripts/check.sh {order} {host!s} {port}", "skill": "stock-check"}
        reserve = Reply(tool_calls=(Call("reserve", {"order": order}),))
        if not has_command(order):
            return [reserve, Reply("{last_tool}")]
        return [
            reserve,
            Reply(tool_calls=(Call("load_skill", {"name": "stock-check"}),)),
            Reply(tool_calls=(Call("execute_shell_command", command),)),
            Reply("{last_tool}"),
        ]


class _Record(socketserver.ThreadingTCPServer):
    """Tools and commands say here what they do: order, step and call id. They go on once it is written down."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, note: Any) -> None:
        self.note = note
        super().__init__(("127.0.0.1", 0), _Line)


class _Line(socketserver.StreamRequestHandler):
    server: _Record

    def handle(self) -> None:
        words = self.rfile.readline().decode().split()
        if len(words) == 3:  # else it was killed before it had said it
            self.server.note(*words)
            self.wfile.write(b"noted\n")
