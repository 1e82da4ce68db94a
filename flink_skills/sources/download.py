"""Fetch one file through fsspec: within a deadline, within a size, with errors that hold no secret."""

# Paths are text here: they come from listings and descriptors by the thousand, where pathlib costs more than
# the calls themselves.
# ruff: noqa: PTH112, PTH202

from __future__ import annotations

import concurrent.futures
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flink_skills.errors import ConfigError, SkillsError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.sources.address import AddressPolicy, links_of, protocol_of, redact
from flink_skills.sources.base import SourceContext
from flink_skills.sources.http import GuardedClient

__all__ = ["RemoteFile"]

T = TypeVar("T")

_ATTEMPTS = 4
_FIRST_WAIT = 0.5
_WEB = ("http", "https")
_INSTALL = {
    "http": "'flink-skills[http]'",
    "https": "'flink-skills[http]'",
    "s3": "'flink-skills[s3]'",
    "s3a": "'flink-skills[s3]'",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "oss": "ossfs",
    "hdfs": "pyarrow",
    "webhdfs": "requests",
    "sftp": "paramiko",
}
# What tells one version of a file from another, by any file system's name for it.
_VERSION_FIELDS = (
    "ETag",
    "etag",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "mtime",
    "md5Hash",
    "generation",
    "created",
)


