"""Threads of file tools: their limits of a key and of a worker.

Examines the internals of tools.files.file_tool on purpose.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from flink_skills.execution import Workspace
from flink_skills.tools import ToolContext
from flink_skills.tools.files import Grep, Read
from tests.kit.waiting import until

from .conftest import Files


class Held:
    """Keeps the threads of a tool until they are released, and counts them by key."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.released = threading.Event()
        self._lock = threading.Lock()

    def work(self, asked: Any, area: Any, root: int, context: ToolContext, stop: threading.Event) -> dict[str, Any]:
        with self._lock:
            self.running[context.key] += 1
            self.most[context.key] = max(self.most[context.key], self.running[context.key])
        self.released.wait(60)
        with self._lock:
            self.running[context.key] -= 1
        return {"success": True}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    found = Held()
    monkeypatch.setattr(Grep, "_work", lambda self, *arguments: found.work(*arguments))
    return found


def context_of(files: Files, key: str) -> ToolContext:
    workspace: Workspace = files.shell.workspaces.for_key(key)
    workspace.ensure()
    return ToolContext(
        key=key, call_id="c", skill_state=files.context.skill_state, workspace=workspace, shell=files.shell
    )


async def test_many_searches_of_keys_use_few_threads_and_leave_reads_alone(files: Files, held: Held) -> None:
    contexts = [context_of(files, key) for key in "abc"]
    (contexts[2].workspace.work_dir / "x").write_text("text\n")  # type: ignore[union-attr]
    greps = [asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, of)) for of in contexts for _ in range(9)]
    await until(lambda: held.running.total() == Grep.max_threads)
    # Another tool has other threads, but not of a key that has too many calls.
    assert (await files.tools.call("Read", {"path": "x"}, context_of(files, "d"))).is_error
    blocked = asyncio.ensure_future(files.tools.call("Read", {"path": "x"}, contexts[0]))
    await asyncio.wait([blocked], timeout=0.2)
    assert not blocked.done()
    held.released.set()
    assert all(not result.is_error for result in await asyncio.gather(*greps))
    assert (await blocked).is_error
    assert held.most.total() >= Grep.max_threads
    assert max(held.most.values()) <= 2
    assert held.running.total() == 0


async def test_another_key_is_next(files: Files, held: Held) -> None:
    """The calls of a key wait for each other first: a key with many calls does not hold the places of others."""
    loud, other = context_of(files, "loud"), context_of(files, "other")
    greps = [asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, loud)) for _ in range(40)]
    await until(lambda: held.running["loud"] == 2)
    quiet = asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, other))
    order: list[str] = []
    quiet.add_done_callback(lambda _: order.append("other"))
    for grep in greps:
        grep.add_done_callback(lambda _: order.append("loud"))
    held.released.set()
    await asyncio.gather(quiet, *greps)
    assert order.index("other") <= 6


async def test_the_thread_of_an_ended_turn_keeps_its_place(files: Files, held: Held) -> None:
    context = context_of(files, "a")
    calls = [asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, context)) for _ in range(3)]
    await until(lambda: held.running["a"] == 2)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    later = asyncio.ensure_future(files.tools.call("Grep", {"pattern": "x"}, context))
    await asyncio.wait([later], timeout=0.2)
    assert held.running["a"] == 2
    held.released.set()
    assert not (await later).is_error
    assert held.most["a"] == 2
    assert Read.max_threads > Grep.max_threads
