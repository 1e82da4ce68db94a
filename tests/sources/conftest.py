"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
    monkeypatch.setattr("flink_skills.sources.remote_system._FIRST_WAIT", 0.001)


@pytest.fixture
def readable(tmp_path: Path) -> Path:
    """``tmp_path``, for other users as well."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            if not folder.is_relative_to(tmp_path.parent):
                pytest.skip(f"other users cannot reach {folder}")
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path
