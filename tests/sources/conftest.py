"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sources.web import Web


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried at once."""
    monkeypatch.setattr("flink_skills.sources.connection._FIRST_WAIT", 0.001)
