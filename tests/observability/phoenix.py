"""Phoenix, a viewer of traces, as a process of its own, read by its interface for programs."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.ports import free_ports
from tests.kit.waiting import wait_until
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

        def whole() -> list[dict[str, Any]] | None:
            spans = self.spans()
            return spans if sum(span["parent_id"] is None for span in spans) >= count else None

        def what() -> str:
            return f"{count} whole turns in {[span['name'] for span in self.spans()]}"

        found = wait_until(whole, what, within=_READ_SECONDS, pause=0.2)
        assert found is not None
        return found

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
        log = folder / "phoenix.log"
        wait_until(
            lambda: _is_well(server.url),
            lambda: f"the viewer to answer: {log.read_text(errors='replace')[-2000:]}",
            within=_START_SECONDS,
            pause=0.1,
        )
        yield Phoenix(server.url)
    finally:
        server.stop()


def _is_well(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/healthz", timeout=5):
        return True
    return False
