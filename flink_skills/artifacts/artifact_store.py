"""Artifacts: files that turns keep, each version once, whatever is tried again.

<skills.artifacts.dir>/<hash of the owner>/<plain name>-<hash of the name>/
    <version>/<plain name>    the content; the version is the beginning of its sha256
    <version>.json            name, media type and size; written last, so a version with it is complete
    latest.json               which version was saved last
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from flink_skills.artifacts.artifact_names import (
    VERSION,
    ArtifactError,
    Location,
    check_name,
    folder_of,
    owner_folder,
    plain_name,
)
from flink_skills.endpoint import links_of, redact
from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.address import protocol_of
from flink_skills.sources.locking import PlantedError, check_folders

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_log = logging.getLogger("flink_skills.artifacts")
_LATEST = "latest"
_MAX_RECORD = 64 << 10
_BINARY = "application/octet-stream"
_LOCAL = ("", "file", "local")
_READ_ONLY = ("http", "https", "zip", "tar", "data", "git", "github", "gist", "ftp")


class LocalFolder(Location):
    """Folders and files are for the worker's own user alone. See :class:`Location`."""

    def __init__(self, path: str) -> None:
        self.shown = os.path.normpath(path)

    def write(self, name: str, data: bytes) -> None:
        target = os.path.join(self.shown, name)
        folder = os.path.dirname(target)
        building = os.path.join(folder, f".{secrets.token_hex(8)}.new")
        with self._failing("written to", FileNotFoundError):
            check_folders(self.shown)
            _make_folder(folder)
            try:
                with open(os.open(building, _NEW, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(building, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(building)
                raise
            # Later writes can rely on this one, even after a loss of power.
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read(self, name: str, limit: int) -> bytes:
        with self._failing("read"):
            check_folders(self.shown)
            # A pipe in its place must not block.
            descriptor = os.open(os.path.join(self.shown, name), _READ)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise PlantedError(os.path.join(self.shown, name), "the path is not a regular file")
                return file.read(limit)

    def remove(self, folder: str) -> None:
        with self._failing("erased"), suppress(FileNotFoundError):
            check_folders(self.shown)
            shutil.rmtree(os.path.join(self.shown, folder))

    def names(self, folder: str) -> list[str]:
        with self._failing("listed"), suppress(FileNotFoundError):
            return sorted(os.listdir(os.path.join(self.shown, folder)))
        return []

    @contextmanager
    def _failing(self, what: str, *more: type[OSError]) -> Iterator[None]:
        """Translate errors, but not the one for what is not there: that is an answer, unless it is among ``more``."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not isinstance(error, more):
                raise
            reason = error.strerror or type(error).__name__
            if isinstance(error, PlantedError):
                reason = f"{error.path}: {reason}"
            message = f"the artifact store {self.shown} cannot be {what}: {reason}"
            raise ArtifactError(f"{message}; check its rights and its space", "unavailable") from error


def _make_folder(path: str) -> None:
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)


@dataclass(frozen=True)
class Artifact:
    """A version of an artifact. ``ref`` is how tools name it: ``artifact://name@version``."""

    name: str
    version: str
    ref: str
    mime_type: str
    size_bytes: int


class ArtifactStore:
    """The artifacts of a job, in ``skills.artifacts.dir``. Methods block; any thread may call them.

    A version is named after its content, so saving the same again writes nothing and gives the same version. Owners
    (see :func:`~flink_skills.artifacts.owner_of`) do not see each other's.

    >>> store = ArtifactStore.open(SkillConfig({"skills.artifacts.dir": "memory://artifacts"}))
    >>> store.save("agent", "report.txt", b"done", "text/plain").ref
    'artifact://report.txt@a4c3ed04a95a3da1'
    """

    def __init__(self, location: Location, max_size: int) -> None:
        self._location = location
        self.max_size = max_size
        self._failing = False

    @classmethod
    def open(cls, config: SkillConfig) -> ArtifactStore | None:
        """The store that the options ask for, None without ``skills.artifacts.dir``. Raises :class:`ConfigError`."""
        url = config.get(SkillOptions.ARTIFACTS_DIR).strip()
        return cls(open_location(url, config), config.get(SkillOptions.ARTIFACTS_MAX_SIZE)) if url else None

    def save(self, owner: str, name: str, data: bytes, mime_type: str = "") -> Artifact:
        """Keep ``data`` as ``name``, as its newest version. Raises :class:`ArtifactError`.

        ``mime_type`` is that of the content, where it is not known bytes without meaning.
        """
        check_name(name)
        self._check_size(name, len(data))
        try:
            saved = self._save(owner, name, data, mime_type)
        except ArtifactError as error:
            # Models are told, and go on: an operator would not hear of it. Once, and not for each file of each turn.
            if not self._failing:
                _log.warning("artifacts cannot be saved: %s", error)
            self._failing = True
            raise
        if self._failing:
            _log.info("artifacts are saved again in %s", self._location.shown)
            self._failing = False
        return saved

    def _save(self, owner: str, name: str, data: bytes, mime_type: str) -> Artifact:
        version = hashlib.sha256(data).hexdigest()[:16]
        folder = folder_of(owner, name)
        found = self._record(folder, version)
        if found is None or not self._is_whole(folder, _artifact(name, version, found)):
            if data:
                self._location.write(f"{folder}/{version}/{plain_name(name)}", data)
            found = {"name": name, "mime_type": mime_type or _BINARY, "size": len(data)}
            self._location.write(f"{folder}/{version}.json", _to_json(found))
        if self._latest(folder) != version:
            self._location.write(f"{folder}/{_LATEST}.json", _to_json({"name": name, "version": version}))
        return _artifact(name, version, found)

    def load(self, owner: str, name: str, version: str | None = None) -> tuple[Artifact, bytes]:
        """A version and its content; None: the one that was saved last. Raises :class:`ArtifactError`."""
        check_name(name)
        folder = folder_of(owner, name)
        wanted = (self._latest(folder) or "") if version in (None, "", _LATEST) else str(version)
        found = self._record(folder, wanted) if VERSION.fullmatch(wanted) else None
        if found is None:
            raise self._missing(owner, name, version)
        artifact = _artifact(name, wanted, found)
        self._check_size(name, artifact.size_bytes)
        return artifact, self._content(folder, artifact)

    def newest(self, owner: str, name: str) -> str | None:
        """The version that was saved last; None for an artifact that there is not. Raises :class:`ArtifactError`."""
        check_name(name)
        return self._latest(folder_of(owner, name))

    def versions(self, owner: str, name: str) -> tuple[str, ...]:
        """The versions of an artifact, in no order that means anything. Raises :class:`ArtifactError`."""
        check_name(name)
        names = (found.partition(".") for found in self._location.names(folder_of(owner, name)))
        return tuple(version for version, _, end in names if end == "json" and VERSION.fullmatch(version))

    def forget(self, owner: str) -> None:
        """Erase all artifacts of an owner, with all versions. Raises :class:`ArtifactError`."""
        self._location.remove(owner_folder(owner))

    def _content(self, folder: str, artifact: Artifact) -> bytes:
        if not artifact.size_bytes:
            return b""
        try:
            path = f"{folder}/{artifact.version}/{plain_name(artifact.name)}"
            data = self._location.read(path, artifact.size_bytes + 1)
        except FileNotFoundError:
            data = b""
        if hashlib.sha256(data).hexdigest()[:16] != artifact.version:
            message = f"{artifact.ref} in {self._location.shown} is not what was saved"
            raise ArtifactError(f"{message}: the file was changed or removed; save it again", "changed")
        return data

    def _is_whole(self, folder: str, artifact: Artifact) -> bool:
        """Whether the content is there as it was saved; else it is written once more."""
        try:
            self._content(folder, artifact)
        except ArtifactError as error:
            if error.reason != "changed":
                raise
            return False
        return True

    def _latest(self, folder: str) -> str | None:
        found = self._read_json(f"{folder}/{_LATEST}.json")
        version = str(found.get("version", "")) if found else ""
        return version if VERSION.fullmatch(version) else None

    def _record(self, folder: str, version: str) -> dict[str, Any] | None:
        found = self._read_json(f"{folder}/{version}.json")
        return found if found and isinstance(found.get("size"), int) and found["size"] >= 0 else None

    def _read_json(self, path: str) -> dict[str, Any] | None:
        """A record; None where there is none that was written completely."""
        try:
            found = json.loads(self._location.read(path, _MAX_RECORD))
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _check_size(self, name: str, size: int) -> None:
        if size > self.max_size:
            key = SkillOptions.ARTIFACTS_MAX_SIZE.key
            message = f"artifact {name!r} has {size} bytes; the limit is {self.max_size}"
            raise ArtifactError(f"{message}: make it smaller, or raise {key}", "too-large")

    def _missing(self, owner: str, name: str, version: str | None) -> ArtifactError:
        known = sorted(self.versions(owner, name))
        if not known:
            return ArtifactError(f"there is no artifact {name!r}: save it first, or check its name", "missing")
        there = f"there are: {', '.join(known[:5])}" + (" …" if len(known) > 5 else "")
        return ArtifactError(f"artifact {name!r} has no version {version or _LATEST!r}: {there}", "missing")


def _artifact(name: str, version: str, found: dict[str, Any]) -> Artifact:
    mime_type = str(found.get("mime_type") or _BINARY)
    return Artifact(name, version, f"artifact://{name}@{version}", mime_type, int(found["size"]))


def _to_json(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, sort_keys=True).encode()


def open_location(url: str, config: SkillConfig) -> Location:
    """Return the location of ``url``, an absolute path or a URL for fsspec, without any access to it.

    Raises :class:`ConfigError` if the location or ``skills.source.options`` cannot be used.
    """
    place = f"option {SkillOptions.ARTIFACTS_DIR.key}: {redact(url)!r}"
    protocol = protocol_of(url)
    if len(links_of(url)) > 1 or protocol in _READ_ONLY:
        raise ConfigError(f"{place} cannot be written to: use s3://…, gs://…, hdfs://… or file:///…")
    if protocol not in _LOCAL:
        from flink_skills.artifacts.remote import RemoteLocation

        return RemoteLocation(url, protocol, config, place)
    host, path = _local(url) if protocol else ("", url)
    if host not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{place} is not an absolute path: write file:///path or /path")
    return LocalFolder(path)


def _local(url: str) -> tuple[str, str]:
    """Return the host and the path of a file: URL. The host is "?" if it cannot be read."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket that opens no IPv6 address
        return "?", ""
    return parts.netloc, unquote(parts.path)
