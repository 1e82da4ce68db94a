"""Checkpoints of a job that gets events faster than its agent can take them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Row, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment
from tests.flink.running import collect, environments, flink_environment
from tests.flink.stoppable import DEADLINE, Gated, Place, Stoppable
from tests.kit.flink_rest import wait_until
from tests.kit.waiting import until

pytestmark = pytest.mark.flink

CUSTOMERS = "abcdefgh"


def test_an_unaligned_checkpoint_waits_for_no_turn(tmp_path: Path) -> None:
    place = Place(tmp_path)
    events = [f"{customer}{number}" for number in range(1, 4) for customer in CUSTOMERS]
    # One turn at a time, and the first one does not end: all other events are in front of the barriers.
    options = {
        "skills.worker.max-in-flight": "1",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    job = Stoppable(place, Gated(place), options=options)
    try:
        place.send(*events)
        place.wait_for("first", "a1")
        last = max(completed(tmp_path), default=0)
        wait_until(lambda: max(completed(tmp_path), default=0) > last + 2, DEADLINE, "checkpoints while the turn waits")
        assert [(step, id_) for step, id_, _ in place.done()] == [("first", "a1")]
    finally:
        job.close()
    latest = tmp_path / "checkpoints" / str(job.client.get_job_id()) / f"chk-{max(completed(tmp_path))}"
    place.gate.touch()
    job = Stoppable(place, Gated(place), options=options, savepoint=latest.as_uri())
    try:
        wait_until(lambda: len(place.left()) >= len(events), DEADLINE, "all results")
        assert sorted(line.split()[0] for line in place.left()) == sorted(events)
        assert all(line.split()[2] == line.split()[0][1:] for line in place.left()), "in order"
        assert sorted(id_ for step, id_, _ in place.done() if step == "first") == sorted(events), "nothing done again"
    finally:
        job.close()


def completed(folder: Path) -> list[int]:
    """The numbers of the checkpoints that are whole."""
    return [int(file.parent.name.removeprefix("chk-")) for file in folder.glob("checkpoints/*/chk-*/_metadata")]


def test_checkpoints_complete_while_the_last_turns_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.send("a1", "b1", "a2")
    options = {"execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri()}
    job = Stoppable(place, Gated(place), options=options, bounded=True)
    try:
        # The turn of a2 waits for that of a1: all events are in the operator.
        place.wait_at_gate(1, "a1", "b1")
        last = max(completed(tmp_path), default=0)
        wait_until(
            lambda: max(completed(tmp_path), default=0) > last + 5, DEADLINE, "checkpoints after the end of the input"
        )
        place.gate.touch()
        job.wait()
    finally:
        job.close()
    assert sorted(place.left()) == ["a1 turn 1 seen a1", "a2 turn 2 seen a1 a2", "b1 turn 1 seen b1"]
    assert len(place.done()) == 6, "nothing was done again"


MIB = 1 << 20
SIZES = (10, 20 * MIB, 11)


class Measures(Agent):
    """Says how long a text is, and keeps the text."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        sizes = [*ctx.state.get("sizes", []), len(event["text"])]
        ctx.state["sizes"] = sizes
        return {"agent": self.name, "key": ctx.key, "sizes": sizes}


def row(number: int) -> Row:
    return Row("same", "x" * SIZES[number])


def test_an_event_of_20_mb_passes_on_a_stream_and_as_a_row_of_a_table() -> None:
    env, agents = environments({"skills.shell.enabled": "false"})
    tables = agents.table_environment()
    given = env.from_collection(list(range(len(SIZES))), Types.INT()).map(
        row, output_type=Types.ROW_NAMED(["name", "text"], [Types.STRING(), Types.STRING()])
    )
    inputs = {
        "java": agents.from_datastream(given, "name"),
        "python": agents.from_datastream(given, lambda event: event[0]),
        "table": agents.from_table(tables.from_data_stream(given), "name"),
    }
    outputs = [of.apply(Measures(name)) for name, of in inputs.items()]
    records = collect(*(output.to_datastream(tag=tag) for output in outputs for tag in ("", "errors")))
    for name in inputs:
        told = [record["sizes"] for record in records if record.get("agent") == name]
        assert told == [list(SIZES[: count + 1]) for count in range(len(SIZES))], name
    assert len(records) == len(inputs) * len(SIZES)


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
