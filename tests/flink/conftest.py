"""Model servers for the jobs of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flink_skills.testing import ScriptedModelServer


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedModelServer]]:
    """Starts scripted model servers that stop with the test."""
    servers: list[ScriptedModelServer] = []

    def start(script: object, **rest: object) -> ScriptedModelServer:
        servers.append(ScriptedModelServer(script, **rest).start())  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
