"""Stops and ends of jobs whose turns wait."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyflink.common import Types
from pyflink.datastream import DataStream

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, WaitTimeout
from tests.flink.stoppable import DEADLINE, Gated, Place, Stoppable
from tests.kit.flink_rest import wait_until

pytestmark = pytest.mark.flink

DRAIN = "skills.waits.on-drain"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def start(place: Place) -> Iterator[Callable[..., Stoppable]]:
    jobs: list[Stoppable] = []

    def begin(build: Any, **more: Any) -> Stoppable:
        jobs.append(Stoppable(place, build, **more))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


class Asker(Gated):
    """Asks a person after a step, and sleeps after another one."""

    def __init__(self, place: Place, sleep: float = 0) -> None:
        super().__init__(place)
        self.sleep = sleep

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        await ctx.step("first", self.note, "first", event["id"], ctx)
        try:
            answer = await ctx.wait("vote")
        except asyncio.CancelledError:
            self.note("waits", event["id"], ctx)
            raise
        except WaitTimeout as error:
            answer = str(error)
        if self.sleep:
            await ctx.step("second", self.note, "second", event["id"], ctx)
            await ctx.sleep(self.sleep)
        return f"{event['id']} {answer}"


def answered(agent: Agent, folder: Path) -> Callable[[AgentsExecutionEnvironment, Any], DataStream]:
    """Return the job of an agent with answers in the files of ``folder``."""
    folder.mkdir(exist_ok=True)

    def build(agents: AgentsExecutionEnvironment, keyed: Any) -> DataStream:
        t_env = agents.table_environment()
        t_env.execute_sql(
            "CREATE TABLE answers (customer STRING, wait_id STRING, answer STRING) WITH ('connector' = 'filesystem', "
            f"'path' = '{folder}', 'source.monitor-interval' = '50 ms', 'format' = 'json')"
        )
        output = keyed.apply(agent).answers(t_env.from_path("answers"), "customer")
        return output.to_datastream(Types.STRING())

    return build


def give(folder: Path, *customers: str, name: str = "") -> None:
    hidden = folder / ".new"
    lines = [{"customer": customer, "wait_id": "vote", "answer": "yes"} for customer in customers]
    hidden.write_text("".join(json.dumps(line) + "\n" for line in lines))
    hidden.rename(folder / (name or "-".join(customers)))


def all_left(place: Place, *lines: str) -> None:
    wait_until(lambda: sorted(place.left()) == sorted(lines), DEADLINE, f"{lines} in place of {place.left()}")


@pytest.mark.both_versions
def test_a_drain_is_refused_with_the_number_of_waiting_turns_and_the_job_continues(
    place: Place, start: Callable[..., Stoppable], tmp_path: Path
) -> None:
    place.send("a1", "b1", "c1")
    job = start(answered(Asker(place), tmp_path / "answers"))
    place.wait_for("waits", "a1", "b1", "c1")
    stopping = job.stopping(drain=True)
    with pytest.raises(Py4JJavaError) as refused:
        stopping.result()
    job.resumed()
    assert re.search(r"refused: 3 turns of .*gated", _causes(refused.value.java_exception))

    def left() -> bool:
        # An answer with a name needs a wait that is open: turns that the checkpoint does not have ask again.
        waiting = [customer for customer in "abc" if f"{customer}1 yes" not in place.left()]
        give(tmp_path / "answers", *waiting, name=str(next(numbers)))
        return not waiting

    numbers = itertools.count()
    wait_until(left, DEADLINE, "the answers to be used")
    all_left(place, "a1 yes", "b1 yes", "c1 yes")


def test_a_drain_times_out_the_waits_by_option(place: Place, start: Callable[..., Stoppable]) -> None:
    place.send("a1", "b1")
    job = start(Asker(place, sleep=3600), options={DRAIN: "time-out"})
    place.wait_for("first", "a1", "b1")
    job.stop(drain=True)
    text = "wait 'vote' received no answer before the inputs of the job ended"
    all_left(place, f"a1 {text}", f"b1 {text}")


@pytest.mark.row("K13")
def test_a_stop_without_drain_keeps_the_turns_which_get_their_answers_in_another_job(
    place: Place, start: Callable[..., Stoppable], tmp_path: Path
) -> None:
    place.send("a1", "a2", "b1")
    job = start(Asker(place))
    place.wait_for("waits", "a1", "b1")
    savepoint = job.stop()
    job = start(answered(Asker(place), tmp_path / "answers"), savepoint=savepoint, parallelism=2)
    give(tmp_path / "answers", "a", "b")
    all_left(place, "a1 yes", "b1 yes")
    place.wait_for("waits", "a2")
    assert sorted(id_ for step, id_, _ in place.done() if step == "first") == ["a1", "a2", "b1"]
    savepoint = job.stop()
    start(answered(Asker(place), tmp_path / "answers"), savepoint=savepoint)
    (tmp_path / "answers" / "a-b").unlink()
    give(tmp_path / "answers", "a")
    all_left(place, "a1 yes", "a2 yes", "b1 yes")


def test_at_the_end_of_the_input_waits_time_out_and_sleeps_end_by_themselves(
    place: Place, start: Callable[..., Stoppable]
) -> None:
    place.send("a1", "b1")
    start(Asker(place, sleep=0.2), bounded=True).wait()
    text = "wait 'vote' received no answer before the inputs of the job ended"
    all_left(place, f"a1 {text}", f"b1 {text}")


def _causes(error: Any) -> str:
    found = []
    while error is not None:
        found.append(str(error.getMessage()))
        error = error.getCause()
    return "\n".join(found)
