"""A file system behind a URL, reached through fsspec: within a deadline, with errors that hold no secret."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import Any, TypeVar

from flink_skills.endpoint import links_of, redact
from flink_skills.errors import ConfigError, SkillsError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.sources.address import AddressPolicy, protocol_of
from flink_skills.sources.base import SourceContext
from flink_skills.sources.chain import Chain
from flink_skills.sources.failures import ChangedError, DiskError, Transfer, missing_package
from flink_skills.sources.http import GuardedClient
from flink_skills.sources.patience import patient_options, settle
from flink_skills.sources.protocols import check_here, is_anonymous, library_options, options_keys

__all__ = ["WEB", "Connection", "limited", "version_text"]

T = TypeVar("T")

WEB = ("http", "https")

_ATTEMPTS = 4
_FIRST_WAIT = 0.5
# Seconds. A server that sends nothing for a quarter of the deadline, within these, is asked again.
_SHORTEST_STALL = 1.0
_MAX_STALL = 30.0
# Fields that differ between two versions of a file, as any file system names them.
_VERSION_FIELDS = (
    "ETag",
    "etag",
    "VersionId",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "mtime",
    "modificationTime",
    "md5Hash",
    "generation",
    "created",
)
# An entity tag says it all; a time beside it would also change where the same content is put there again.
_WITH_TAG = ("ETag", "etag", "VersionId")


class Connection:
    """The file system of a URL. What is transient is tried again, within one deadline for all of it.

    ``generated`` are the files that the last fetch omitted because tools write them.

    Raises :class:`ConfigError` from the constructor for a URL that the options forbid or no package can read.
    """

    def __init__(self, url: str, context: SourceContext, policy: AddressPolicy | None = None) -> None:
        self.url = url
        self.shown = redact(url)
        self.generated: list[str] = []
        self._context = context
        self._policy = policy or AddressPolicy(context.config)
        for link in links_of(url):
            self._policy.check_url(link)
        self._chain = Chain.parse(url, self.shown)
        self._protocol = protocol_of(self._chain.url)
        self._http = GuardedClient(self._policy, self.shown)
        self._opened: tuple[Any, str] | None = None
        self._check_installed()
        self._given_options()

    def _repeated(self, deadline: float, work: Callable[[], T], target: str = "") -> T:
        for attempt in range(1, _ATTEMPTS):
            try:
                return self._within(deadline, work, target)
            except (DiskError, ChangedError):
                raise
            except SourceError as error:
                wait = _FIRST_WAIT * 2 ** (attempt - 1)
                if not error.retryable or time.monotonic() + wait >= deadline:
                    raise
                time.sleep(wait)
        return self._within(deadline, work, target)

    def _open(self) -> tuple[Any, str]:
        """Return the file system of the URL and the path in it. It is created once, because this may take long."""
        if self._opened is None:
            self._opened = self._make_system()
        self._opened[0].invalidate_cache()  # of listings, which would hide a change
        return self._opened

    def _make_system(self) -> tuple[Any, str]:
        from fsspec import get_filesystem_class

        url, kind = self._chain.url, get_filesystem_class(self._protocol)
        if kind.__name__ == "ExtendedGcsFileSystem":
            # The class for zonal buckets first asks another server for the kind of the bucket.
            kind = import_module("gcsfs.core").GCSFileSystem
        options = self._given_options()
        try:
            check_here(self._protocol, options)
        except ConfigError as error:
            raise self._transfer().error(str(error)) from None
        options = patient_options(self._protocol, options, self._stall())
        options["skip_instance_cache"] = True
        if self._protocol in WEB:
            system, path = kind(**options, get_client=self._http), url
        else:
            # Options take precedence over host and version of the URL.
            system, path = kind(**{**kind._get_kwargs_from_urls(url), **options}), kind._strip_protocol(url)
        settle(self._protocol, system, self._stall())
        return system, path

    def _call(self, system: Any, name: str, deadline: float, *arguments: Any, **named: Any) -> Any:
        """Call a method of a file system. Cancel a coroutine at the deadline."""
        if not getattr(system, "async_impl", False):
            return getattr(system, name)(*arguments, **named)
        return self._finished(system, getattr(system, f"_{name}")(*arguments, **named), deadline)

    def _finished(self, system: Any, coroutine: Coroutine[Any, Any, T], deadline: float) -> T:
        """Return the result of a coroutine of a file system. Cancel it at the deadline."""
        future = asyncio.run_coroutine_threadsafe(coroutine, system.loop)
        done, _ = concurrent.futures.wait([future], max(0.0, deadline - time.monotonic()))
        if not done:
            future.cancel()
            raise self._transfer().timed_out()
        return future.result()

    def _within(self, deadline: float, work: Callable[[], T], target: str = "") -> T:
        """Run ``work`` on a new thread, because no library below keeps to one deadline."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise self._transfer().timed_out()
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="flink-skills-download", daemon=True).start()
        if not concurrent.futures.wait([future], remaining).done:
            raise self._transfer().timed_out()
        try:
            return future.result()
        except SkillsError:
            raise
        except Exception as error:
            transfer = self._transfer(target)
            raise (transfer.timed_out() if time.monotonic() >= deadline else transfer.translated(error)) from None

    def _transfer(self, target: str = "") -> Transfer:
        seconds = self._context.config.get(SkillOptions.SOURCE_TIMEOUT)
        anonymous = is_anonymous(self._protocol, self._given_options())
        disk_error = self._context.store.disk_error
        return Transfer(self.shown, self._protocol, anonymous, target, seconds, self._stall(), disk_error)

    def _stall(self) -> float:
        quarter = self._context.config.get(SkillOptions.SOURCE_TIMEOUT) / _ATTEMPTS
        return max(_SHORTEST_STALL, min(_MAX_STALL, quarter))

    def _given_options(self) -> dict[str, Any]:
        for key in options_keys(self._protocol):
            if given := self._context.file_system_options(key):
                return library_options(self._protocol, given)
        return library_options(self._protocol, {})

    def _check_installed(self) -> None:
        from fsspec import get_filesystem_class

        try:
            get_filesystem_class(self._protocol)
        except ImportError:
            raise ConfigError(f"skill source {self.shown}: {missing_package(self._protocol)}") from None
        except ValueError:
            message = f"skill source {self.shown}: nothing here knows the protocol {self._protocol!r}"
            raise ConfigError(f"{message}; use https, s3, file, or install an fsspec package for it") from None


