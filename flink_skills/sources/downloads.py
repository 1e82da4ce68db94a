"""Files and folders behind URLs.

The files below a URL that ends in ``/`` become the tar that ``flink-skills pack`` writes.
"""

from __future__ import annotations

import gzip
import hashlib
import inspect
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote, urlsplit

from flink_skills.endpoint import redact
from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill.file_rules import ALWAYS_EXCLUDED
from flink_skills.sources.address import AddressPolicy, protocol_of
from flink_skills.sources.entries import ArchiveRefusedError, Extraction, shown
from flink_skills.sources.listings import Entry, Listing, Page, listing_of
from flink_skills.sources.remote_system import WEB, Chain, Connection, limited, version_text
from flink_skills.sources.skill_source import SourceContext
from flink_skills.sources.tar_archive import Member, write_tar
from flink_skills.sources.transfer_failures import ChangedError, Transfer, is_absent

_GZIP = frozenset({"gzip", "x-gzip"})
# Compressed files. Servers declare them with the same header, and the bytes belong to the file.
_COMPRESSED = (".gz", ".tgz")
_CHUNK = 1 << 18
_IS_FOLDER = "the address is a folder; append '/' to load everything below it, or name an archive"
_ROUNDS = 3


def decode(target: str, name: str, encoding: str, transfer: Transfer, limit: int) -> None:
    """Replace the file ``target`` by its content before it was compressed for the transfer, at most ``limit`` bytes.

    ``name`` is the file's name, ``encoding`` the header. Raises :class:`SourceError`.
    """
    word = encoding.strip().lower()
    if word in ("", "identity") or (word in _GZIP and name.lower().endswith(_COMPRESSED)):
        return
    if word not in _GZIP:
        shown = word if word.isalpha() else "?"
        raise transfer.error(
            f"the server sends it with an unrequested encoding ({shown}); disable this encoding on the server"
        )
    plain = f"{target}.plain"
    try:
        with gzip.open(target) as packed, open(plain, "xb") as file:
            while data := packed.read(_CHUNK):
                if file.tell() + len(data) > limit:
                    raise transfer.too_large(limit)
                file.write(data)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise transfer.error("the server declares gzip, but the content is not gzip or is damaged") from None
    os.replace(plain, target)


class RemoteFile(Connection):
    """File behind a URL that fsspec fetches, including a file in archives (``zip://inner.zip::s3://…``).

    ``name`` is the file's name. ``policy`` replaces the rules for addresses of the options. ``version_id`` is the
    version of the object that was fetched, "" if its store keeps none. Raises what :class:`Connection` raises.
    """

    def __init__(self, url: str, context: SourceContext, *, policy: AddressPolicy | None = None) -> None:
        super().__init__(url, context, policy)
        self.version_id = ""
        inner = self._chain.inner
        self.name = (inner[-1][1] if inner else unquote(urlsplit(self._chain.url).path)).rpartition("/")[2]

    def version(self, deadline: float) -> str | None:
        """Return a text that changes with the content (ETag, time, …). Return None if the server reports none.

        Raises :class:`SourceError` if the file is not available.
        """
        if self._protocol not in WEB:
            return self._repeated(deadline, lambda: version_text(self._info(deadline)))
        self._client.head_only = True
        try:
            info = self._within(deadline, lambda: self._info(deadline))
        except SourceError:
            return None  # the download says what is wrong, if it is more than a server without HEAD
        finally:
            self._client.head_only = False
        return version_text(self._client.version or info)

    def fetch(self, target: str, limit: int, deadline: float) -> str | None:
        """Write at most ``limit`` bytes to ``target``. Return its version, see :meth:`version`.

        Transient failures are retried until the deadline (monotonic seconds). Raises :class:`SourceError`.
        """
        return self._repeated(deadline, lambda: self._fetch_once(target, limit, deadline), target)

    def _info(self, deadline: float) -> dict[str, Any]:
        system, path = self._open()
        info: dict[str, Any] = self._call(system, "info", deadline, path)
        return info

    def _fetch_once(self, target: str, limit: int, deadline: float) -> str | None:
        transfer = self._transfer(target)
        system, path = self._open()
        # Requested before the transfer, so that a change in between is detected the next time. A web server reports it
        # with the file.
        info = {} if self._protocol in WEB else self._call(system, "info", deadline, path)
        if info.get("type") == "directory":
            raise transfer.error(_IS_FOLDER)
        if (info.get("size") or 0) > limit:
            raise transfer.too_large(limit)
        self._call(system, "get_file", deadline, path, target, callback=limited(transfer, limit, deadline))
        if os.path.isdir(target):
            raise transfer.error(_IS_FOLDER)
        decode(target, self.name, self._client.encoding, transfer, limit)
        size = os.path.getsize(target)
        if size > limit:
            raise transfer.too_large(limit)
        if info and size != info.get("size", size):
            raise transfer.error(f"{size} bytes came of the {info['size']} announced; try again", retryable=True)
        self._chain.take_out(target, self._context.limits, self.shown)
        if os.path.getsize(target) > limit:
            raise transfer.too_large(limit)
        version_id = str(info.get("VersionId") or "")
        self.version_id = "" if version_id == "null" else version_id
        return version_text(self._client.version or info)


