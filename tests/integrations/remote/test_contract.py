"""The remote backend keeps to the contract of all backends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.execution import BackendSettings, ExecutionBackend
from flink_skills.integrations.remote import RemoteBackend
from flink_skills.testing import ExecutionBackendContract
from tests.integrations.remote.cluster import Cluster


@pytest.fixture
def options(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Those of a cluster that serves from a thread: the contract's tests have event loops of their own."""
    cluster = Cluster(tmp_path / "pods")
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    up = threading.Event()

    async def serve() -> None:
        async with cluster.serve():
            up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert up.wait(30)
    yield cluster.options
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


class TestRemote(ExecutionBackendContract):
    local = False

    @pytest.fixture
    def backend(self, options: dict[str, str]) -> ExecutionBackend:
        return RemoteBackend(BackendSettings(options=options), environ={})
