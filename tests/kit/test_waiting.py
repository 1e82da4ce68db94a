from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kit.waiting import until, wait_until


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, "", "here", "later"])
    assert wait_until(lambda: next(values)) == "here"


async def test_a_condition_may_be_asynchronous() -> None:
    values = iter([0, 7])

    async def condition() -> int:
        await asyncio.sleep(0)
        return next(values)

    assert await until(condition) == 7
    assert await until(lambda: "now") == "now"


def test_the_failure_says_what_was_awaited(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"waited 0 s in vain for the file$"):
        wait_until(lambda: False, "the file", within=0)
    with pytest.raises(AssertionError, match=r"in vain for 2 looks$"):
        wait_until(lambda: False, lambda: f"{1 + 1} looks", within=0)
    with pytest.raises(AssertionError, match=r"in vain for wait_until\(lambda: tmp_path.name == .x., within=0\)$"):
        wait_until(lambda: tmp_path.name == "x", within=0)
    with pytest.raises(AssertionError, match=r"in vain for .*exists.*no-such-file"):
        wait_until((tmp_path / "no-such-file").exists, within=0)


async def test_the_asynchronous_form_fails_alike() -> None:
    with pytest.raises(AssertionError, match=r"waited 0.02 s in vain for the end$"):
        await until(lambda: None, "the end", within=0.02)


def test_a_condition_that_comes_true_in_the_last_look_is_seen() -> None:
    assert wait_until(lambda: True, within=0)
