"""Artifacts in an object store or another file system that fsspec reaches."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from flink_skills.artifacts.artifact_names import ArtifactError, Location
from flink_skills.endpoint import redact
from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.protocols import is_anonymous
from flink_skills.sources.remote_system import RemoteSystem
from flink_skills.sources.secrets import has_references, unchained_errors
from flink_skills.sources.skill_source import SourceContext

T = TypeVar("T")

# There a file appears when it is complete. Elsewhere it is written beside its place and moved.
_COMPLETE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "memory"})


class RemoteLocation(RemoteSystem, Location):
    """A directory behind a URL. Calls that fail for a moment are repeated until ``skills.source.timeout``.

    Raises :class:`ConfigError` for what is wrong without a connection. See :class:`Location`.
    """

    def __init__(self, url: str, protocol: str, config: SkillConfig, place: str) -> None:
        super().__init__(url, redact(url).rstrip("/"), protocol, SourceContext(config))
        self._check_installed(place, "s3")
        if not has_references(config.get(SkillOptions.SOURCE_OPTIONS)):
            self._is_anonymous = is_anonymous(protocol, self._given_options(expanded=False))

    def write(self, name: str, data: bytes) -> None:
        def write(system: Any, folder: str) -> None:
            target = f"{folder}/{name}"
            try:
                if self._protocol in _COMPLETE:
                    system.pipe_file(target, data)
                else:
                    self._write_aside(system, target, data)
            except FileNotFoundError as error:  # that can only be the bucket
                raise self._transfer().translated(error) from None

        self._result(write)

    def read(self, name: str, limit: int) -> bytes:
        def read(system: Any, folder: str) -> bytes:
            return bytes(system.cat_file(f"{folder}/{name}", start=0, end=limit))

        return self._result(read)

    def names(self, folder: str) -> list[str]:
        def names(system: Any, root: str) -> list[str]:
            with suppress(FileNotFoundError):
                found = system.ls(f"{root}/{folder}", detail=False)
                return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)
            return []

        return self._result(names)

    def remove(self, folder: str) -> None:
        def remove(system: Any, root: str) -> None:
            with suppress(FileNotFoundError):
                system.rm(f"{root}/{folder}", recursive=True)

        self._result(remove)

    def _write_aside(self, system: Any, target: str, data: bytes) -> None:
        building = f"{target}.{secrets.token_hex(8)}.new"
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
        try:
            system.pipe_file(building, data)
            self._move(system, building, target)
        except BaseException:
            with suppress(Exception):  # no reader uses the name of the remains
                system.rm_file(building)
            raise

    @staticmethod
    def _move(system: Any, building: str, target: str) -> None:
        try:
            system.mv(building, target)
        except FileExistsError:  # some do not replace
            system.rm_file(target)
            system.mv(building, target)

    def _result(self, work: Callable[[Any, str], T]) -> T:
        """Return the result of ``work``, which receives the file system and the path of the directory."""

        def found() -> tuple[T] | None:
            system, path = self._open()
            try:
                return (work(system, path.rstrip("/")),)
            except FileNotFoundError:
                return None

        with unchained_errors():
            try:
                result = self._repeated(time.monotonic() + self._seconds, found)
            except SourceError as error:
                text = str(error).replace("skill source ", "artifact store ", 1)
                raise ArtifactError(text, "unavailable", retryable=error.retryable) from None
        if result is None:
            raise FileNotFoundError(self.shown)
        return result[0]
