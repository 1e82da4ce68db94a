"""Signals that end a command while its event loop runs."""

from __future__ import annotations

import asyncio
import signal

import pytest

from flink_skills.cli.signal_guard import exit_on_signals, run_until_signal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_cancels_the_work_and_raises_in_no_callback(number: signal.Signals) -> None:
    cleaned_up: list[type[BaseException]] = []

    async def part() -> None:
        # The handler runs inside this task. A signal can arrive in any callback of the loop.
        signal.raise_signal(number)
        await asyncio.Event().wait()

    async def work() -> None:
        task = asyncio.create_task(part())
        try:
            await task
        except BaseException as error:
            cleaned_up.append(type(error))
            raise

    with exit_on_signals(), pytest.raises(SystemExit) as exited:
        run_until_signal(work())
    assert exited.value.code == 128 + number
    assert cleaned_up == [asyncio.CancelledError]


def test_without_a_signal_the_result_is_returned() -> None:
    async def work() -> int:
        return 3

    assert run_until_signal(work()) == 3


def test_a_cancellation_by_the_work_is_no_exit() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_until_signal(work())
