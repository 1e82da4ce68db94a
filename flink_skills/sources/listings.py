"""Listings of folders in object stores and file systems, page by page, and files by the version that a listing names.

Each store is asked through the client of its fsspec library: the libraries' own listings read all pages, change keys
(``a//b`` becomes ``a/b``), and do not fetch a version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from flink_skills.sources.remote_system import version_text

AT_ONCE = 8

_PAGE = 1000
_CHUNK = 1 << 16


@dataclass(frozen=True, order=True)
class Entry:
    """One line of a listing.

    Args:
        name: The path below the folder.
        size: Bytes.
        version: What changes with the content. None if the store does not have it.
        kind: "file", "directory" for a directory or its marker; anything else is neither.
    """

    name: str
    size: int = 0
    version: str | None = None
    kind: str = "file"


@dataclass(frozen=True)
class Page:
    """Part of a listing. ``rest`` gets the next one; it is None on the last page."""

    entries: list[Entry]
    rest: Any = None


class Listing(Protocol):
    """The listing of one folder. Both methods may return coroutines of the file system's loop."""

    at_once: int

    def page(self, rest: Any, most: int) -> Any:
        """Return a :class:`Page` of about ``most`` entries at most: the first, or that of ``rest``."""

    def read(self, entry: Entry, target: str, progress: Any) -> Any:
        """Write the listed version of a file to ``target``. Return False if the store has another one."""


def listing_of(protocol: str, system: Any, path: str, stall: float) -> Listing:
    """Return the listing of the folder ``path``, as the file system writes it.

    Args:
        protocol: The scheme of the URL.
        system: The file system.
        path: The path without the protocol.
        stall: The maximum of seconds without a byte, for libraries that take no option for it.
    """
    if protocol in ("s3", "s3a"):
        return _S3(system, path)
    if protocol in ("gs", "gcs"):
        return _Gcs(system, path)
    if protocol in ("abfs", "abfss", "az"):
        return _Azure(system, path)
    if protocol == "oss":
        return _Oss(system, path, stall)
    return _Directories(system, path, AT_ONCE if protocol in ("hdfs", "webhdfs") else 1)


class _Keys:
    """An object store: names of objects, and no directories."""

    at_once = AT_ONCE

    def __init__(self, system: Any, path: str) -> None:
        self.system = system
        self.bucket, key = system.split_path(path)[:2]
        self.prefix = f"{key.rstrip('/')}/" if key else ""

    def entry(self, key: str, size: int, version: str | None, *, is_directory: bool = False) -> Entry:
        name = key.removeprefix(self.prefix)
        marker = is_directory or name.endswith("/") or (name.endswith("_$folder$") and not size)
        return Entry(
            name.removesuffix("_$folder$") if marker else name, size, version, "directory" if marker else "file"
        )


class _S3(_Keys):
    async def page(self, rest: Any, most: int) -> Page:
        more = {"ContinuationToken": rest} if rest else {}
        asked = {"Bucket": self.bucket, "Prefix": self.prefix, "MaxKeys": min(most, _PAGE), **more}
        found = await self.system._call_s3("list_objects_v2", **{**asked, **self.system.req_kw})
        entries = [self.entry(each["Key"], each["Size"], each.get("ETag")) for each in found.get("Contents", [])]
        return Page(entries, found["NextContinuationToken"] if found.get("IsTruncated") else None)

    async def read(self, entry: Entry, target: str, progress: Any) -> bool:
        key, match = self.prefix + entry.name, {"IfMatch": entry.version} if entry.version else {}
        asked = {"Bucket": self.bucket, "Key": key, **match}
        found = await self.system._call_s3("get_object", **{**asked, **self.system.req_kw})
        body = found["Body"]
        try:
            if entry.version not in (None, found.get("ETag")):  # from a store that does not know If-Match
                return False
            await _written(lambda: body.read(_CHUNK), target, progress)
        finally:
            body.close()
        return True


class _Gcs(_Keys):
    async def page(self, rest: Any, most: int) -> Page:
        words = {"prefix": self.prefix or None, "maxResults": min(most, _PAGE), "pageToken": rest}
        found = await self.system._call("GET", "b/{}/o", self.bucket, json_out=True, **words)
        entries = [
            self.entry(each["name"], int(each["size"]), str(each["generation"])) for each in found.get("items", [])
        ]
        return Page(entries, found.get("nextPageToken"))

    async def read(self, entry: Entry, target: str, progress: Any) -> bool:
        path = f"{self.bucket}/{self.prefix}{entry.name}"
        await self.system._get_file_request(path, target, callback=progress, generation=entry.version)
        return True


