"""Examines the internals of execution.backend_registry on purpose."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.execution import (
    BackendSettings,
    CommandRequest,
    CommandResult,
    ExecutionBackend,
    IsolationLevel,
    backend_names,
    backend_registry,
    create_backend,
    unregister_backend,
)


class Fake(ExecutionBackend):
    def __init__(self, settings: BackendSettings) -> None:
        self.settings = settings

    async def start(self) -> None:
        return

    async def run(self, request: CommandRequest) -> CommandResult:
        return CommandResult(exit_code=0)

    async def close(self) -> None:
        return


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    yield
    for name in backend_names():
        unregister_backend(name)


def entry_points_are(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    def entry_points(group: str, name: str | None = None) -> list[EntryPoint]:
        return [p for p in points if p.group == group and name in (None, p.name)]

    monkeypatch.setattr(backend_registry, "entry_points", entry_points)


def test_hygiene_reports_its_level() -> None:
    assert create_backend("hygiene").level is IsolationLevel.HYGIENE
    assert "hygiene" in backend_registry.backend_names()


def test_unknown_name_has_near_misses() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'hygiene'"):
        create_backend("hygine")


def test_no_isolation_has_no_name() -> None:
    with pytest.raises(UnknownNameError):
        create_backend("none")


def test_registered_and_not_replaced_silently() -> None:
    backend_registry.register_backend("fake", Fake)
    assert isinstance(create_backend("fake"), Fake)
    with pytest.raises(ConfigError, match="already exists"):
        backend_registry.register_backend("fake", Fake)
    with pytest.raises(ConfigError, match="already exists"):
        backend_registry.register_backend("hygiene", Fake)


def test_entry_points_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    group = backend_registry.ENTRY_POINT_GROUP
    entry_points_are(
        monkeypatch,
        EntryPoint("theirs", f"{__name__}:Fake", group),
        EntryPoint("broken", "no_such_package_anywhere:Backend", group),
        EntryPoint("odd", "builtins:str", group),
    )
    assert type(create_backend("theirs")).__name__ == "Fake"
    assert backend_registry.backend_names() == ["broken", "bwrap", "hygiene", "landlock", "odd", "remote", "theirs"]
    with pytest.raises(ConfigError, match=r"no_such_package_anywhere.*install"):
        create_backend("broken")
    with pytest.raises(ConfigError, match="returned a str"):
        create_backend("odd")


def test_listing_imports_no_backend() -> None:
    code = (
        "import sys; from flink_skills.execution import backend_names; backend_names();"
        "sys.exit(any('.backends.' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
