"""Jobs that are stopped with a savepoint, and go on changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Time, Types
from pyflink.datastream import DataStream
from pyflink.datastream.functions import WindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

from flink_skills import AgentsExecutionEnvironment
from tests.flink.stoppable import DEADLINE, Gated, Place, Stoppable
from tests.kit.flink_rest import wait_until

pytestmark = pytest.mark.flink

CUSTOMERS = "abcdef"
# The job has other operators behind the agent than the one whose savepoint it goes on from.
ANOTHER_JOB = {"execution.state-recovery.ignore-unclaimed-state": "true"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def start(place: Place) -> Iterator[Callable[..., Stoppable]]:
    """Starts jobs at the place; those that still run are cancelled in the end."""
    jobs: list[Stoppable] = []

    def make(*given: Any, **options: Any) -> Stoppable:
        jobs.append(Stoppable(place, *given, **options))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def check(place: Place, numbers: Sequence[int], customers: str = CUSTOMERS, more: Sequence[str] = ()) -> None:
    """Nothing lost, nothing twice, in order, with the state of all before it; besides them ``more``."""
    expected = [
        f"{customer}{number} turn {number} seen {' '.join(f'{customer}{of}' for of in range(1, number + 1))}"
        for customer in customers
        for number in numbers
    ] + list(more)
    wait_until(lambda: len(place.left()) >= len(expected), DEADLINE, f"{len(expected)} results")
    assert Counter(place.left()) == Counter(expected)


def test_other_parallelism_and_other_workers_lose_repeat_and_reorder_nothing(
    place: Place, start: Callable[..., Stoppable]
) -> None:
    place.send(*(f"{customer}{number}" for number in (1, 2, 3) for customer in CUSTOMERS))
    savepoint = None
    for number, (parallelism, workers) in enumerate(((1, 2), (3, 1)), 1):
        job = start(
            Gated(place),
            parallelism=parallelism,
            savepoint=savepoint,
            options={"skills.worker.processes": str(workers)},
        )
        place.wait_at_gate(number, *(f"{customer}1" for customer in CUSTOMERS))
        savepoint = job.stop()
    assert not place.left(), "the turns were under way all the time"
    place.gate.touch()
    start(Gated(place), parallelism=2, savepoint=savepoint, options={"skills.worker.processes": "2"})
    check(place, (1, 2, 3))
    done = place.done()
    # Steps of savepoints are not done again, and those of a key come one turn after another.
    assert Counter((step, id_) for step, id_, _ in done) == {
        (step, f"{customer}{number}"): 1
        for step in ("first", "second")
        for customer in CUSTOMERS
        for number in (1, 2, 3)
    }
    for customer in CUSTOMERS:
        assert [int(id_[1:]) for _, id_, _ in done if id_[0] == customer] == [1, 1, 2, 2, 3, 3]


def test_another_maximum_parallelism_is_refused_and_the_savepoint_stays_good(
    place: Place, start: Callable[..., Stoppable]
) -> None:
    place.send("a1")
    first = start(Gated(place), options={"pipeline.max-parallelism": "16"})
    place.wait_at_gate(1, "a1")
    savepoint = first.stop()
    place.gate.touch()
    with pytest.raises(Exception, match="max parallelism"):
        start(Gated(place), savepoint=savepoint, options={"pipeline.max-parallelism": "32"})
    start(Gated(place), savepoint=savepoint, options={"pipeline.max-parallelism": "16"})
    check(place, (1,), "a")
    assert [(step, id_) for step, id_, _ in place.done()] == [("first", "a1"), ("second", "a1")]


def counts(agent: Gated) -> Callable[[AgentsExecutionEnvironment, Any], DataStream]:
    """The agent's results, and behind it how many there were of each customer: a window that ends with all time."""

    def build(agents: AgentsExecutionEnvironment, keyed: Any) -> DataStream:
        results = keyed.apply(agent).to_datastream(Types.STRING())
        windows = results.key_by(lambda text: text[0], Types.STRING()).window(
            TumblingEventTimeWindows.of(Time.days(10_000))
        )
        return results.union(windows.apply(Count(), Types.STRING()))

    return build


class Count(WindowFunction):  # type: ignore[misc]
    def apply(self, key: str, window: Any, inputs: Iterable[str]) -> list[str]:
        return [f"{key}: {len(list(inputs))}"]


