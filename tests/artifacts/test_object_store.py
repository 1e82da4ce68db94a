"""Artifacts in S3: what a bad network and wrong options do, and what is asked of the server.

Examines the internals of artifacts.remote and sources.remote_system on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.artifacts import ArtifactError, ArtifactStore, remote
from tests.sources.object_stores.buckets import Endpoint

from .conftest import OWNER, open_store, s3_options
from .troublesome import Troublesome, troublesome


@pytest.fixture
def proxy(moto: Endpoint) -> Iterator[Troublesome]:
    with troublesome(moto.url) as proxy:
        yield proxy


def behind(endpoint: Endpoint, url: str, *, folder: str = "s3://skills/a", **more: Any) -> ArtifactStore:
    return open_store(folder, **{"skills.source.options": s3_options(endpoint.at(url)), **more})


@pytest.fixture
def s3(moto: Endpoint, proxy: Troublesome, request: pytest.FixtureRequest) -> ArtifactStore:
    return behind(moto, proxy.url, folder=f"s3://skills/{request.node.name}")


def test_what_is_asked_of_the_server(s3: ArtifactStore, proxy: Troublesome) -> None:
    saved = s3.save(OWNER, "a.txt", b"1")
    assert proxy.requests.count("PUT") == 3
    proxy.requests.clear()
    assert s3.save(OWNER, "a.txt", b"1") == saved
    assert "PUT" not in proxy.requests
    proxy.requests.clear()
    s3.load(OWNER, "a.txt", saved.version)
    assert proxy.requests == ["GET", "GET"]  # the record and the content


@pytest.mark.parametrize("fault", [503, 500, "drop"])
def test_what_fails_for_a_moment_is_tried_again(
    s3: ArtifactStore, proxy: Troublesome, fault: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_skills.sources.remote_system._FIRST_WAIT", 0.01)
    proxy.plan = lambda number: fault if number % 2 else None
    saved = s3.save(OWNER, "a", b"content")
    assert s3.load(OWNER, "a") == (saved, b"content")


def test_a_server_that_does_not_answer(moto: Endpoint, proxy: Troublesome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.sources.remote_system._SHORTEST_STALL", 0.2)
    proxy.plan = lambda number: "hang"
    store = behind(moto, proxy.url, **{"skills.source.timeout": "1s"})
    with pytest.raises(ArtifactError, match="artifact store s3://skills/a") as failed:
        store.save(OWNER, "a", b"1")
    assert failed.value.reason == "unavailable"
    assert failed.value.retryable


def test_a_server_that_is_not_there(moto: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.sources.remote_system._FIRST_WAIT", 0.01)
    store = behind(moto, "http://127.0.0.1:1")
    with pytest.raises(ArtifactError, match="the server is unreachable") as failed:
        store.save(OWNER, "a", b"1")
    assert failed.value.retryable
    assert "any-secret" not in str(failed.value)


def test_a_bucket_that_is_not_there(moto: Endpoint) -> None:
    store = behind(moto, moto.url, folder="s3://no-such-bucket/a")
    with pytest.raises(ArtifactError, match="bucket does not exist") as failed:
        store.save(OWNER, "a", b"1")
    assert (failed.value.reason, failed.value.retryable) == ("unavailable", False)


def test_a_file_system_where_files_appear_before_they_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HDFS is: there a file is written beside its place and moved, also over the one before."""
    monkeypatch.setattr(remote, "_COMPLETE", frozenset())
    place = f"{tmp_path.parent.name}/aside"  # all tests of a process share the memory
    store = open_store(f"memory://{place}")
    for data in (b"1", b"2", b"1"):
        saved = store.save(OWNER, "a", data)
        assert store.load(OWNER, "a") == (saved, data)
    from fsspec.implementations.memory import MemoryFileSystem

    left = [name for name in MemoryFileSystem.store if place in name]
    assert len(left) == 5
    assert not [name for name in left if name.endswith(".new")]


def test_errors_do_not_drag_secrets_along(moto: Endpoint) -> None:
    store = behind(moto, "http://127.0.0.1:1", **{"skills.source.timeout": "1s"})
    with pytest.raises(ArtifactError) as failed:
        store.load(OWNER, "a")
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None
