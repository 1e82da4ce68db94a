"""Fetch one file through fsspec: within a deadline, within a size, with errors that hold no secret."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from flink_skills.endpoint import links_of, redact
from flink_skills.errors import ConfigError, SkillsError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.sources.address import AddressPolicy, protocol_of
from flink_skills.sources.base import SourceContext
from flink_skills.sources.chain import Chain
from flink_skills.sources.encoding import decode
from flink_skills.sources.failures import DiskError, Transfer, missing_package
from flink_skills.sources.http import GuardedClient
from flink_skills.sources.patience import patient_options, settle
from flink_skills.sources.protocols import check_here, is_anonymous, library_options, options_keys

__all__ = ["RemoteFile"]

T = TypeVar("T")

_ATTEMPTS = 4
_FIRST_WAIT = 0.5
# Seconds. A server that sends nothing for a quarter of the deadline, within these, is asked again.
_SHORTEST_STALL = 1.0
_LONGEST_STALL = 30.0
_WEB = ("http", "https")
# What tells one version of a file from another, by any file system's name for it.
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


class RemoteFile:
    """A URL that is fetched through fsspec, also one inside archives (``zip://inner.zip::s3://…``).

    ``name`` is the file's name. Raises :class:`ConfigError` from the constructor for a URL that the options forbid
    or no package can read. ``policy`` are other rules for addresses than those of the options alone. ``version_id`` is
    the version of the object that was fetched, "" where its store keeps none.
    """

    def __init__(self, url: str, context: SourceContext, *, policy: AddressPolicy | None = None) -> None:
        self.url = url
        self.shown = redact(url)
        self._context = context
        self.version_id = ""
        self._policy = policy or AddressPolicy(context.config)
        for link in links_of(url):
            self._policy.check_url(link)
        self._chain = Chain.parse(url, self.shown)
        self._protocol = protocol_of(self._chain.url)
        inner = self._chain.inner
        self.name = (inner[-1][1] if inner else unquote(urlsplit(self._chain.url).path)).rpartition("/")[2]
        self._http = GuardedClient(self._policy, self.shown)
        self._opened: tuple[Any, str] | None = None
        self._check_installed()
        self._given_options()

    def version(self, deadline: float) -> str | None:
        """What changes with the content (ETag, time, …) as text; None where the server does not say.

        Raises :class:`SourceError` where the file cannot be had at all.
        """
        if self._protocol not in _WEB:
            return self._repeated(deadline, lambda: _version_text(self._info(deadline)))
        self._http.head_only = True
        try:
            info = self._within(deadline, lambda: self._info(deadline))
        except SourceError:
            return None  # the download says what is wrong, if it is more than a server without HEAD
        finally:
            self._http.head_only = False
        return _version_text(self._http.version or info)

    def fetch(self, target: str, limit: int, deadline: float) -> str | None:
        """Write the file's content to ``target``, at most ``limit`` bytes; its version (see :meth:`version`).

        Transient failures are tried again until the deadline (monotonic seconds). Raises
        :class:`SourceError`.
        """
        return self._repeated(deadline, lambda: self._fetch_once(target, limit, deadline), target)

    def _repeated(self, deadline: float, work: Callable[[], T], target: str = "") -> T:
        for attempt in range(1, _ATTEMPTS):
            try:
                return self._within(deadline, work, target)
            except DiskError:
                raise
            except SourceError as error:
                wait = _FIRST_WAIT * 2 ** (attempt - 1)
                if not error.retryable or time.monotonic() + wait >= deadline:
                    raise
                time.sleep(wait)
        return self._within(deadline, work, target)

    def _info(self, deadline: float) -> dict[str, Any]:
        system, path = self._open()
        info: dict[str, Any] = self._call(system, "info", deadline, path)
        return info

    def _fetch_once(self, target: str, limit: int, deadline: float) -> str | None:
        transfer = self._transfer(target)
        system, path = self._open()
        # Asked before the transfer, so that a change in between shows the next time. A web server says it
        # with the file itself.
        info = {} if self._protocol in _WEB else self._call(system, "info", deadline, path)
        if info.get("type") == "directory":
            raise transfer.error("is a folder; give an archive of it")
        if (info.get("size") or 0) > limit:
            raise transfer.too_large(limit)
        self._call(system, "get_file", deadline, path, target, callback=_limited(transfer, limit, deadline))
        if os.path.isdir(target):
            raise transfer.error("is a folder; give an archive of it")
        decode(target, self.name, self._http.encoding, transfer, limit)
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
        return _version_text(self._http.version or info)

    def _open(self) -> tuple[Any, str]:
        """The file system of the URL and the path there; made once, since its making may take longer than its use."""
        if self._opened is None:
            self._opened = self._make_system()
        self._opened[0].invalidate_cache()  # of listings, which would hide a change
        return self._opened

    def _make_system(self) -> tuple[Any, str]:
        from fsspec import get_filesystem_class

        url, kind = self._chain.url, get_filesystem_class(self._protocol)
        if kind.__name__ == "ExtendedGcsFileSystem":
            # It is for zonal buckets, and first asks another server of what kind the bucket is.
            kind = import_module("gcsfs.core").GCSFileSystem
        options = self._given_options()
        try:
            check_here(self._protocol, options)
        except ConfigError as error:
            raise self._transfer().error(str(error)) from None
        options = patient_options(self._protocol, options, self._stall())
        options["skip_instance_cache"] = True
        if self._protocol in _WEB:
            system, path = kind(**options, get_client=self._http), url
        else:
            # What the URL says of host and version; options win.
            system, path = kind(**{**kind._get_kwargs_from_urls(url), **options}), kind._strip_protocol(url)
        settle(self._protocol, system, self._stall())
        return system, path

    def _call(self, system: Any, name: str, deadline: float, *arguments: Any, **named: Any) -> Any:
        """Call a method of a file system; where it is a coroutine, end it at the deadline."""
        if not getattr(system, "async_impl", False):
            return getattr(system, name)(*arguments, **named)
        coroutine = getattr(system, f"_{name}")(*arguments, **named)
        future = asyncio.run_coroutine_threadsafe(coroutine, system.loop)
        done, _ = concurrent.futures.wait([future], max(0.0, deadline - time.monotonic()))
        if not done:
            future.cancel()
            raise self._transfer().timed_out()
        return future.result()

    def _within(self, deadline: float, work: Callable[[], T], target: str = "") -> T:
        """Run ``work`` on a thread of its own, since no library below keeps to one deadline."""
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
        return max(_SHORTEST_STALL, min(_LONGEST_STALL, quarter))

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


def _limited(transfer: Transfer, limit: int, deadline: float) -> Any:
    """A callback for fsspec that stops a download that is too long, in bytes or in time."""
    from fsspec.callbacks import Callback

    class Limited(Callback):  # type: ignore[misc]
        """Told of the size that is announced, and of each piece."""

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
                raise transfer.too_large(limit)
            if time.monotonic() > deadline:
                raise transfer.timed_out()

    return Limited()


def _version_text(info: Mapping[str, Any]) -> str | None:
    found = {name: str(info[name]) for name in _VERSION_FIELDS if info.get(name)}
    tag = found.get("ETag") or found.get("etag") or ""
    if tag and not tag.startswith("W/"):
        found = {name: value for name, value in found.items() if name in _WITH_TAG}
    size = info.get("size", info.get("Content-Length"))
    return json.dumps({**found, "size": str(size)}, sort_keys=True) if found else None
