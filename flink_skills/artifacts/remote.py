"""Artifacts in an object store or another file system that fsspec reaches."""

from __future__ import annotations

import concurrent.futures
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from flink_skills.artifacts.failures import ArtifactError
from flink_skills.artifacts.location import Location
from flink_skills.endpoint import redact
from flink_skills.errors import ConfigError, SkillsError, SourceError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.base import SourceContext
from flink_skills.sources.failures import Transfer, missing_package
from flink_skills.sources.patience import patient_options, settle
from flink_skills.sources.protocols import check_here, is_anonymous, library_options, options_keys
from flink_skills.sources.secrets import has_references, unchained_errors

__all__ = ["RemoteFolder"]

T = TypeVar("T")

# There a file appears when it is complete. Elsewhere it is written beside its place and moved.
_COMPLETE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "memory"})
_ATTEMPTS = 4
_FIRST_WAIT = 0.25
_SHORTEST_STALL, _MAX_STALL = 1.0, 30.0


class RemoteFolder(Location):
    """A folder behind a URL. What fails for a moment is tried again until ``skills.source.timeout``.

    Raises :class:`ConfigError` for what is wrong without a connection. See :class:`Location`.
    """

    def __init__(self, url: str, protocol: str, config: SkillConfig, place: str) -> None:
        self.shown = redact(url).rstrip("/")
        self._url = url
        self._protocol = protocol
        self._context = SourceContext(config)
        self._seconds: float = config.get(SkillOptions.SOURCE_TIMEOUT)
        self._lock = threading.Lock()
        self._opened: tuple[Any, str] | None = None
        self._check(place)

    def write(self, name: str, data: bytes) -> None:
        def write() -> None:
            system, folder = self._open()
            target = f"{folder}/{name}"
            try:
                if self._protocol in _COMPLETE:
                    system.pipe_file(target, data)
                else:
                    self._write_aside(system, target, data)
            except FileNotFoundError as error:  # that can only be the bucket
                raise self._transfer().translated(error) from None

        self._repeated(write)

    def read(self, name: str, limit: int) -> bytes:
        def read() -> bytes:
            system, folder = self._open()
            return bytes(system.cat_file(f"{folder}/{name}", start=0, end=limit))

        return self._repeated(read)

    def names(self, folder: str) -> list[str]:
        def names() -> list[str]:
            system, root = self._open()
            system.invalidate_cache()
            with suppress(FileNotFoundError):
                found = system.ls(f"{root}/{folder}", detail=False)
                return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)
            return []

        return self._repeated(names)

    def _write_aside(self, system: Any, target: str, data: bytes) -> None:
        building = f"{target}.{secrets.token_hex(8)}.new"
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
        try:
            system.pipe_file(building, data)
            self._move(system, building, target)
        except BaseException:
            with suppress(Exception):  # what is left has a name that nobody asks for
                system.rm_file(building)
            raise

    @staticmethod
    def _move(system: Any, building: str, target: str) -> None:
        try:
            system.mv(building, target)
        except FileExistsError:  # some do not replace
            system.rm_file(target)
            system.mv(building, target)

    def _repeated(self, work: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._seconds
        with unchained_errors():
            for attempt in range(1, _ATTEMPTS):
                try:
                    return self._within(deadline, work)
                except ArtifactError as error:
                    wait = _FIRST_WAIT * 2 ** (attempt - 1)
                    if not error.retryable or time.monotonic() + wait >= deadline:
                        raise
                    time.sleep(wait)
            return self._within(deadline, work)

    def _within(self, deadline: float, work: Callable[[], T]) -> T:
        """Run ``work`` on a thread of its own, since no library below keeps to one deadline."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="flink-skills-artifacts", daemon=True).start()
        if not concurrent.futures.wait([future], max(0.0, deadline - time.monotonic())).done:
            raise self._failure(self._transfer().timed_out())
        try:
            return future.result()
        except FileNotFoundError:
            raise FileNotFoundError(self.shown) from None
        except SourceError as error:
            raise self._failure(error) from None
        except SkillsError:
            raise
        except Exception as error:
            raise self._failure(self._transfer().translated(error)) from None

    def _failure(self, error: SourceError) -> ArtifactError:
        text = str(error).replace("skill source ", "artifact store ", 1)
        return ArtifactError(text, "unavailable", retryable=error.retryable)

    def _open(self) -> tuple[Any, str]:
        with self._lock:
            if self._opened is None:
                self._opened = self._make_system()
            return self._opened

    def _make_system(self) -> tuple[Any, str]:
        from fsspec import get_filesystem_class

        kind = get_filesystem_class(self._protocol)
        options = self._given_options(expanded=True)
        try:
            check_here(self._protocol, options)
        except ConfigError as error:
            raise self._transfer().error(str(error)) from None
        stall = self._stall()
        options = patient_options(self._protocol, options, stall)
        if self._protocol != "memory":
            options["skip_instance_cache"] = True
        system = kind(**{**kind._get_kwargs_from_urls(self._url), **options})
        settle(self._protocol, system, stall)
        return system, str(kind._strip_protocol(self._url)).rstrip("/")

    def _transfer(self) -> Transfer:
        anonymous = is_anonymous(self._protocol, self._given_options(expanded=False))
        stall, disk_error = self._stall(), self._context.store.disk_error
        return Transfer(self.shown, self._protocol, anonymous, "", self._seconds, stall, disk_error)

    def _stall(self) -> float:
        return max(_SHORTEST_STALL, min(_MAX_STALL, self._seconds / _ATTEMPTS))

    def _given_options(self, *, expanded: bool) -> dict[str, Any]:
        for key in options_keys(self._protocol):
            if given := self._context.file_system_options(key, expanded=expanded):
                return library_options(self._protocol, given)
        return library_options(self._protocol, {})

    def _check(self, place: str) -> None:
        from fsspec import get_filesystem_class

        try:
            get_filesystem_class(self._protocol)
        except ImportError:
            raise ConfigError(f"{place}: {missing_package(self._protocol)}") from None
        except ValueError:
            message = f"{place}: nothing here knows the protocol {self._protocol!r}"
            raise ConfigError(f"{message}; use s3, file, or install an fsspec package for it") from None
        if not has_references(self._context.config.get(SkillOptions.SOURCE_OPTIONS)):
            self._given_options(expanded=False)
