"""The size of a job for a load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from docs import gen_sizing
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.job import Costs, Load, size_of

LOAD = Load(events=100, answer=2)
COSTS = Costs()


def test_turns_in_flight_are_rate_times_duration() -> None:
    size = size_of(replace(LOAD, requests=3, tool_seconds=1))
    assert (size.turn_seconds, size.in_flight) == (7, 700)
    assert size.slots * size.max_in_flight >= 1.5 * size.in_flight


@pytest.mark.parametrize(
    ("more", "cost"),
    [
        ({"requests": 2}, COSTS.request_ms),
        ({"tools": 1}, COSTS.tool_ms),
        ({"commands": 1}, COSTS.command_ms),
        ({"history": 100}, COSTS.history_ms),
    ],
)
def test_each_part_of_a_turn_costs(more: dict[str, float], cost: float) -> None:
    assert size_of(replace(LOAD, **more)).cpu_ms_per_turn == pytest.approx(size_of(LOAD).cpu_ms_per_turn + cost)


def test_more_cores_than_a_task_manager_has() -> None:
    size = size_of(replace(LOAD, events=1000, commands=1, cores=4))
    assert size.cores > 4
    assert size.task_managers * 4 >= size.slots >= size.cores
    assert size.slots % size.task_managers == 0


def test_conversations_need_memory_and_state() -> None:
    one, long = size_of(LOAD), size_of(replace(LOAD, history=200, keys=1_000))
    assert long.worker_mb > one.worker_mb
    assert (one.state_mb, long.state_mb > 100) == (0, True)


def test_what_no_size_solves() -> None:
    [problem] = size_of(replace(LOAD, keys=10)).problems
    assert "10 keys allow 5 turns a second" in problem
    [problem] = size_of(LOAD, options={"slots": 2, "max_in_flight": 50}).problems
    assert "100 turns" in problem and "200 on average" in problem
    assert size_of(LOAD, options={"slots": 2, "max_in_flight": 1000}).problems == ()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("events=50", ConfigError, "no answer"),
        ("", ConfigError, "no events"),
        ("events=50,answer=two", ConfigError, "answer is 'two'"),
        ("events=-1,answer=2", ConfigError, "events is '-1'"),
        ("events=inf,answer=2", ConfigError, "events is 'inf'"),
        ("event=50,answer=2", UnknownNameError, "'events'"),
    ],
)
def test_wrong_loads(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Load.parse(text)


def test_a_load_is_read() -> None:
    assert Load.parse(" events=50, answer = 2.5,keys=7,") == Load(events=50, answer=2.5, keys=7)


def test_the_page_is_current() -> None:
    assert gen_sizing.main(["--check"]) == 0


def test_the_costs_are_those_of_the_results() -> None:
    """New results need new costs."""
    assert {name: getattr(COSTS, name) for name in gen_sizing.costs()} == gen_sizing.costs()
