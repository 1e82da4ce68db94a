"""Tests with each kind of result, for the tests of how results come out of the pod. Not collected by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def broken_end() -> Iterator[None]:
    yield
    raise RuntimeError("the end of the fixture broke")


@pytest.mark.parametrize("number", [1, 2])
def test_numbers(number: int) -> None:
    assert number == 1, "two is not one"


class TestGroup:
    def test_good(self) -> None:
        assert True

    def test_left(self) -> None:
        pytest.skip("the kernel has no such thing")


def test_end(broken_end: None) -> None:
    assert True
