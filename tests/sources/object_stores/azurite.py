"""Azurite, Microsoft's own emulator of Azure's blob storage: it checks signatures."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.ports import free_port
from tests.sources.object_stores.servers import Server, running

# Where `.ci/azurite` has put it.
_FOLDER = Path(os.environ.get("AZURITE_FOLDER") or Path(__file__).parents[3] / ".venv-azurite")


class AzureAccount:
    """A storage account: its address, name and key."""

    name = "skillstests"
    key = base64.b64encode(b"azure-secret-of-the-tests").decode()

    def __init__(self, port: int) -> None:
        self.port = port

    def options(self, url: str = "", **changed: Any) -> dict[str, Any]:
        """What ``skills.source.options`` has for "abfs"; None takes a word out."""
        endpoint = f"{url or f'http://127.0.0.1:{self.port}'}/{self.name}"
        words = {"endpoint": endpoint, "key": self.name, "secret": self.key, **changed}
        return {word: value for word, value in words.items() if value is not None}

    def make_container(self, name: str, *, public: bool = False) -> None:
        self._client().create_container(name, public_access="blob" if public else None)

    def put(self, container: str, name: str, data: bytes) -> None:
        self._client().get_blob_client(container, name).upload_blob(data, overwrite=True)

    def remove(self, container: str, name: str) -> None:
        self._client().get_blob_client(container, name).delete_blob()

    def _client(self) -> Any:
        from azure.storage.blob import BlobServiceClient

        place = f"http://127.0.0.1:{self.port}/{self.name}"
        return BlobServiceClient(place, credential={"account_name": self.name, "account_key": self.key})


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[AzureAccount]:
    script = _FOLDER / "node_modules/azurite/dist/src/blob/main.js"
    node = shutil.which("node", path=f"{_FOLDER / 'node/bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if not script.is_file():
        pytest.skip("azurite is not here: 'make azurite' installs it, 'make nightly' runs with it")
    assert node, f"there is no node for azurite, neither in {_FOLDER} nor on the PATH"
    port = free_port()
    command = [node, str(script), "--blobPort", str(port), "--inMemoryPersistence"]
    command += ["--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    accounts = f"{AzureAccount.name}:{AzureAccount.key}"
    server = Server(command, port, folder / "azurite.log", AZURITE_ACCOUNTS=accounts)
    with running(server):
        yield AzureAccount(port)
