"""Stores that the tests of one run share, and what every test of this folder needs.

Examines the internals of sources.remote_system on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.sources import remote_system
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.reading import Reader
from tests.sources.object_stores.swift_cluster import swift_cluster

BUCKET = "skills"


@pytest.fixture(autouse=True)
def no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "OSS_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    nothing = str(tmp_path / "no-such-file")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)
    monkeypatch.setenv("AWS_CONFIG_FILE", nothing)
    # Nor of the machine's cloud, whose address is outside of this machine.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fractions of a second where the product has seconds."""
    monkeypatch.setattr(remote_system, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(remote_system, "_SHORTEST_STALL", 0.4)
    monkeypatch.setattr(remote_system, "_MAX_STALL", 0.4)


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with swift_cluster(tmp_path_factory.mktemp("swift")) as endpoint:
        endpoint.make_bucket(BUCKET)
        yield endpoint


@pytest.fixture(scope="session")
def moto() -> Iterator[Endpoint]:
    """S3 as ``moto`` plays it: quick, in this process, and any key will do."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = Endpoint(f"http://{host}:{port}", "us-east-1", "any-key", "any-secret")
        endpoint.make_bucket(BUCKET)
        yield endpoint
    finally:
        server.stop()


@pytest.fixture(params=["moto", "swift"])
def endpoint(request: pytest.FixtureRequest) -> Any:
    """Each S3 interface in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)
