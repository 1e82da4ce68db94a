from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from flink_skills.execution import (
    BackendSettings,
    CommandRequest,
    CommandUser,
    Limits,
    LiveProcess,
    WorkspaceManager,
    create_backend,
)
from flink_skills.execution.backends import LocalBackend
from flink_skills.execution.workspace import Workspace
from tests.execution.conftest import processes_with
from tests.execution.escape.conftest import start_or_skip
from tests.execution.escape.machine import COMMAND_USER
from tests.kit.waiting import until

USER = CommandUser(COMMAND_USER, COMMAND_USER) if os.geteuid() == 0 else None
PATH = "/usr/local/bin:/usr/bin:/bin"
DAEMON = "setsid sh -c 'setsid sleep 300 & exit' > /dev/null 2>&1 < /dev/null &"


class Output:
    """Keeps what comes, by stream."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""

    def __call__(self, stream: int, data: bytes) -> None:
        assert data
        assert len(data) <= 65_536
        if stream == 1:
            self.out += data
        else:
            self.err += data

    async def has(self, text: bytes, within: float = 15.0) -> None:
        await until(lambda: text in self.out, lambda: f"{text!r} in {self.out!r}", within=within)


class Processes:
    """Starts shell texts in a workspace, and finds their processes by a mark in their environment."""

    def __init__(self, backend: LocalBackend, workspace: Workspace) -> None:
        self.backend = backend
        self.workspace = workspace
        self.mark = f"TEST_MARK={os.urandom(8).hex()}"
        self.output = Output()

    def request(self, *argv: str, **more: Any) -> CommandRequest:
        name, _, value = self.mark.partition("=")
        given: dict[str, Any] = {
            "cwd": str(self.workspace.work_dir),
            "limits": Limits(wall_time=120),
            "root": str(self.workspace.root),
            "writable": self.workspace.writable,
            "readable": self.workspace.readable,
            **more,
        }
        env = {"PATH": PATH, "TMPDIR": str(self.workspace.tmp_dir), name: value, **given.pop("env", {})}
        return CommandRequest(argv, env=env, **given)

    async def start(self, text: str, *, tty: bool = False, on_output: Any = None, **more: Any) -> LiveProcess:
        request = self.request("/bin/bash", "-c", text, **more)
        return await self.backend.start_process(request, tty=tty, on_output=on_output or self.output)

    def alive(self) -> list[int]:
        return processes_with(self.mark)


def terminals() -> set[str]:
    """The numbers of the terminals of this machine."""
    return {path.name for path in Path("/dev/pts").iterdir() if path.name.isdigit()}


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    # Not the folder that pytest gives: another user cannot get there.
    folder = Path(tempfile.mkdtemp(prefix="live-"))
    folder.chmod(0o711)
    manager = WorkspaceManager(folder / "job", user=USER)
    workspace = manager.for_key("live")
    workspace.ensure()
    yield workspace
    manager.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", params=["hygiene", "landlock", "bwrap"])
def backend_name(request: pytest.FixtureRequest) -> str:
    """A backend that works here."""
    name: str = request.param
    start_or_skip(name, USER)
    return name


@asynccontextmanager
async def started(name: str) -> AsyncIterator[LocalBackend]:
    backend = create_backend(name, BackendSettings(user=USER))
    assert isinstance(backend, LocalBackend)
    await backend.start()
    yield backend
    await backend.close()
    assert backend.launcher_pid is None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend_of_the_module(backend_name: str) -> AsyncIterator[LocalBackend]:
    async with started(backend_name) as backend:
        yield backend


@pytest_asyncio.fixture(loop_scope="module")
async def backend(backend_of_the_module: LocalBackend) -> LocalBackend:
    """A backend that the tests of a module share, so they run in the event loop of the module."""
    await backend_of_the_module.start()  # again if a test has closed it
    return backend_of_the_module


@pytest.fixture
def processes(backend: LocalBackend, workspace: Workspace) -> Iterator[Processes]:
    processes = Processes(backend, workspace)
    yield processes
    assert processes.alive() == []
