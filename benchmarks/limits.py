"""Measures the processor time of a permit for requests to a model in four processes, each with its share of the limit.

A permit is taken and returned around a pause. The time of the same pauses without limits, or behind a semaphore of
asyncio where requests wait, is subtracted.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from benchmarks import report
from flink_skills.models.messages import ModelRequest, Usage, UserMessage
from flink_skills.models.permits import Permits

LIMITS = (10, 2_000, 20_000)
PROCESSES = 4
FREE, NEAR, NO_LIMIT, RATES, WAITING = (
    "free",
    "95 % in use",
    "no limit",
    "of requests and tokens in a minute",
    "thousands wait",
)
_PAUSE = 0.02
_MANY = 1_000_000_000
Enter = Callable[[], "AbstractAsyncContextManager[Any]"]


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Measure ``repeat`` times, and write and print the medians."""
    machine = report.machine()
    requests = 100 if quick else 10_000
    cases: dict[str, dict[str, Any]] = {
        **{
            f"max-concurrent {limit:,}, {kind}": {"kind": kind, "limit": limit}
            for limit in LIMITS
            for kind in (FREE, NEAR)
        },
        **{f"max-concurrent {limit:,}, {WAITING}": {"kind": WAITING, "limit": limit} for limit in LIMITS},
        **{kind: {"kind": kind, "limit": 0} for kind in (NO_LIMIT, RATES)},
    }
    chosen = {name: case for name, case in cases.items() if only in name}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for number in range(repeat):
        for name, case in chosen.items():
            print(f"round {number + 1}: {name}", file=sys.stderr)
            runs[name].append(_together({**case, "requests": requests}))
    results = {name: report.medians(of) for name, of in runs.items()}
    rows = [f"| {name} | {of['us']:.1f} | {of['most_us']:.1f} |" for name, of in results.items()]
    table = "\n".join(["| limit | µs per request | slowest process |", "|---|---|---|", *rows])
    print(table)
    if not only and not quick:
        setting = {"repeat": repeat, "requests": requests, "processes": PROCESSES, "pause_seconds": _PAUSE}
        report.write("limits", {"machine": machine, "setting": setting, "medians": results, "runs": runs}, table)


def _together(case: dict[str, Any]) -> dict[str, Any]:
    """Run the case in four processes at the same time."""
    words = [sys.executable, "-m", "benchmarks.limits", json.dumps(case)]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    printed = [process.communicate(timeout=600)[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{case} failed")
    times = [float(text) for text in printed]
    return {"us": statistics.mean(times), "most_us": max(times)}


async def run(case: dict[str, Any]) -> float:
    """µs of processor time that a request costs more than without limits."""
    kind, count, limit = case["kind"], case["requests"], case["limit"]
    rates = {"per_minute": _MANY, "tokens_per_minute": _MANY * 1_000} if kind == RATES else {}
    share = max(1, limit // PROCESSES)
    permits = Permits("m", concurrent=share if limit else 0, **rates)
    request = ModelRequest(system="", messages=[UserMessage("word " * 50)] * 10) if not limit else None
    enter: Enter = lambda: permits.one(request)  # noqa: E731
    if kind == WAITING:
        semaphore = asyncio.Semaphore(share)
        count = max(min(count, 2_000), 3 * share)
        plain = await _timed(lambda: _waiting(count, lambda: semaphore))
        return (await _timed(lambda: _waiting(count, enter)) - plain) / count * 1e6
    in_use = [enter() for _ in range(int(share * 0.95) if kind == NEAR else 0)]
    for one in in_use:
        await one.__aenter__()
    plain = await _timed(lambda: _one_by_one(count, nullcontext))
    took = await _timed(lambda: _one_by_one(count, enter))
    return (took - plain) / count * 1e6


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.process_time()
    await work()
    return time.process_time() - began


async def _one_by_one(count: int, enter: Enter) -> None:
    for _ in range(count):
        async with enter() as permit:
            if permit is not None:
                permit.used(Usage(600, 100, 1))


async def _waiting(count: int, enter: Enter) -> None:
    async def one() -> None:
        async with enter():
            await asyncio.sleep(_PAUSE)

    await asyncio.gather(*(one() for _ in range(count)))


if __name__ == "__main__":
    print(asyncio.run(run(json.loads(sys.argv[1]))))
