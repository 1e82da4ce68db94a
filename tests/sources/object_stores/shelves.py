"""Stores of every kind as the tests of folders see them: files at keys, and requests that are counted."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.sources.object_stores.faults import FaultyProxy
from tests.sources.object_stores.hadoop import NameNode

BUCKET = "skills"
_numbers = itertools.count()


class Writable(Protocol):
    """A store that the tests write to."""

    def put(self, bucket: str, key: str, data: bytes) -> None: ...

    def remove(self, bucket: str, key: str) -> None: ...


@dataclass
class Shelf:
    """One folder of a store. ``listing`` is in the path of a request that lists, ``options`` are those to read it."""

    scheme: str
    writable: Writable
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    proxy: FaultyProxy | None = None
    listing: str = ""
    name: str = field(default_factory=lambda: f"shelf-{next(_numbers)}")
    _keys: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"{self.scheme}{self.name}/"

    def put(self, key: str, data: bytes = b"x") -> None:
        self.writable.put(BUCKET, f"{self.name}/{key}", data)
        self._keys.add(key)

    def remove(self, key: str) -> None:
        self.writable.remove(BUCKET, f"{self.name}/{key}")
        self._keys.discard(key)

    def publish(self, folder: Path) -> None:
        """Put the files of ``folder`` there, in place of all that was there."""
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for key in self._keys - set(files):
            self.remove(key)
        for key, data in files.items():
            self.put(key, data)

    def requests(self) -> tuple[int, int]:
        """Return the numbers of listings and of all other requests since the last call."""
        assert self.proxy is not None
        listings = sum(self.listing in path for _, path in self.proxy.requests)
        found = listings, len(self.proxy.requests) - listings
        self.proxy.reset_counts()
        return found


class Memory:
    """fsspec's file system in memory."""

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._system().pipe(f"/{bucket}/{key}", data)

    def remove(self, bucket: str, key: str) -> None:
        self._system().rm(f"/{bucket}/{key}")

    @staticmethod
    def _system() -> Any:
        import fsspec

        return fsspec.filesystem("memory")


class Hdfs:
    """A name node; each file that is written gets another time."""

    def __init__(self, node: NameNode) -> None:
        self._node = node

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._node.files[f"/{bucket}/{key}"] = (data, next(_numbers))

    def remove(self, bucket: str, key: str) -> None:
        del self._node.files[f"/{bucket}/{key}"]


class PublicObjects:
    """An S3 interface whose objects anybody may read: OSS signs in a way that it does not know."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=bucket, Key=key, Body=data, ACL="public-read")

    def remove(self, bucket: str, key: str) -> None:
        self._client.delete_object(Bucket=bucket, Key=key)
