"""Which backends are attacked, as whom, and the workers that run them.

The environment variable ``ESCAPE_BACKENDS`` (names with commas) says which backends there must be: one of them that
cannot be started is then a failure. Without it a backend that cannot be started is skipped, with its reason.
``ESCAPE_LANDLOCK_ABI`` (2 or 5) replaces the version of Landlock for the backend, which then closes by seccomp what
that version cannot restrict. ``ESCAPE=nightly`` also runs here what the tests in the emulated pod run there.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from _pytest.mark.structures import ParameterSet

from flink_skills.errors import SkillsError
from flink_skills.execution import BackendSettings, CommandUser, create_backend
from tests.execution.escape.machine import COMMAND_USER, Identity, landlock_abi, python_for
from tests.execution.escape.probes.kit import Attempt
from tests.execution.escape.worker import WorkerError, WorkerProcess
from tests.execution.escape.world import World
from tests.pod import pod

_ISOLATING = ("hygiene", "landlock", "bwrap")


def _identities() -> dict[str, Identity]:
    mine = os.geteuid()
    if mine != 0:
        return {"same": Identity("same", mine, mine)}
    return {
        # The worker is an ordinary user, and its commands are of the same: the case of a pod.
        "same": Identity("same", COMMAND_USER, COMMAND_USER),
        # The worker is root and gives its commands to another user.
        "switched": Identity("switched", 0, COMMAND_USER),
    }


@functools.lru_cache
def _run_in_the_pod() -> tuple[str, ...]:
    """The backends that ``tests/pod`` attacks as an ordinary user anyway, with the same tests, when root runs them."""
    again = os.geteuid() != 0 or os.environ.get("ESCAPE") == "nightly" or pod.problem()
    return () if again else ("hygiene", "landlock")


def backend_params(*, control: bool = True, root: bool = False) -> list[ParameterSet]:
    """Parameters of the fixture ``worker``: pairs of a backend and an identity.

    ``control`` adds no isolation, ``root`` the same for root.
    """
    names = _identities()
    pairs = [("none", "same")] if control else []
    pairs += [
        (backend, identity)
        for backend in _ISOLATING
        for identity in names
        if identity == "switched" or backend not in _run_in_the_pod()
    ]
    if root and "switched" in names:
        # Some attempts need rights that only root has: as root they show that they would succeed.
        pairs.append(("none", "root"))
    return [pytest.param(pair, id="-".join(pair)) for pair in pairs]


@pytest.fixture(scope="session")
def base() -> Iterator[Path]:
    """A folder that all users may enter, and only its owner may list."""
    folder = Path(tempfile.mkdtemp(prefix="escape-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Workers:
    """The workers of a session: started when first needed, again when one is gone."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._workers: dict[tuple[str, str], WorkerProcess] = {}
        self._refused: dict[tuple[str, str], str] = {}

    def start(self, backend: str, name: str) -> WorkerProcess:
        """A worker of its own for a test that ends it."""
        identity = Identity("root", 0, 0) if name == "root" else _identities()[name]
        if not python_for(identity.command_uid):
            pytest.skip(f"there is no Python that the user {identity.command_uid} may run")
        outside = self._base / f"outside-{backend}-{name}"
        canary = outside / "canary"
        if not outside.exists():
            outside.mkdir(mode=0o700)
            canary.write_text(f"canary-{os.urandom(8).hex()}")
            canary.chmod(0o600)
            for path in (outside, canary):
                os.chown(path, identity.command_uid, -1)
        return WorkerProcess(backend, identity, self._base, canary)

    def get(self, backend: str, name: str) -> WorkerProcess:
        """The worker that tests share; skips, or fails, where there can be none."""
        pair = (backend, name)
        if pair in self._refused:
            give_up(backend, self._refused[pair])
        worker = self._workers.get(pair)
        if worker is None or not worker.alive:
            try:
                worker = self._workers[pair] = self.start(backend, name)
            except WorkerError as error:
                self._refused[pair] = str(error)
                give_up(backend, str(error))
        return worker

    def close(self) -> None:
        for worker in self._workers.values():
            if worker.alive:
                worker.close()


def give_up(backend: str, reason: str) -> NoReturn:
    """Skip, or fail where the backend has to work."""
    required = os.environ.get("ESCAPE_BACKENDS", "")
    if backend in ("none", "hygiene") or backend in required.split(","):
        pytest.fail(f"the backend {backend} has to work here and does not: {reason}", pytrace=False)
    pytest.skip(f"the backend {backend} cannot be started here: {reason}")


@functools.cache
def _problem(name: str, user: CommandUser | None) -> str:
    async def start() -> None:
        backend = create_backend(name, BackendSettings(user=user))
        try:
            await backend.start()
        finally:
            await backend.close()

    try:
        asyncio.run(start())
    except SkillsError as error:
        return str(error)
    return ""


def start_or_skip(name: str, user: CommandUser | None) -> None:
    """See whether a backend starts in this process; :func:`give_up` where it does not."""
    problem = _problem(name, user)
    if problem:
        give_up(name, problem)


@pytest.fixture(scope="session")
def workers(base: Path) -> Iterator[Workers]:
    workers = Workers(base)
    yield workers
    workers.close()


@pytest.fixture
def worker(request: pytest.FixtureRequest, workers: Workers) -> WorkerProcess:
    """The worker of the pair that a test is parametrised with, see :func:`backend_params`."""
    return workers.get(*request.param)


@pytest.fixture
def make_world(worker: WorkerProcess) -> Iterator[Callable[[list[Attempt]], World]]:
    """Makes the world around the sandbox; it is cleaned up after the test."""
    made: list[World] = []

    def make(attempts: list[Attempt]) -> World:
        made.append(World(worker, attempts))
        return made[-1]

    yield make
    for world in made:
        world.leave()


@pytest.fixture
def world(make_world: Callable[[list[Attempt]], World]) -> World:
    """A world without attempts, for tests that make their own."""
    return make_world([])


def pytest_report_header() -> str:
    return f"escape suite: uid {os.geteuid()}, Landlock ABI {landlock_abi()}, kernel {os.uname().release}"


__all__ = ["Workers", "backend_params", "give_up", "start_or_skip"]
