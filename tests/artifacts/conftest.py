"""Examines the internals of artifacts.location on purpose."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.artifacts.artifact_store import Location
from flink_skills.options import SkillConfig
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.conftest import moto, no_credentials_of_this_machine  # noqa: F401 - fixtures

OWNER = '5:agent"key"'


def open_store(url: str, **more: Any) -> ArtifactStore:
    store = ArtifactStore.open(SkillConfig({"skills.artifacts.dir": url, **more}))
    assert store is not None
    return store


def s3_options(endpoint: Endpoint) -> str:
    return json.dumps({"s3": endpoint.options()})


class Watched(Location):
    """Another location that counts what is written and ends where it is told to: before the write of this number."""

    def __init__(self, inner: Location) -> None:
        self.shown = inner.shown
        self.written: list[str] = []
        self.ends_at = -1
        self._inner = inner

    def write(self, name: str, data: bytes) -> None:
        if len(self.written) == self.ends_at:
            raise KeyboardInterrupt
        self.written.append(name)
        self._inner.write(name, data)

    def read(self, name: str, limit: int) -> bytes:
        return self._inner.read(name, limit)

    def remove(self, folder: str) -> None:
        self._inner.remove(folder)

    def names(self, folder: str) -> list[str]:
        return self._inner.names(folder)


@pytest.fixture(params=["file", "path", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ArtifactStore]:
    """Opens the same place again and again, each kind of it in turn."""
    name = f"{os.getpid()}-{tmp_path.name}"
    if request.param == "s3":
        options = s3_options(request.getfixturevalue("moto"))
        return lambda: open_store(f"s3://skills/{name}/artifacts/", **{"skills.source.options": options})
    urls = {"file": f"file://{tmp_path}/of file", "path": f"{tmp_path}/of path/", "memory": f"memory://{name}"}
    return lambda: open_store(urls[request.param])


@pytest.fixture
def store(place: Callable[[], ArtifactStore]) -> ArtifactStore:
    return place()
