"""A shop around the test jobs: it places orders, plays the chat model, and keeps the books of what happened when."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.cluster.job_agents import note
from tests.kit.cluster import StandaloneCluster, wait_until

HERE = Path(__file__).parent
SKILLS = HERE / "skills"

# What the agent does for each order, apart from asking the model.
EFFECTS = ("step", "command", "reserve", "pack")
# What is told of each order.
EVENTS = {"turn": 1, "step": 1, "chat": 5, "tool": 4, "skill": 1, "command": 1}
# How often it asks the model for each order: load the skill, run its script, call one tool and the other, answer.
REQUESTS = 5


@dataclass
class Request:
    """A model request: the ``number``-th of its order, from 0. ``answered`` is None while nobody got an answer."""

    order: str
    number: int
    received: float
    answered: float | None = None


@dataclass(frozen=True)
class Effect:
    """Something that a step, a command or a tool really did."""

    order: str
    kind: str
    call_id: str
    at: float


@dataclass(frozen=True)
class Result:
    """A line of the sink. ``turn`` is the runtime's number on the key, ``count`` the agent's own, from its state."""

    customer: str
    order: str
    turn: int
    count: int
    answer: str


class Record(socketserver.ThreadingTCPServer):
    """Where commands say what they do: all that they can reach outside of their workspaces is the network."""

    def __init__(self, effects: Path) -> None:
        self.effects = effects
        super().__init__(("127.0.0.1", 0), Line)


class Line(socketserver.StreamRequestHandler):
    """What one command says: order, kind and call id. It is answered once that is written down."""

    server: Record

    def handle(self) -> None:
        words = self.rfile.readline().decode().split()
        if len(words) == 3:  # else the command was killed before it had said it
            self.wfile.write(note(str(self.server.effects), *words).encode() + b"\n")


class Shop:
    """Orders, model and books of one job after another, all below ``folder``."""

    #: How often the agent asks its model for each order.
    requests_each = REQUESTS

    def __init__(self, folder: Path, latency: float) -> None:
        self._orders = folder / "orders"
        self._results = folder / "results"
        self._effects = folder / "effects"
        self._events = folder / "events"
        self._orders.mkdir()
        self._latency = latency
        self._customers = itertools.count()
        self._requests: list[Request] = []
        self.server = ScriptedModelServer(self._reply)
        self._record = Record(self._effects)
        self.job: str | None = None
        # Requests that come to their answer while this is set never get one: they end with their client.
        self.holding = False

    @contextlib.contextmanager
    def opened(self) -> Iterator[Shop]:
        """The shop while its model answers and its record is kept."""
        with self.server, self._record:
            keeper = threading.Thread(target=self._record.serve_forever)
            keeper.start()
            try:
                yield self
            finally:
                self._record.shutdown()
                keeper.join()

    def submit(
        self,
        cluster: StandaloneCluster,
        *options: str,
        skills: str | None = None,
        ship: bool = True,
        savepoint: str | None = None,
    ) -> str:
        """Submit the job; ``ship`` sends the agent's module along. One that goes on also keeps its events."""
        if "--watch" in options:
            options = (*options, "--events", str(self._events))
        self.job = cluster.submit(
            HERE / "job_orders.py",
            *("--orders", str(self._orders), "--results", str(self._results), "--effects", str(self._effects)),
            *("--model-url", self.server.url, "--skills", skills or str(SKILLS), *options),
            python_files=[HERE / "job_agents.py"] if ship else [],
            savepoint=savepoint,
        )
        return self.job

    def place(self, customers: int, each: int) -> list[str]:
        """New customers with some orders each; returns the ids of the orders, which tell customer and position."""
        placed = []
        for customer in (f"c{next(self._customers)}" for _ in range(customers)):
            orders = [f"{customer}-{position}" for position in range(1, each + 1)]
            hidden = self._orders / f".{customer}"
            hidden.write_text("".join(f"{customer},{order}\n" for order in orders))
            hidden.rename(self._orders / customer)
            placed += orders
        return placed

    async def _reply(self, body: dict[str, Any]) -> Reply:
        users = [message["content"] for message in body["messages"] if message["role"] == "user"]
        found = re.search(r"Handle order (\S+)\.", str(users[-1]))
        assert found is not None, users
        order = found[1]
        number = sum(message["role"] == "tool" for message in body["messages"])
        request = Request(order, number, time.time())
        self._requests.append(request)
        host, port = self._record.server_address[:2]
        command = f"bash scripts/check.sh {order} {host!s} {port}"
        replies = (
            Reply(tool_calls=(Call("load_skill", {"name": "stock-check"}),)),
            Reply(tool_calls=(Call("execute_shell_command", {"command": command}),)),
            Reply(tool_calls=(Call("reserve", {"order": order}),)),
            Reply(tool_calls=(Call("pack", {"order": order}),)),
            Reply(text="{last_tool}"),
        )
        # Here and not by the server's own latency: a client that is gone meanwhile cancels this.
        # Uneven, so that turns which began together do not go in step.
        await asyncio.sleep(self._latency * random.uniform(0.6, 1.4))
        if self.holding:
            await asyncio.Event().wait()
        request.answered = time.time()
        return replies[number]

    def requests(self, orders: Iterable[str]) -> list[Request]:
        """The model requests for these orders, oldest first."""
        wanted = set(orders)
        return [request for request in list(self._requests) if request.order in wanted]

    def effects(self, orders: Iterable[str]) -> list[Effect]:
        """What was done for these orders, oldest first."""
        wanted = set(orders)
        lines = self._effects.read_text().splitlines() if self._effects.exists() else []
        found = []
        for order, kind, call_id, at in (line.split() for line in lines):
            if order in wanted:
                found.append(Effect(order, kind, call_id, float(at)))
        return found

    def results(self, orders: Iterable[str]) -> list[Result]:
        """The committed results for these orders, in the order in which each writer of the sink wrote them."""
        wanted = set(orders)
        found = []
        for line in _committed(self._results):
            customer, order, turn, count, answer = line.split(",")
            if order in wanted:
                found.append(Result(customer, order, int(turn), int(count), answer))
        return found

    def events(self, orders: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        """The committed events of the turns of these orders, by order."""
        found: dict[str, list[dict[str, Any]]] = {order: [] for order in orders}
        for line in _committed(self._events):
            event = json.loads(line)
            # The id of an order tells its customer and its turn.
            order = f"{event['key']}-{event['turn']}"
            if order in found:
                found[order].append(event)
        return found

    def answered(self, orders: Iterable[str]) -> set[str]:
        """The orders of which all model requests were answered."""
        return {order for order, count in self._answers(orders).items() if count >= self.requests_each}

    def unfinished(self, orders: Iterable[str]) -> set[str]:
        """The orders of which some model request was answered, and not all yet."""
        return {order for order, count in self._answers(orders).items() if count < self.requests_each}

    def held(self, orders: Iterable[str]) -> list[Request]:
        """Hold answers back from now on, and return the open requests for these orders."""
        self.holding = True
        return [request for request in self.requests(orders) if request.answered is None]

    def _answers(self, orders: Iterable[str]) -> dict[str, int]:
        """How many different requests of each order were answered."""
        found: dict[str, set[int]] = {}
        for request in self.requests(orders):
            if request.answered is not None:
                found.setdefault(request.order, set()).add(request.number)
        return {order: len(numbers) for order, numbers in found.items()}

    def answered_before(self, orders: Iterable[str], moment: float) -> list[Request]:
        """The requests for these orders that were answered before ``moment``."""
        return [r for r in self.requests(orders) if r.answered is not None and r.answered < moment]

    def await_results(self, orders: Sequence[str], deadline: float = 60) -> None:
        """Wait until all these orders have a committed result."""
        wait_until(
            lambda: {result.order for result in self.results(orders)} == set(orders),
            deadline,
            f"the results of {len(orders)} orders",
        )

    def check_results(self, orders: Sequence[str]) -> None:
        """Nothing lost, nothing twice, each customer's orders one after another, and the state counted each once."""
        results = self.results(orders)
        assert sorted(result.order for result in results) == sorted(orders)
        for result in results:
            position = int(result.order.rpartition("-")[2])
            assert (result.turn, result.count) == (position, position), result
            assert result.answer == f"packed {result.order}"

    def check_events(self, orders: Sequence[str]) -> None:
        """Each step of each turn is told of once, with all that was done in it, and so is the turn."""

        def complete() -> bool:
            return all(any(event["kind"] == "turn" for event in of) for of in self.events(orders).values())

        # In the checkpoint after that of the results, at the latest.
        wait_until(complete, 30, "the events of all turns")
        for order, of in self.events(orders).items():
            assert Counter(event["kind"] for event in of) == EVENTS, (order, of)
            assert len({event["id"] for event in of}) == len(of), order
            assert [event["error"] for event in of if event["status"] != "ok"] == [], order

    def check_call_ids(self, orders: Sequence[str]) -> None:
        """Every retry of a call had the id of the first one, and no two calls share one."""
        ids: dict[tuple[str, str], set[str]] = {}
        for effect in self.effects(orders):
            ids.setdefault((effect.order, effect.kind), set()).add(effect.call_id)
        assert set(ids) == {(order, kind) for order in orders for kind in EFFECTS}
        assert [calls for calls in ids.values() if len(calls) > 1] == []
        assert len({call for calls in ids.values() for call in calls}) == len(ids)

    def repeated_requests(self, orders: Iterable[str]) -> set[tuple[str, int]]:
        """The requests that were made more than once."""
        made = Counter((request.order, request.number) for request in self.requests(orders))
        return {request for request, count in made.items() if count > 1}


def _committed(folder: Path) -> Iterator[str]:
    """The lines that a sink has committed, in the order in which each writer wrote them."""
    # What is not committed yet is hidden. A writer that had nothing to write for a while has another name afterwards.
    files = [file for file in folder.glob("*/part-*") if not file.name.startswith(".")]
    for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
        yield from file.read_text().splitlines()
