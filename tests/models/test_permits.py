"""Limits of requests that several processes keep together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flink_skills.errors import ModelError
from flink_skills.models import Permits
from flink_skills.telemetry import Observer, Telemetry, TurnScope, observe
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.kit.descriptors import descriptors
from tests.kit.waiting import MARGIN, until

# Each process asks the server as often as it is told, all at once, under the limits.
ASK = """
import asyncio, json, sys, time, urllib.request
from pathlib import Path
from flink_skills.models import Permits

folder, url, times, concurrent, per_minute = Path(sys.argv[1]), *sys.argv[2:]

def ask():
    body = json.dumps({"messages": [{"role": "user", "content": "?"}]}).encode()
    urllib.request.urlopen(urllib.request.Request(url + "/chat/completions", body)).read()

async def one(permits, begun):
    async with permits.one():
        begun.append(time.monotonic())
        if url:
            await asyncio.to_thread(ask)

async def main():
    permits, begun = Permits("m", folder, concurrent=int(concurrent), per_minute=int(per_minute)), []
    await asyncio.gather(*(one(permits, begun) for _ in range(int(times))))
    print(json.dumps(begun))

asyncio.run(main())
"""


def processes(count: int, *words: object, script: str = ASK) -> list[list[float]]:
    started = [
        subprocess.Popen([sys.executable, "-c", script, *map(str, words)], stdout=subprocess.PIPE) for _ in range(count)
    ]
    found = [json.loads(process.communicate(timeout=60)[0]) for process in started]
    assert [process.returncode for process in started] == [0] * count
    return found


def test_requests_of_several_processes_together_stay_below_the_limit(tmp_path: Path) -> None:
    with ScriptedModelServer([Rule(Reply("ok", latency=0.1))]) as server:
        processes(3, tmp_path, server.url, 8, 3, 0)
        stats = server.stats()
    assert (stats["requests"], stats["max_in_flight"]) == (24, 3)


def test_requests_of_several_processes_together_are_spread_over_a_minute(tmp_path: Path) -> None:
    # 600 in a minute: one in a tenth of a second.
    begun = sorted(moment for of_one in processes(3, tmp_path, "", 5, 0, 600) for moment in of_one)
    assert len(begun) == 15
    assert begun[-1] - begun[0] >= 14 * 0.1 - 0.02
    # Not in bursts: any second has at most its ten and one, and what a late wake-up moved.
    assert max(sum(first <= moment < first + 1 for moment in begun) for first in begun) <= 12


TOKENS = """
import asyncio, json, sys, time
from pathlib import Path
from flink_skills.models import ModelRequest, Usage, UserMessage
from flink_skills.models import Permits

async def main():
    permits, begun = Permits("m", Path(sys.argv[1]), tokens_per_minute=600_000), []
    request = ModelRequest(system="", messages=[UserMessage("word" * 900)], settings={"max_tokens": 100})
    async def one():
        asked = time.monotonic()
        async with permits.one(request) as permit:
            # A request that did not wait began when it asked: a busy machine shows it later.
            begun.append(time.monotonic() if permit.waited else asked)
            permit.used(Usage(900, 100, 1))
    await asyncio.gather(*(one() for _ in range(5)))
    print(json.dumps(begun))

asyncio.run(main())
"""


def test_tokens_of_several_processes_together_are_spread_over_a_minute(tmp_path: Path) -> None:
    # 600 requests of 1,000 tokens in a minute: one in a tenth of a second.
    begun = sorted(moment for of_one in processes(3, tmp_path, script=TOKENS) for moment in of_one)
    assert len(begun) == 15
    assert begun[-1] - begun[0] >= 14 * 0.1 - 0.02


async def test_a_quota_that_is_used_up_delays_requests_and_they_say_so(
    tmp_path: Path,
) -> None:
    permits = Permits("m", tmp_path)
    async with permits.one() as permit:
        permits.on_quota({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "300ms"}, 200)
    assert permit.waited == 0
    scope = TurnScope("agent", "key", 1, "turn")
    with Telemetry([Observer()]).turn(scope), observe("chat", "m") as chat:
        async with permits.one() as permit:
            pass
    assert permit.waited > 0.2
    assert chat.attributes["limit_wait"] == permit.waited
    permits.close()


def test_a_process_that_is_killed_gives_its_place_back(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import asyncio, sys\nfrom pathlib import Path\nfrom flink_skills.models import Permits\n"
            "async def main():\n    async with Permits('m', Path(sys.argv[1]), concurrent=1).one():\n"
            "        print('held', flush=True)\n        await asyncio.sleep(3600)\nasyncio.run(main())",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"

    async def take(seconds: float) -> None:
        async def one() -> None:
            async with Permits("m", tmp_path, concurrent=1).one():
                pass

        await asyncio.wait_for(one(), seconds)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(take(0.3))
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    asyncio.run(take(10))


async def test_who_gives_up_waiting_holds_nothing(tmp_path: Path) -> None:
    permits = Permits("m", tmp_path, concurrent=1)
    async with permits.one():
        before = descriptors()
    async with permits.one():
        begun = 0

        async def take() -> None:
            nonlocal begun
            begun += 1
            async with permits.one():
                raise AssertionError("there was no place")

        waiting = [asyncio.create_task(take()) for _ in range(3)]
        # The first of them looks for a place, the others wait for it to be served.
        await until(lambda: begun == 3)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    began = time.monotonic()
    async with permits.one():
        assert time.monotonic() - began < MARGIN
    assert descriptors() == before
    permits.close()
    # Python's map has another descriptor.
    assert descriptors() == before - 2


async def test_each_place_is_taken_once_also_when_others_hold_those_around_it(tmp_path: Path) -> None:
    limit = 40
    agents = [Permits("m", tmp_path, concurrent=limit) for _ in range(3)]
    rng, held = random.Random(7), list[contextlib.AsyncExitStack]()

    async def take(permits: Permits) -> None:
        stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(permits.one())
        held.append(stack)

    for _ in range(30):
        while len(held) < limit:
            await asyncio.wait_for(take(rng.choice(agents)), MARGIN)
        waiting = asyncio.create_task(take(rng.choice(agents)))
        done, _ = await asyncio.wait([waiting], timeout=0.005)
        assert not done, "more requests than the limit"
        rng.shuffle(held)
        for _ in range(rng.randrange(1, limit)):
            await held.pop().aclose()
        await asyncio.wait_for(waiting, MARGIN)
    for stack in held:
        await stack.aclose()
    for permits in agents:
        permits.close()


async def test_permits_that_are_closed_leave_their_places_to_others(tmp_path: Path) -> None:
    gone, other = (Permits("m", tmp_path, concurrent=1) for _ in range(2))
    async with gone.one():
        gone.close()
        async with other.one():
            pass


async def test_requests_of_a_process_are_served_in_their_order(tmp_path: Path) -> None:
    permits, order = Permits("m", tmp_path, concurrent=1), list[int]()

    async def take(number: int) -> None:
        async with permits.one():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(take(number) for number in range(20)))
    assert order == list(range(20))


async def test_limits_that_cannot_be_kept_are_an_error_to_try_again(tmp_path: Path) -> None:
    permits = Permits("m", tmp_path / "gone", concurrent=1)
    (tmp_path / "gone").rmdir()
    with pytest.raises(ModelError, match="No such file") as caught:
        async with permits.one():
            pass
    assert caught.value.retryable
