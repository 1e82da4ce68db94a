"""The circuit of a model: when it opens, when one request tries the model again, and what closes it."""

from __future__ import annotations

import logging

import pytest

from flink_skills import ModelError
from flink_skills.models import Admission, Circuit


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


FAILURES, WINDOW, PAUSE = 5, 60.0, 30.0
DOWN = ModelError("down", retryable=True)


def failing(clock: Clock, failures: int) -> Circuit:
    """A circuit after this number of failures."""
    circuit = Circuit("openai:any", clock)
    for _ in range(failures):
        circuit.failed(DOWN)
    return circuit


def test_consecutive_failures_open_it_and_one_request_tries_the_model_again(clock: Clock) -> None:
    of = failing(clock, FAILURES - 1)
    of.succeeded()
    for _ in range(FAILURES - 1):
        of.failed(DOWN)
    assert of.admit() is Admission.CLOSED
    of.failed(DOWN)
    assert of.is_open and of.admit() is Admission.OPEN
    clock.now += PAUSE
    assert [of.admit(), of.admit()] == [Admission.PROBE, Admission.OPEN]
    # A probe that fails starts another pause.
    of.failed(DOWN)
    assert of.admit() is Admission.OPEN
    clock.now += PAUSE
    assert of.admit() is Admission.PROBE
    of.succeeded()
    assert [of.admit(), of.admit()] == [Admission.CLOSED, Admission.CLOSED]


def test_a_probe_without_an_outcome_is_followed_by_another_one(clock: Clock) -> None:
    of = failing(clock, FAILURES)
    clock.now += PAUSE
    assert of.admit() is Admission.PROBE
    of.release()
    assert of.admit() is Admission.PROBE


def test_failures_that_are_far_apart_or_about_the_request_do_not_open_it(clock: Clock) -> None:
    of = failing(clock, FAILURES - 1)
    clock.now += WINDOW + 1
    of.failed(DOWN)
    of.failed(ModelError("too long", rejects_request=True))
    assert of.admit() is Admission.CLOSED


def test_opening_and_closing_are_logged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    of = failing(clock, FAILURES - 1)
    with caplog.at_level(logging.INFO, "flink_skills.model"):
        of.failed(DOWN)
        of.succeeded()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "openai:any failed 5 times in a row" in caplog.text and "down" in caplog.text
