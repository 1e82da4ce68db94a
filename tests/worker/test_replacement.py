"""A worker that cannot run turns any more ends with a reason, and its turns resume in the next one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent
from flink_skills.agents import NO_CONVERSATION, DeclarativeAgent, Session, decode
from flink_skills.manager import SkillScope
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from flink_skills.worker import AbandonedCode, SessionCache, StepThreads
from tests.kit.skills import write_skill
from tests.kit.waiting import until, wait_until
from tests.sources.web import ALLOWED, Page, Web
from tests.worker.bad_agents import Unruly
from tests.worker.bridge import DEADLINE, Body, Bridge
from tests.worker.test_worker import bridge

__all__ = ["bridge"]


FEW, SOON = 4, 0.05


def test_a_worker_in_which_threads_hang_is_replaced(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.turn.timeout": "1 s", "skills.turn.max-steps": "100"})
    bridge.turn(1, "hang", key='"bad"')
    ended = bridge.end()
    assert ended["status"] == 1
    assert bridge.process.wait(DEADLINE) == 83
    log = bridge.stderr()
    assert 'a thread still runs threading.Event.wait of agent unruly, key "bad", turn' in log
    assert "of its 128 threads hang in calls that no turn waits for" in log


def test_code_that_ignores_its_cancellation_ends_its_turn(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.turn.timeout": "1 s"})
    bridge.turn(1, "swallow", key='"bad"')
    ended = bridge.end()
    assert ended["status"] == 1
    assert "skills.turn.timeout" in ended["outputs"][0][1]["error"]
    bridge.turn(2, "well", key='"bad"', number=1)
    assert bridge.end()["outputs"] == [("", "well")]


def test_a_step_that_ends_an_iterator_is_a_failed_turn(bridge: Bridge) -> None:
    bridge.open(Unruly)
    bridge.turn(1, "stop_iteration")
    ended = bridge.end()
    assert ended["status"] == 1
    assert "StopIteration" in ended["outputs"][0][1]["error"]


def test_outputs_that_are_too_large_fail_their_turn(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.turn.max-size": "2 kb"})
    bridge.turn(1, "large")
    ended = bridge.end()
    assert "the outputs of the turn have 20,971,5" in ended["outputs"][0][1]["error"]
    # An error record with its event would be too large as well.
    bridge.turn(2, ["sys_exit", "x" * 3000], number=1)
    (_, record) = bridge.end()["outputs"][0]
    assert "sys.exit" in record["error"] and record["event"] is None


@pytest.mark.parametrize("body", [b"", b"\x00"], ids=["unknown", "short"])
def test_bytes_that_are_no_frame_end_the_worker(bridge: Bridge, body: bytes) -> None:
    bridge.open(Unruly)
    bridge.send(0x7F if not body else 0x02, body)
    assert bridge.process.wait(DEADLINE) == 84
    assert "the stream from the TaskManager is broken" in bridge.stderr()


async def test_hung_threads_are_counted_until_they_return() -> None:
    threads, reasons = StepThreads(FEW, SOON), list[str]()
    threads.replace = reasons.append
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    first = loop.run_in_executor(threads, gate.wait)
    first.cancel()
    await until(lambda: (threads.look(), threads.hung == 1)[1])
    assert reasons == []
    second = loop.run_in_executor(threads, gate.wait)
    threads.look()
    assert threads.hung == 1
    threads.turn_seconds = SOON
    threads.look()
    assert threads.hung == 1, "it belongs to no turn"
    second.cancel()
    await until(lambda: (threads.look(), threads.hung == 2)[1])
    assert reasons == ["2 of its 4 threads hang in calls that no turn waits for"]
    gate.set()
    await until(lambda: threads.hung == 0)
    threads.shutdown()


async def test_a_call_that_returns_in_time_is_not_abandoned() -> None:
    threads = StepThreads(FEW, SOON)
    assert await asyncio.get_running_loop().run_in_executor(threads, lambda: 7) == 7
    assert threads.hung == 0
    threads.shutdown()


async def test_code_of_ended_turns_that_continues_is_a_reason() -> None:
    reasons = list[str]()
    abandoned = AbandonedCode(reasons.append, SOON)
    gate = asyncio.Event()
    task = asyncio.create_task(gate.wait(), name="agent a, key 1, turn 0")
    abandoned.add(task)
    assert len(abandoned) == 1
    await until(lambda: reasons)
    assert "the code of agent a, key 1, turn 0 continues 0.05 s after the end of its turn" in reasons[0]
    gate.set()
    await until(lambda: len(abandoned) == 0)


OPTIONS = {"skills.model.max-retries": 1, "skills.model.retry-backoff": "1 ms"}


def agent(first: str, spare: str) -> DeclarativeAgent:
    setups = {
        "main": {"clazz": "openai-compatible:large", "base_url": first, "fallback": ["spare"]},
        "spare": {"clazz": "openai-compatible:small", "base_url": spare},
    }
    return DeclarativeAgent.from_spec({"name": "clerk", "chat_model_setups": setups})


@pytest.mark.row("K11")
def test_a_turn_of_a_killed_worker_goes_on_with_the_model_that_answered(tmp_path: Path) -> None:
    rules = [
        Rule(Reply(tool_calls=(Call("nothing"),)), tool_results=0),
        Rule(Reply(hang=True), times=1),
        Rule(Reply("from the spare")),
    ]
    with (
        ScriptedModelServer([Rule(Reply(status=503), times=2), Rule(Reply("from the first"))]) as first,
        ScriptedModelServer(rules) as spare,
    ):
        clerk = agent(first.url, spare.url)
        killed = Bridge(tmp_path)
        try:
            killed.open(clerk, **OPTIONS)
            killed.turn(1, "x")
            journal = [_entry(killed), _entry(killed)]
            wait_until(lambda: spare.stats()["requests"] == 2)
        finally:
            killed.stop()
        assert [decode(entry)["r"].get("by") for entry in journal] == ["spare", None]
        (tmp_path / "next").mkdir()
        following = Bridge(tmp_path / "next")
        try:
            following.open(clerk, **OPTIONS)
            following.turn(1, "x", journal=journal, crashes=1)
            assert following.end()["outputs"] == [("", "from the spare")]
            # The first model is well again, and answers the next turn.
            assert (first.stats()["requests"], spare.stats()["requests"]) == (2, 3)
            following.turn(2, "y", number=2)
            assert following.end()["outputs"] == [("", "from the first")]
        finally:
            following.stop()


def _entry(worker: Bridge) -> bytes:
    """The journal entry of the next step."""
    _, body = worker.receive()
    return Body(body, 13).take()


BYTES = b"a,b\n1,2\n"


class DiesOnce(Agent):
    """Kills its worker in the first attempt, after the step of the file."""

    model = "offline:m"

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.step("begun", lambda: 1)
        if not Path(event["mark"]).exists():
            Path(event["mark"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    server.pages["/in/a.csv"] = Page(BYTES)
    yield server
    server.close()


@pytest.mark.parametrize(
    ("later", "status", "said"), [(BYTES, 0, "done"), (b"other", 1, "the file changed after the turn started")]
)
def test_a_killed_worker_goes_on_with_the_same_bytes_or_fails(
    tmp_path: Path, web: Web, later: bytes, status: int, said: str
) -> None:
    write_skill(tmp_path / "skills" / "greet")
    options: dict[str, Any] = {
        **ALLOWED,
        "skills.files.allowed": f"{web.url}/in/",
        "skills.store.dir": str(tmp_path / "store"),
        "skills.shell.backend": "hygiene",
        "skills.shell.min-isolation": "HYGIENE",
    }
    scope = SkillScope(level="job", paths=(str(tmp_path / "skills"),))
    event = {"mark": str(tmp_path / "mark"), "files": [{"uri": f"{web.url}/in/a.csv?sig=pl4nted-query"}]}

    def bridge(name: str) -> Bridge:
        (tmp_path / name).mkdir()
        made = Bridge(tmp_path / name)
        made.open(DiesOnce, scopes=[scope], **options)
        return made

    steps: list[bytes] = []
    first = bridge("first")
    try:
        first.turn(1, event)
        while True:
            _, body = first.receive()  # nothing but steps
            length = int.from_bytes(body[13:17], "big")
            steps.append(body[17 : 17 + length])
    except EOFError:
        assert [decode(step)["id"] for step in steps][:1] == ["files#1"]
    finally:
        first.stop()

    web.pages["/in/a.csv"] = Page(later)
    second = bridge("second")  # whose scratch folder is another one, as on another machine
    try:
        second.turn(1, event, journal=steps, crashes=1)
        end = second.end()
        assert (end["status"], said in json.dumps(end["outputs"])) == (status, True), end
        assert "pl4nted-query" not in second.stderr() + end["message"]
        assert web.count("GET") == 2
    finally:
        second.stop()


def session(size: int) -> Session:
    found, _ = Session().after(NO_CONVERSATION, "x" * size)
    return found


def test_the_sessions_used_last_stay() -> None:
    cache = SessionCache(sessions=2)
    for key in ("a", "b", "a", "c"):
        cache.keep((1, key), 1, session(10))
    assert [cache.find((1, key), 1) is not None for key in "abc"] == [True, False, True]


def test_bytes_are_bounded() -> None:
    cache = SessionCache(size=2500)
    for key in "abc":
        cache.keep((1, key), 1, session(1000))
    assert [cache.find((1, key), 1) is not None for key in "abc"] == [False, True, True]
    # A session that is larger than the cache is there until the next one comes.
    cache.keep((1, "d"), 1, session(5000))
    assert (len(cache), cache.find((1, "d"), 1) is not None) == (1, True)
    cache.keep((1, "d"), 2, session(10))
    cache.keep((1, "e"), 1, session(1000))
    assert (len(cache), cache.find((1, "d"), 1), cache.find((1, "d"), 2) is not None) == (2, None, True)


def test_the_limit_is_a_share_of_the_memory_of_the_worker() -> None:
    cache = SessionCache()
    large = session(6 << 20)
    for memory, kept in ((320 << 20, 3), (64 << 20, 2), (0, 8)):
        cache.limit(memory)
        for n in range(8):
            cache.keep((1, str(n)), 1, large)
        assert len(cache) == kept, memory
        cache.drop(1)


def test_the_session_of_an_erased_key_is_not_in_memory() -> None:
    cache = SessionCache(size=2500)
    for key in "ab":
        cache.keep((1, key), 1, session(1000))
    cache.forget((1, "a"))
    cache.keep((1, "c"), 1, session(1000))
    assert [cache.find((1, key), 1) is not None for key in "abc"] == [False, True, True]


def test_an_operator_that_is_gone_leaves_nothing() -> None:
    cache = SessionCache(size=2500)
    cache.keep((1, "a"), 1, session(1000))
    cache.keep((2, "a"), 1, session(1000))
    cache.drop(1)
    assert (len(cache), cache.find((2, "a"), 1) is not None) == (1, True)