def limited(transfer: Transfer, limit: int, deadline: float, too_large: SourceError | None = None) -> Any:
    """A callback for fsspec that stops a download that is too long, in bytes (with ``too_large``) or in time."""
    from fsspec.callbacks import Callback

    class Limited(Callback):  # type: ignore[misc]
        """Receives the announced size and each piece."""

        def set_size(self, size: int | None) -> None:
            super().set_size(size)
            self._check(size or 0)

        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            self._check(self.value)

        def absolute_update(self, value: int) -> None:
            super().absolute_update(value)
            self._check(value)

        def _check(self, size: int) -> None:
            if size > limit:
                raise too_large or transfer.too_large(limit)
            if time.monotonic() > deadline:
                raise transfer.timed_out()

    return Limited()


def version_text(info: Mapping[str, Any]) -> str | None:
    """Return what distinguishes this version of a file from others. Return None if ``info`` does not have it."""
    found = {name: str(info[name]) for name in _VERSION_FIELDS if info.get(name)}
    tag = found.get("ETag") or found.get("etag") or ""
    if tag and not tag.startswith("W/"):
        found = {name: value for name, value in found.items() if name in _WITH_TAG}
    size = info.get("size", info.get("Content-Length"))
    return json.dumps({**found, "size": str(size)}, sort_keys=True) if found else None
