"""Event time: outputs carry their input's timestamp, and a watermark waits for the turns before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment
from tests.flink.running import collect, flink_environment
from tests.kit.waiting import until

pytestmark = pytest.mark.flink

SLOW, FAST = ("slow", 1_000), ("fast", 5_000)


class Field(TimestampAssigner):  # type: ignore[misc]
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Pace(Agent):
    """The turn of the key ``slow`` ends after the output of ``fast`` was observed."""

    name = "pace"

    def __init__(self, observed: Path) -> None:
        self.observed = observed

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        if event["name"] == "slow":
            await until(self.observed.exists, "the output of the fast turn", within=60)
        return {"name": event["name"], "timestamp": ctx.timestamp}


class Observe(KeyedProcessFunction):  # type: ignore[misc]
    """Emits the time of each output, and of the timer at its timestamp. Creates the file ``observed`` for the first."""

    def __init__(self, observed: Path) -> None:
        self.observed = observed

    def process_element(self, value: dict[str, Any], ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        service = ctx.timer_service()
        service.register_event_time_timer(ctx.timestamp())
        self.observed.touch()
        yield {**value, "seen": "output", "at": ctx.timestamp(), "watermark": service.current_watermark()}

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield {"seen": "timer", "at": timestamp}


def test_timestamps_are_kept_and_watermarks_held_back(tmp_path: Path) -> None:
    observed = tmp_path / "observed"
    env = flink_environment()
    env.get_config().set_auto_watermark_interval(1)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Field())
    rows = env.from_collection([SLOW, FAST], Types.ROW_NAMED(["name", "time"], [Types.STRING(), Types.LONG()]))
    timed = rows.assign_timestamps_and_watermarks(strategy)
    output = agents_env.from_datastream(timed, "name").apply(Pace(observed)).to_datastream()
    seen = collect(output.key_by(lambda value: 0).process(Observe(observed)))

    outputs = [record for record in seen if record["seen"] == "output"]
    assert [(r["name"], r["timestamp"], r["at"]) for r in outputs] == [
        ("fast", 5_000, 5_000),
        ("slow", 1_000, 1_000),
    ]
    # The slow turn was in flight when the output of the fast one was emitted: the watermark waits for it.
    assert all(record["watermark"] < 1_000 for record in outputs)
    assert [(r["seen"], r["at"]) for r in seen[2:]] == [("timer", 1_000), ("timer", 5_000)]
