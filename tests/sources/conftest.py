"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.sources import SourceTree, open_source
from tests.sources.oci_server import OciServer, address, context
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


@pytest.fixture
def no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_waits: None) -> None:
    """No login file of this machine is read."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)


@pytest.fixture
def registry() -> Iterator[OciServer]:
    server = OciServer()
    yield server
    server.close()


@pytest.fixture
def opened(registry: OciServer, tmp_path: Path) -> Callable[..., SourceTree]:
    """Open ``name`` of the registry, with options, and return its tree."""

    def open_one(name: str, *, refresh: bool = False, **options: Any) -> SourceTree:
        (tree,) = open_source("url", address(registry, name), context(tmp_path, refresh=refresh, **options)).resolve()
        return tree

    return open_one
