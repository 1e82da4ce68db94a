from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from flink_skills.execution import BackendSettings, CommandRequest, CommandResult, CommandUser, ExecutionBackend
from flink_skills.integrations.remote import RemoteBackend
from tests.integrations.remote.cluster import Cluster
from tests.kit.passable import passable_folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests, which start many commands, the marker ``commands``, which ``make test-fast`` leaves out."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("commands")


class Key:
    """The workspace of a key, with the folders that commands may write and a skill that they may read."""

    def __init__(self, backend: ExecutionBackend, root: Path) -> None:
        self.backend = backend
        self.root = root
        self.work, self.out, self.skill = root / "work", root / "out", root / "skills" / "report"
        for folder in (self.work, self.out, self.skill):
            folder.mkdir(parents=True)
        (self.skill / "SKILL.md").write_text("# Report\n")
        self.skill.chmod(0o555)

    def request(self, *argv: str, **more: object) -> CommandRequest:
        given: dict[str, object] = {
            "cwd": str(self.work),
            "root": str(self.root),
            "writable": (str(self.work), str(self.out)),
            "readable": (str(self.root / "skills"),),
            **more,
        }
        given["env"] = {"PATH": "/usr/bin:/bin", "OUTPUT_DIR": str(self.out), **more.get("env", {})}  # type: ignore[dict-item]
        return CommandRequest(argv, **given)  # type: ignore[arg-type]

    async def run(self, *argv: str, **more: object) -> CommandResult:
        return await self.backend.run(self.request(*argv, **more))

    async def sh(self, text: str, **more: object) -> CommandResult:
        """Run a shell text that must end well."""
        result = await self.run("sh", "-c", text, **more)
        assert (result.exit_code, result.error) == (0, None), result
        return result


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path / "pods").serve() as served:
        yield served


NewBackend = Callable[..., RemoteBackend]


@pytest.fixture
async def new_backend(cluster: Cluster) -> AsyncIterator[NewBackend]:
    """Makes backends for the cluster, not yet started, with options besides those of the cluster."""
    made: list[RemoteBackend] = []

    def make(*, network: bool = False, user: CommandUser | None = None, **options: str) -> RemoteBackend:
        given = {name.replace("_", "-"): value for name, value in options.items()}
        settings = BackendSettings(network=network, user=user, options={**cluster.options, **given})
        made.append(RemoteBackend(settings, environ={}))
        return made[-1]

    yield make
    for backend in made:
        await backend.close()


@pytest.fixture
async def backend(new_backend: NewBackend) -> RemoteBackend:
    made = new_backend()
    await made.start()
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_backend() -> AsyncIterator[RemoteBackend]:
    """A started backend of the tests of a module that only run commands, see :data:`sharing`."""
    with passable_folder() as folder:
        async with Cluster(folder / "pods").serve() as served:
            made = RemoteBackend(BackendSettings(options=served.options), environ={})
            await made.start()
            yield made
            await made.close()


sharing = pytest.mark.asyncio(loop_scope="module")
"""For tests with ``shared_key``: the servers of the cluster live in the event loop of the module."""


@pytest.fixture
def shared_key(shared_backend: RemoteBackend, tmp_path: Path) -> Key:
    """A key of its own, with a sandbox of its own."""
    return Key(shared_backend, tmp_path / "workspaces" / "ws_1")


@pytest.fixture
def key(backend: RemoteBackend, tmp_path: Path) -> Key:
    return Key(backend, tmp_path / "workspaces" / "ws_1")