class RemoteFile:
    """A URL that is fetched through fsspec.

    Raises :class:`ConfigError` from the constructor for a URL that the options forbid or no package can read.
    """

    def __init__(self, url: str, context: SourceContext) -> None:
        self.url = url
        self.shown = redact(url)
        self._context = context
        self._policy = AddressPolicy(context.config)
        for link in links_of(url):
            self._policy.check_url(link)
        self._http = GuardedClient(self._policy, self.shown)
        self._options = self._file_system_options()
        self._check_installed()

    def version(self, deadline: float) -> str | None:
        """What changes with the content (ETag, time, …) as text; None where the server does not say."""
        self._http.head_only = True
        try:
            info = self._within(deadline, self._info)
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
        for attempt in range(1, _ATTEMPTS):
            try:
                return self._within(deadline, lambda: self._fetch_once(target, limit, deadline))
            except SourceError as error:
                wait = _FIRST_WAIT * 2 ** (attempt - 1)
                if not error.retryable or time.monotonic() + wait >= deadline:
                    raise
                time.sleep(wait)
        return self._within(deadline, lambda: self._fetch_once(target, limit, deadline))

    def _info(self) -> dict[str, Any]:
        system, path = self._open()
        info: dict[str, Any] = system.info(path)
        return info

    def _fetch_once(self, target: str, limit: int, deadline: float) -> str | None:
        from fsspec.callbacks import Callback

        shown = self.shown

        class Limited(Callback):  # type: ignore[misc]
            """Stops a download that is too long, in bytes or in time."""

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
                    message = f"skill source {shown}: is larger than the limit of {limit} bytes"
                    raise SourceError(message, source=shown)
                if time.monotonic() > deadline:
                    raise TimeoutError

        system, path = self._open()
        # Asked before the transfer, so that a change in between shows the next time. A web server says it
        # with the file itself.
        info = {} if protocol_of(self.url) in _WEB else system.info(path)
        system.get_file(path, target, callback=Limited())
        if os.path.isdir(target):
            raise SourceError(f"skill source {shown}: is a folder; give an archive of it", source=shown)
        if os.path.getsize(target) > limit:
            raise SourceError(f"skill source {shown}: is larger than the limit of {limit} bytes", source=shown)
        return _version_text(self._http.version or info)

    def _open(self) -> tuple[Any, str]:
        from fsspec import filesystem
        from fsspec.core import url_to_fs

        protocol = protocol_of(self.url)
        if protocol in _WEB and len(links_of(self.url)) == 1:
            # Without url_to_fs, which takes the '::' of an IPv6 address for a chain.
            return filesystem(protocol, **self._options[protocol]), self.url
        system, path = url_to_fs(self.url, **self._options)
        return system, path

    def _within(self, deadline: float, work: Callable[[], T]) -> T:
        """Run ``work`` on a thread of its own, since no library below keeps to one deadline."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="flink-skills-download", daemon=True).start()
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except SkillsError:
            raise
        except concurrent.futures.TimeoutError:
            raise self._timed_out() from None
        except Exception as error:
            raise self._translated(error) from None

    def _timed_out(self) -> SourceError:
        seconds = self._context.config.get(SkillOptions.SOURCE_TIMEOUT)
        key = SkillOptions.SOURCE_TIMEOUT.key
        message = f"skill source {self.shown}: was not read within {seconds:g} s; try again, or raise {key}"
        return SourceError(message, source=self.shown, retryable=True)

    def _translated(self, error: Exception) -> SourceError:
        """One error type for all libraries. Their texts quote URLs and headers: none of it is passed on."""
        refusal = _cause(error, SourceError)
        if refusal is not None:
            return refusal
        if _cause(error, TimeoutError) is not None:
            return self._timed_out()
        status, name = getattr(error, "status", None), type(error).__name__
        if isinstance(error, FileNotFoundError) or status in (404, 410):
            reason, retryable = "does not exist; check the address", False
        elif isinstance(error, PermissionError) or status in (401, 403):
            reason, retryable = "access is refused; check the credentials of this machine", False
        elif isinstance(error, ImportError):
            return SourceError(self._install_hint(protocol_of(self.url)), source=self.shown)
        elif isinstance(status, int):
            retryable = status >= 500 or status in (408, 425, 429)
            reason = f"the server answered {status}" + ("; try again" if retryable else "; check the address")
        elif "Credentials" in name:
            reason, retryable = (
                "there are no credentials for it; set them in the environment of this machine",
                False,
            )
        elif isinstance(error, (TypeError, AttributeError, LookupError, ValueError)) or "Validation" in name:
            key = SkillOptions.SOURCE_OPTIONS.key
            reason, retryable = f"cannot be opened ({name}); check {key}", False
        else:
            # Resets, cut bodies and name look-ups have as many types as there are libraries.
            reason, retryable = f"the transfer failed ({name}); try again", True
        return SourceError(f"skill source {self.shown}: {reason}", source=self.shown, retryable=retryable)

    def _file_system_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for link in links_of(self.url):
            protocol = protocol_of(link) or link.lower()
            chosen = self._context.file_system_options(protocol)
            if protocol in _WEB:
                chosen["get_client"] = self._http
            chosen["skip_instance_cache"] = True
            options[protocol] = chosen
        return options

    def _check_installed(self) -> None:
        from fsspec import get_filesystem_class

        for link in links_of(self.url):
            protocol = protocol_of(link) or link.lower()
            try:
                get_filesystem_class(protocol)
            except ImportError:
                raise ConfigError(self._install_hint(protocol)) from None
            except ValueError:
                message = f"skill source {self.shown}: nothing here knows the protocol {protocol!r}"
                raise ConfigError(f"{message}; use https, s3, file, or install an fsspec package for it") from None

    def _install_hint(self, protocol: str) -> str:
        package = _INSTALL.get(protocol, f"<the fsspec package for {protocol}>")
        return f"skill source {self.shown}: {protocol} needs a package that is missing: pip install {package}"


def _version_text(info: Mapping[str, Any]) -> str | None:
    found = {name: str(info[name]) for name in _VERSION_FIELDS if info.get(name)}
    size = info.get("size", info.get("Content-Length"))
    return json.dumps({**found, "size": str(size)}, sort_keys=True) if found else None


def _cause(error: BaseException | None, kind: type[T]) -> T | None:
    """``error`` or one that it was raised from or during, of a kind."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, kind):
            return error
        error = error.__cause__ or error.__context__
        seen += 1
    return None
