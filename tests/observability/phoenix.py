"""Phoenix, a viewer of traces, as a process of its own, read by its interface for programs."""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.sources.object_stores.servers import Server

# Where `.ci/phoenix` has put it.
_FOLDER = Path(os.environ.get("PHOENIX_FOLDER") or Path(__file__).parents[2] / ".venv-phoenix")
_START_SECONDS = 240.0
_READ_SECONDS = 60.0


class Phoenix:
    """A running viewer: ``url`` takes spans, too."""

    def __init__(self, url: str) -> None:
        self.url = url

    def spans(self, project: str = "default") -> list[dict[str, Any]]:
        """All spans of a project, empty where there is none yet."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            answer = self._get(f"/v1/projects/{project}/spans?limit=500{cursor}")
            found += answer["data"]
            if not answer.get("next_cursor"):
                return found
            cursor = f"&cursor={answer['next_cursor']}"

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """All spans, as soon as ``count`` of them are of whole turns."""
        deadline = time.monotonic() + _READ_SECONDS
        while True:
            spans = self.spans()
            if sum(span["parent_id"] is None for span in spans) >= count:
                return spans
            assert time.monotonic() < deadline, [span["name"] for span in spans]
            time.sleep(0.2)

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.loads(answer.read())


@contextlib.contextmanager
def phoenix(folder: Path) -> Iterator[Phoenix]:
    """A viewer that keeps everything in ``folder``. Skips the test where none is installed."""
    python = _FOLDER / "bin/python"
    if not python.is_file():
        pytest.skip("Phoenix is not here: 'make phoenix' installs it (860 MB), 'make nightly' runs with it")
    port, other = free_ports(2)
    server = Server(
        [str(python), "-m", "phoenix.server.main", "serve"],
        port,
        folder / "phoenix.log",
        PHOENIX_WORKING_DIR=str(folder),
        PHOENIX_HOST="127.0.0.1",
        PHOENIX_PORT=str(port),
        PHOENIX_GRPC_PORT=str(other),
        PHOENIX_TELEMETRY_ENABLED="false",
    )
    try:
        _wait(server, folder / "phoenix.log")
        yield Phoenix(server.url)
    finally:
        server.stop()


def _wait(server: Server, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{server.url}/healthz", timeout=5):
            return
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