def remote_of(url: str, context: SourceContext) -> RemoteFile | RemoteFolder:
    """Return the file behind a URL, or the folder behind one that ends in ``/``.

    Raises :class:`ConfigError` for a URL that the options forbid or no package can read.
    """
    chain = Chain.parse(url, redact(url))
    is_folder = url.endswith("/") and not chain.inner and protocol_of(chain.url) not in WEB
    return RemoteFolder(url, context) if is_folder else RemoteFile(url, context)


class RemoteFolder(Connection):
    """A folder of an object store, or of another file system of fsspec.

    It is listed before and after its files are fetched, so that all files are of one time.
    """

    name = "skills.tar"

    def __init__(self, url: str, context: SourceContext) -> None:
        super().__init__(url, context)
        path = self._chain.url.partition("://")[2].partition("/")[2]
        if path and not all(part not in ("", ".", "..") for part in path[:-1].split("/")):
            message = f"skill source {self.shown}: has '//', '.' or '..' in its path"
            raise ConfigError(f"{message}; write it as in s3://bucket/team/skills/")

    def version(self, deadline: float) -> str | None:
        """Return a text that changes with any file below it. Return None if a file has no version.

        Raises :class:`SourceError`.
        """
        return _version_of(self._listed(deadline))

    def fetch(self, target: str, limit: int, deadline: float) -> str | None:
        """Write a tar of the files to ``target``, and return its version (see :meth:`version`).

        Args:
            target: The file to write. Other files with this name and an ending remain in its folder.
            limit: The maximum of bytes in all files.
            deadline: Monotonic seconds.

        Raises :class:`SourceError`.
        """
        have: dict[Entry, str] = {}
        listed = self._listed(deadline, limit)
        for number in range(_ROUNDS):
            wanted = [entry for entry in listed if entry.version is None or entry not in have]
            try:
                paths = [f"{target}.{number}-{place}" for place in range(len(wanted))]
                self._read_all(dict(zip(wanted, paths, strict=True)), deadline, have)
                after = self._listed(deadline, limit)
            except ChangedError:
                after = self._listed(deadline, limit)
            else:
                if after == listed:
                    return self._write(target, [Member(entry.name, have[entry], False) for entry in listed], listed)
            listed = after
        message = "changes while it is read; try again, or write new skills to another folder"
        raise self._transfer().error(message, retryable=True)

    def _write(self, target: str, members: Sequence[Member], listed: Sequence[Entry]) -> str | None:
        try:
            with open(target, "xb") as file:
                write_tar(file, members)
        except OSError as error:
            raise self._transfer(target).translated(error) from None
        return _version_of(listed)

    def _read_all(self, wanted: Mapping[Entry, str], deadline: float, have: dict[Entry, str]) -> None:
        listing = self._listing()
        with ThreadPoolExecutor(listing.at_once, "flink-skills-folder") as pool:
            jobs = [
                (entry, path, pool.submit(self._read, listing, entry, path, deadline)) for entry, path in wanted.items()
            ]
            try:
                for entry, path, job in jobs:
                    job.result()
                    have[entry] = path
            finally:
                pool.shutdown(cancel_futures=True)

    def _read(self, listing: Listing, entry: Entry, target: str, deadline: float) -> None:
        def read() -> None:
            transfer = self._transfer(target)
            progress = limited(transfer, entry.size, deadline, self._changed(entry))
            try:
                is_listed = self._waited(listing.read(entry, target, progress), deadline)
            except Exception as error:
                if is_absent(error, target):
                    raise self._changed(entry) from None
                raise
            if is_listed is False:
                raise self._changed(entry)
            size = os.path.getsize(target)
            if size > entry.size or (size < entry.size and entry.version is None):
                raise self._changed(entry)
            if size < entry.size:
                message = f"{size} bytes came of the {entry.size} of {shown(entry.name)}; try again"
                raise transfer.error(message, retryable=True)

        self._repeated(deadline, read, target)

    def _changed(self, entry: Entry) -> ChangedError:
        return ChangedError(f"skill source {self.shown}: {shown(entry.name)} changed", source=self.shown)

    def _listing(self) -> Listing:
        system, path = self._open()
        return listing_of(self._protocol, system, path, self._stall())

    def _waited(self, found: Any, deadline: float) -> Any:
        return self._finished(self._open()[0], found, deadline) if inspect.iscoroutine(found) else found

    def _listed(self, deadline: float, limit: int | None = None) -> tuple[Entry, ...]:
        """Return the files, sorted by name, after all that can be refused was refused."""
        limits, files = self._context.limits, list[Entry]()
        self.generated = []
        directories: set[str] = set()  # a store may have more than one marker for each
        # Only its names are used: whether they may stand in one archive.
        names, count, total = Extraction("", limits.total, limits), 0, 0
        page = Page([], None)
        first = True
        while first or page.rest is not None:
            first, rest, most = False, page.rest, limits.entries + 1 - count
            page = self._page(rest, most, deadline)
            count += max(1, len(page.entries))  # a page without entries counts, or a server could send them for ever
            if count > limits.entries and (len(page.entries) or page.rest is not None):
                raise self._refused(
                    f"the folder contains more than {limits.entries} files ({SkillOptions.LIMIT_ENTRIES.key})"
                )
            for entry in page.entries:
                if self._is_wanted(entry, names, directories):
                    files.append(entry)
                    total += entry.size
            if total > limits.total:
                key = SkillOptions.LIMIT_TOTAL.key
                raise self._refused(f"the files of the folder exceed {limits.total} bytes ({key})")
            if limit is not None and total > limit:
                raise self._transfer().too_large(limit)
        if not files:
            raise self._transfer().error("the folder is empty or does not exist; check the address")
        return tuple(sorted(files))

    def _page(self, rest: Any, most: int, deadline: float) -> Page:
        def page() -> Page:
            found: Page = self._waited(self._listing().page(rest, most), deadline)
            return found

        return self._repeated(deadline, page)

    def _is_wanted(self, entry: Entry, names: Extraction, directories: set[str]) -> bool:
        is_folder, limit = entry.kind == "directory", self._context.limits.file
        plain = entry.name.removesuffix("/") if is_folder else entry.name
        if plain and any(part in ("", ".") for part in plain.split("/")):
            raise self._refused(f"the name {shown(entry.name)} has '//' or '.' in it")
        if "\\" in plain:
            raise self._refused(f"the name {shown(entry.name)} has a backslash")
        if entry.kind not in ("file", "directory"):
            raise self._refused(f"{shown(entry.name)} is neither a file nor a directory, but a {entry.kind[:40]}")
        if is_folder and entry.name.endswith("/") and entry.size:
            raise self._refused(f"{shown(entry.name)} is a directory with content")
        if not is_folder and entry.size > limit:
            key = SkillOptions.LIMIT_FILE.key
            raise self._refused(f"{shown(entry.name)} has {entry.size} bytes. The limit for a file is {limit} ({key})")
        if is_folder and plain in directories:
            return False
        directories.update([plain] if is_folder else [])
        try:
            parts = names.entry(plain, is_folder=is_folder, size=0 if is_folder else entry.size)
        except ArchiveRefusedError as refused:
            raise self._refused(str(refused)) from None
        if parts is None and not is_folder and ALWAYS_EXCLUDED.isdisjoint(plain.split("/")):
            self.generated.append(shown(plain))
        return parts is not None and not is_folder

    def _refused(self, reason: str) -> Exception:
        return self._transfer().error(f"{reason}; the folder is refused")


def _version_of(listed: Sequence[Entry]) -> str | None:
    if any(entry.version is None for entry in listed):
        return None
    text = json.dumps([(entry.name, entry.size, entry.version) for entry in listed])
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"
