from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from flink_skills.execution import CommandRequest, CommandResult, Limits
from flink_skills.execution.backends import HygieneBackend, LandlockBackend, LocalBackend

_ALL_COMMANDS = [Path(__file__).with_name(folder) for folder in ("escape", "live", "stress")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that do little but start commands the marker ``commands``, which ``make test-fast`` leaves out."""
    for item in items:
        if any(folder in item.path.parents for folder in _ALL_COMMANDS):
            item.add_marker("commands")


class Shell:
    """Runs shell texts and finds their processes by a mark in the environment that children inherit."""

    def __init__(self, backend: LocalBackend, cwd: Path) -> None:
        self.backend = backend
        self.cwd = cwd
        self.mark = f"TEST_MARK={uuid.uuid4().hex}"

    def request(
        self, text: str, *, limits: Limits | None = None, timeout: float | None = None, **more: object
    ) -> CommandRequest:
        limits = limits or Limits()
        more["limits"] = replace(limits, wall_time=timeout) if timeout else limits
        more.setdefault("writable", (str(self.cwd),))
        name, _, value = self.mark.partition("=")
        env = {"PATH": os.environ["PATH"], name: value, **more.pop("env", {})}  # type: ignore[dict-item]
        return CommandRequest(("/bin/bash", "-c", text), cwd=str(self.cwd), env=env, **more)  # type: ignore[arg-type]

    async def __call__(self, text: str, **more: object) -> CommandResult:
        return await self.backend.run(self.request(text, **more))

    def processes(self) -> list[int]:
        return processes_with(self.mark)


def processes_with(mark: str) -> list[int]:
    """Living processes (zombies have no environment any more) whose environment has ``mark``."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[HygieneBackend, LandlockBackend], ids=["hygiene", "landlock"]
)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[LocalBackend]:
    """A backend that the tests of a module share, so they run in the event loop of the module."""
    backend: LocalBackend = request.param()
    await backend.start()
    yield backend
    await backend.close()
    assert backend.launcher_pid is None


@pytest.fixture
def sh(backend: LocalBackend, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(backend, tmp_path)
    yield shell
    assert shell.processes() == []