def test_drain_ends_all_turns_and_all_time_and_the_savepoint_has_the_sessions(
    place: Place, start: Callable[..., Stoppable]
) -> None:
    place.send(*(f"{customer}{number}" for number in (1, 2) for customer in "ab"))
    job = start(counts(Gated(place)))
    place.wait_at_gate(1, "a1", "b1")
    stopping = job.stopping(drain=True)
    assert not stopping.done()
    place.gate.touch()
    savepoint = str(stopping.result())
    # Everything had left when the savepoint was done, the windows of all time as well.
    check(place, (1, 2), "ab", more=("a: 2", "b: 2"))
    assert Counter((step, id_) for step, id_, _ in place.done()) == {
        (step, f"{customer}{number}"): 1 for step in ("first", "second") for customer in "ab" for number in (1, 2)
    }

    # It can be gone on with: nothing waits in it, and what the keys knew is there.
    job = start(Gated(place), savepoint=savepoint, options=ANOTHER_JOB)
    place.send("a3", "c1")
    check(place, (1, 2), "ab", more=("a: 2", "b: 2", "a3 turn 3 seen a1 a2 a3", "c1 turn 1 seen c1"))


def test_drain_takes_no_longer_than_the_time_out_of_the_turns(place: Place, start: Callable[..., Stoppable]) -> None:
    place.send("a1", "a2", "b1")
    job = start(Gated(place), options={"skills.turn.timeout": "1 s"})
    place.wait_at_gate(1, "a1", "b1")
    # Nobody opens the gate: each turn of a key ends with its own time-out, one after another, and so does the drain.
    assert job.stop(drain=True)
    place.wait_at_gate(1, "a2")
    assert not place.left()
    assert {step for step, *_ in place.done()} == {"first"}


def test_a_stopped_turn_goes_on_with_more_steps_and_starts_anew_with_others(
    place: Place, start: Callable[..., Stoppable]
) -> None:
    place.send("a1", "a2", "b1")
    job = start(Gated(place))
    place.wait_at_gate(1, "a1", "b1")
    savepoint = job.stop()
    before = place.done()

    # At the end: the step of the savepoint is not done again.
    place.gate.touch()
    added = start(Gated(place, ("first", "second", "third")), savepoint=savepoint)
    check(place, (1,), "b", more=("a1 turn 1 seen a1", "a2 turn 2 seen a1 a2"))
    added.close()
    assert Counter((step, id_) for step, id_, _ in place.done()) == {
        (step, id_): 1 for step in ("first", "second", "third") for id_ in ("a1", "a2", "b1")
    }

    # Other steps: done from the first one on.
    place.log.unlink()
    start(Gated(place, ("before", "first", "second")), savepoint=savepoint)
    wait_until(lambda: len(place.done()) == 9, DEADLINE, "three turns of three steps")
    after = place.done()
    assert Counter((step, id_) for step, id_, _ in after) == {
        (step, id_): 1 for step in ("before", "first", "second") for id_ in ("a1", "a2", "b1")
    }
    # The call that was made before the savepoint has its id of then.
    assert {of for of in before if of[0] == "first"} <= set(after)


def two(place: Place, *names: str) -> Callable[[AgentsExecutionEnvironment, Any], DataStream]:
    """Agents of these names side by side."""

    def build(agents: AgentsExecutionEnvironment, keyed: Any) -> DataStream:
        outputs = [keyed.apply(Gated(place, name=name)).to_datastream(Types.STRING()) for name in names]
        return reduce(DataStream.union, outputs)

    return build


def test_an_agent_that_is_gone_or_has_another_name_is_missed_and_may_be_left_out(
    place: Place, start: Callable[..., Stoppable]
) -> None:
    place.gate.touch()
    place.send("a1")
    job = start(two(place, "stays", "goes"))
    check(place, (1, 1), "a")
    savepoint = job.stop()
    place.send("a2")
    refused = "Cannot map checkpoint/savepoint state for operator .* the operator is not available in the new program"
    with pytest.raises(Exception, match=refused):
        start(two(place, "stays", "other"), savepoint=savepoint).client.get_job_execution_result().result()
    start(two(place, "stays", "other"), savepoint=savepoint, options=ANOTHER_JOB)
    # The one goes on, the other one begins.
    check(place, (1, 1), "a", more=("a2 turn 2 seen a1 a2", "a2 turn 1 seen a2"))