class _Azure(_Keys):
    def __init__(self, system: Any, path: str) -> None:
        super().__init__(system, path)
        self._waits = getattr(system, "_timeout_kwargs", {})

    async def page(self, rest: Any, most: int) -> Page:
        client = self.system.service_client.get_container_client(self.bucket)
        found = client.list_blobs(
            name_starts_with=self.prefix or None, include=["metadata"], results_per_page=min(most, _PAGE), **self._waits
        )
        pages = found.by_page(continuation_token=rest)
        try:
            page = await pages.__anext__()
        except StopAsyncIteration:
            return Page([])
        return Page([self._entry(blob) async for blob in page], pages.continuation_token or None)

    def _entry(self, blob: Any) -> Entry:
        marks = {name.lower(): value for name, value in (blob.metadata or {}).items()}
        marked = "true" in (marks.get("hdi_isfolder"), marks.get("is_directory"))
        version = f'"{blob.etag.strip(chr(34))}"' if blob.etag else None
        return self.entry(blob.name, blob.size or 0, version, is_directory=marked)

    async def read(self, entry: Entry, target: str, progress: Any) -> bool:
        from azure.core import MatchConditions

        match = {"etag": entry.version, "match_condition": MatchConditions.IfNotModified} if entry.version else {}
        client = self.system.service_client.get_blob_client(self.bucket, self.prefix + entry.name)
        stream = await client.download_blob(max_concurrency=1, **match, **self._waits)
        chunks = stream.chunks()

        async def piece() -> bytes:
            try:
                return bytes(await chunks.__anext__())
            except StopAsyncIteration:
                return b""

        await _written(piece, target, progress)
        return True


class _Oss(_Keys):
    def __init__(self, system: Any, path: str, stall: float) -> None:
        super().__init__(system, path)
        self._once = {"bucket": self.bucket, "retry": 1, "timeout": stall}

    def page(self, rest: Any, most: int) -> Page:
        words = {"marker": rest or "", "max_keys": min(most, _PAGE)}
        found = self.system._call_oss("list_objects", self.prefix, **words, **self._once)
        entries = [self.entry(each.key, each.size, each.etag or None) for each in found.object_list]
        return Page(entries, found.next_marker if found.is_truncated else None)

    def read(self, entry: Entry, target: str, progress: Any) -> bool:
        def absolute(done: int, _total: int | None) -> None:
            progress.absolute_update(done)

        words = {"headers": {"If-Match": f'"{entry.version}"'} if entry.version else {}, "progress_callback": absolute}
        key = self.prefix + entry.name
        found = self.system._call_oss("get_object_to_file", key, target, **words, **self._once)
        return entry.version in (None, getattr(found, "etag", entry.version))


class _Directories:
    """Any other file system of fsspec: one listing for each directory."""

    def __init__(self, system: Any, path: str, at_once: int) -> None:
        self._system = system
        self._root = path.rstrip("/")
        self.at_once = at_once

    def page(self, rest: Any, most: int) -> Any:
        waiting: list[str] = rest or [self._root]
        path, others = waiting[0], waiting[1:]
        if not getattr(self._system, "async_impl", False):
            return self._page(self._system.ls(path or "/", detail=True), path, others)

        async def page() -> Page:
            return self._page(await self._system._ls(path or "/", detail=True), path, others)

        return page()

    def _page(self, infos: list[dict[str, Any]], path: str, others: list[str]) -> Page:
        entries, below = [], []
        for info in infos:
            name = str(info["name"])
            if name.rstrip("/") == path:  # some list a directory in itself
                continue
            kind = "link" if info.get("islink") else str(info.get("type"))
            if not name.startswith(f"{path}/"):
                kind = "entry of another directory"
            if kind == "directory":
                below.append(name.rstrip("/"))
            entries.append(Entry(name.removeprefix(f"{self._root}/"), info.get("size") or 0, version_text(info), kind))
        return Page(entries, [*others, *below] or None)

    def read(self, entry: Entry, target: str, progress: Any) -> Any:
        path = f"{self._root}/{entry.name}"
        if getattr(self._system, "async_impl", False):
            return self._system._get_file(path, target, callback=progress)
        return self._system.get_file(path, target, callback=progress)


async def _written(piece: Callable[[], Any], target: str, progress: Any) -> None:
    with open(target, "wb") as file:  # noqa: ASYNC230 - as the libraries write
        while data := await piece():
            file.write(data)
            progress.relative_update(len(data))
