from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.errors import ExecutionError, SkillsError
from flink_skills.execution import ExecutionBackend, create_backend

from .ground import settings

BACKENDS = ("landlock", "hygiene", "bwrap")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can get through, unlike those that pytest makes."""
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="stress-")))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


async def started(name: str) -> ExecutionBackend:
    """The backend, started; skips the test with the reason where this machine cannot have it."""
    try:
        backend = create_backend(name, settings())
    except SkillsError as error:
        pytest.skip(f"no backend {name}: {error}")
    try:
        await backend.start()
    except ExecutionError as error:
        await backend.close()
        pytest.skip(f"backend {name} does not start: {error}")
    return backend
