from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.skills import write_skill
from tests.sources.web import Web


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b", "a", "c"):
        write_skill(tmp_path / "skills" / name, description=f"Does {name}.")
    return tmp_path / "skills"


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()
