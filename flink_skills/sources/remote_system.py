"""File system behind a URL, reached through fsspec: within a deadline, with errors that contain no secret.

A URL with ``::``, such as ``zip://skills/inner.zip::s3://bucket/outer.zip``, is fetched entirely and unpacked here,
under the same rules as any archive. fsspec would read parts of it over the network, without a size limit, a version and
a retry.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from flink_skills.endpoint import links_of, redact, redact_text
from flink_skills.errors import ConfigError, SkillsError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill import Limits
from flink_skills.sources.address import AddressPolicy, host_of, protocol_of
from flink_skills.sources.archive import ArchiveKind, archive_kind, unpack
from flink_skills.sources.entries import ArchiveRefusedError
from flink_skills.sources.protocols import (
    check_here,
    disable_retries,
    is_anonymous,
    library_options,
    options_keys,
    single_attempt_options,
)
from flink_skills.sources.skill_source import SourceContext
from flink_skills.sources.store import remove_tree
from flink_skills.sources.transfer_failures import ChangedError, DiskError, Transfer, missing_package

if TYPE_CHECKING:
    import aiohttp

_VERSION_HEADERS = ("ETag", "Last-Modified", "Content-Length")
# Headers that a request to another host, or to the same one without encryption, can have. All others in the
# options are for the first host.
_HARMLESS = frozenset({"accept", "accept-encoding", "range", "user-agent", "if-none-match", "if-modified-since"})
_HARMLESS |= {"content-type", "git-protocol"}


class GuardedClient:
    """The ``get_client`` function for fsspec's http file system.

    A name is checked by the addresses that the connection then uses, so that it cannot resolve to other addresses
    between the check and the connection. ``shown`` is the source in messages.

    ``version`` contains the last response's headers about the version, ``encoding`` its encoding.
    With ``head_only``, only HEAD requests are sent: fsspec falls back to GET, which is a download for the server. With
    ``keeps_home``, the credentials are for the host of the first request only.
    """

    def __init__(self, policy: AddressPolicy, shown: str) -> None:
        self._policy = policy
        self._shown = shown
        self._home, self._encrypted = "", True
        self.version: dict[str, str] = {}
        self.encoding = ""
        self.head_only = False
        self.keeps_home = False
        # Before the first client exists, because fsspec logs the URL before it requests one.
        logging.getLogger("fsspec.http").addFilter(_WITHOUT_SECRETS)

    async def __call__(self, *, loop: Any = None, **options: Any) -> aiohttp.ClientSession:
        import aiohttp
        from aiohttp.abc import AbstractResolver
        from aiohttp.resolver import ThreadedResolver

        policy, shown, step = self._policy, self._shown, self._step

        class Resolver(AbstractResolver):  # type: ignore[misc]
            """Names to addresses that the policy lets pass."""

            def __init__(self) -> None:
                self._names = ThreadedResolver()

            async def resolve(self, host: str, *arguments: Any, **named: Any) -> Any:
                found = await self._names.resolve(host, *arguments, **named)
                policy.check_addresses([address["host"] for address in found], shown)
                return found

            async def close(self) -> None:
                await self._names.close()

        class Request(aiohttp.ClientRequest):  # type: ignore[misc]
            """One hop: made with the very URL that is then connected to."""

            def __init__(self, method: str, url: Any, **named: Any) -> None:
                super().__init__(method, url, **step(url, named))

        traces = aiohttp.TraceConfig()
        traces.on_request_start.append(self._on_start)
        traces.on_request_redirect.append(self._on_redirect)
        traces.on_request_end.append(self._on_end)
        options.update(
            connector=aiohttp.TCPConnector(resolver=Resolver()),
            request_class=Request,
            trace_configs=[traces, *options.pop("trace_configs", [])],
            # The bytes of the file are wanted, and some servers take a tar.gz for a tar in transit.
            auto_decompress=False,
        )
        options["headers"] = {"Accept-Encoding": "identity", **(options.get("headers") or {})}
        return aiohttp.ClientSession(**options)

    def _step(self, url: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Check one hop, and remove headers from its request that are not for its host."""
        at_home = False
        try:
            at_home = host_of(str(url)) == self._home
            self._policy.check_step(self._home, str(url))
        except ConfigError as error:
            reason = str(error) if at_home else self._refused(error)
            raise SourceError(reason, source=self._shown) from None
        if at_home and (url.scheme == "https" or not self._encrypted):
            return request
        headers = request.get("headers") or {}
        kept = {name: value for name, value in headers.items() if name.lower() in _HARMLESS}
        return {**request, "headers": kept, "auth": None, "cookies": None}

    async def _on_start(self, _session: Any, _context: Any, parameters: Any) -> None:
        try:
            if not (self.keeps_home and self._home):
                self._home, self._encrypted = host_of(str(parameters.url)), parameters.url.scheme == "https"
        except ConfigError as error:
            raise SourceError(str(error), source=self._shown) from None
        if self.head_only and parameters.method != "HEAD":
            raise SourceError(f"skill source {self._shown}: does not answer HEAD", source=self._shown)

    async def _on_redirect(self, _session: Any, _context: Any, parameters: Any) -> None:
        from yarl import URL

        headers = parameters.response.headers
        target = headers.get("Location") or headers.get("URI") or ""
        try:
            url = str(parameters.response.url.join(URL(target)))
            if not url.startswith(("http://", "https://")):
                raise ConfigError("the redirect is not an http(s) URL")
            self._policy.check_step(self._home, url)
        except (ConfigError, ValueError) as error:
            reason = error if isinstance(error, ConfigError) else "the URL cannot be parsed"
            raise SourceError(self._refused(reason), source=self._shown) from None

    def _refused(self, reason: ConfigError | str) -> str:
        text = str(reason).removeprefix("skill source ")
        return f"skill source {self._shown}: redirects to an address that is not allowed: {text}"

    async def _on_end(self, _session: Any, _context: Any, parameters: Any) -> None:
        headers, status = parameters.response.headers, parameters.response.status
        if 200 < status < 400 and not self.head_only:  # a redirect to nowhere, a part, nothing at all
            raise SourceError(
                f"skill source {self._shown}: the server returned {status} instead of the file; check the address",
                source=self._shown,
            )
        self.encoding = headers.get("Content-Encoding", "")
        self.version = {name: headers[name] for name in _VERSION_HEADERS if name in headers}


class _WithoutSecrets(logging.Filter):
    """fsspec writes whole URLs, and errors that quote them, into its debug log."""

    def filter(self, record: logging.LogRecord) -> bool:
        problem = record.exc_info[0] if record.exc_info else None
        record.msg = redact_text(record.getMessage()) + (f" ({problem.__name__})" if problem else "")
        record.args, record.exc_info, record.exc_text = (), None, None
        return True


_WITHOUT_SECRETS = _WithoutSecrets()


# The store keeps fetched files and checks for changes. These would keep a second copy without a check.
_CACHES = frozenset({"simplecache", "filecache", "blockcache", "cached"})
_ARCHIVES = ("zip", "tar")
T = TypeVar("T")

WEB = ("http", "https")

_ATTEMPTS = 4
_FIRST_WAIT = 0.5
# Seconds. A server that sends nothing for a quarter of the deadline, within these, is asked again.
_SHORTEST_STALL = 1.0
_MAX_STALL = 30.0
# Fields that differ between two versions of a file, as any file system names them.
_VERSION_FIELDS = (
    "ETag", "etag", "VersionId", "LastModified", "Last-Modified", "last_modified", "mtime", "modificationTime",
    "md5Hash", "generation", "created",
)  # fmt: skip
# An entity tag is sufficient. A time would also change if the same content is uploaded again.
_WITH_TAG = ("ETag", "etag", "VersionId")


@dataclass(frozen=True)
class Chain:
    """``url`` is the file that is fetched; ``inner`` are the files to take out of it, outermost first.

    >>> Chain.parse("zip://a/b.zip::https://example.org/all.zip", "")
    Chain(url='https://example.org/all.zip', inner=(('zip', 'a/b.zip'),))
    """

    url: str
    inner: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str, shown: str) -> Chain:
        """Read a URL. ``shown`` names it in messages. Raises :class:`ConfigError`."""
        *before, last = links_of(url)
        inner: list[tuple[str, str]] = []
        for link in reversed(before):
            protocol, _, path = link.partition("://")
            if protocol.lower() in _CACHES:
                continue
            if protocol.lower() not in _ARCHIVES:
                message = f"skill source {shown}: {protocol}:: cannot precede another URL"
                raise ConfigError(f"{message}; write zip://path/in/archive::URL or tar://path/in/archive::URL")
            parts = path.strip("/").split("/")
            if not all(part not in ("", ".", "..") for part in parts) or "\\" in path or "\0" in path:
                message = f"skill source {shown}: {protocol}:: names no file in the archive"
                raise ConfigError(f"{message}; write {protocol}://path/in/archive::URL")
            inner.append((protocol.lower(), "/".join(parts)))
        if protocol_of(last) in ("", *_ARCHIVES, *_CACHES):
            raise ConfigError(f"skill source {shown}: does not end in a URL; write zip://path/in/archive::https://…")
        return cls(last, tuple(inner))

    def take_out(self, path: str, limits: Limits, shown: str) -> None:
        """Replace the file ``path`` by the innermost file. Raises :class:`SourceError`."""
        for protocol, name in self.inner:
            folder = f"{path}.unpacked"
            try:
                unpack(path, _kind(path, protocol, shown), _made(folder), limits)
                found = os.path.join(folder, *name.split("/"))
                if not os.path.isfile(found):
                    message = f"skill source {shown}: there is no file {name!r} in the archive"
                    raise SourceError(f"{message}; check the path before '::'", source=shown)
                os.replace(found, path)
            except ArchiveRefusedError as refused:
                raise SourceError(f"skill source {shown}: {refused}; the archive is refused", source=shown) from None
            finally:
                remove_tree(folder)


def _kind(path: str, protocol: str, shown: str) -> ArchiveKind:
    with open(path, "rb") as file:
        kind = archive_kind("", file.read(512))
    if kind is None or not kind.startswith(protocol):
        raise SourceError(f"skill source {shown}: the URL after {protocol}:: is not a {protocol}", source=shown)
    return kind


def _made(folder: str) -> str:
    remove_tree(folder)
    os.mkdir(folder, 0o700)
    return folder


class RemoteSystem:
    """An fsspec file system, and calls of it within a deadline. Calls that fail for a moment are repeated.

    Args:
        url: The URL of a file or a directory.
        shown: Its name in messages, without secrets.
        protocol: The scheme of the URL.
        context: The options.
    """

    def __init__(self, url: str, shown: str, protocol: str, context: SourceContext) -> None:
        self.shown = shown
        self._system_url = url
        self._protocol = protocol
        self._context = context
        self._seconds: float = context.config.get(SkillOptions.SOURCE_TIMEOUT)
        self._is_anonymous = False
        self._http: GuardedClient | None = None
        self._opened: tuple[Any, str] | None = None
        self._lock = threading.Lock()

    def _check_installed(self, place: str, known: str) -> None:
        """Raise :class:`ConfigError` if no package can read the protocol. ``known`` are examples of protocols."""
        from fsspec import get_filesystem_class

        try:
            get_filesystem_class(self._protocol)
        except ImportError:
            raise ConfigError(f"{place}: {missing_package(self._protocol)}") from None
        except ValueError:
            message = f"{place}: nothing here knows the protocol {self._protocol!r}"
            raise ConfigError(f"{message}; use {known}, file, or install an fsspec package for it") from None

    def _given_options(self, *, expanded: bool = True) -> dict[str, Any]:
        for key in options_keys(self._protocol):
            if options := self._context.file_system_options(key, expanded=expanded):
                return library_options(self._protocol, options)
        return library_options(self._protocol, {})

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

    def _within(self, deadline: float, work: Callable[[], T], target: str = "") -> T:
        """Run ``work`` on a new thread, because no library below respects one deadline."""
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

    def _open(self) -> tuple[Any, str]:
        """Return the file system of the URL and the path in it. It is created once, because this may take long."""
        with self._lock:
            if self._opened is None:
                self._opened = self._make_system()
        self._opened[0].invalidate_cache()  # of listings, which would hide a change
        return self._opened

    def _make_system(self) -> tuple[Any, str]:
        from fsspec import get_filesystem_class

        url, kind = self._system_url, get_filesystem_class(self._protocol)
        if kind.__name__ == "ExtendedGcsFileSystem":
            # The class for zonal buckets first asks another server for the kind of the bucket.
            kind = import_module("gcsfs.core").GCSFileSystem
        options = self._given_options()
        try:
            check_here(self._protocol, options)
        except ConfigError as error:
            raise self._transfer().error(str(error)) from None
        options = single_attempt_options(self._protocol, options, self._stall())
        options["skip_instance_cache"] = True
        if self._http is not None:
            system, path = kind(**options, get_client=self._http), url
        else:
            # Options take precedence over host and version of the URL.
            system, path = kind(**{**kind._get_kwargs_from_urls(url), **options}), kind._strip_protocol(url)
        disable_retries(self._protocol, system, self._stall())
        return system, path

    def _transfer(self, target: str = "") -> Transfer:
        disk_error = self._context.store.disk_error
        return Transfer(
            self.shown, self._protocol, self._is_anonymous, target, self._seconds, self._stall(), disk_error
        )

    def _stall(self) -> float:
        return max(_SHORTEST_STALL, min(_MAX_STALL, self._seconds / _ATTEMPTS))


class Connection(RemoteSystem):
    """The file system of the URL of a skill source.

    ``generated`` are the files that the last fetch omitted because tools write them. ``shown`` names it in messages.

    Raises :class:`ConfigError` from the constructor for a URL that the options forbid or no package can read.
    """

    def __init__(self, url: str, context: SourceContext, policy: AddressPolicy | None = None, shown: str = "") -> None:
        shown = shown or redact(url)
        self.url = url
        self.generated: list[str] = []
        policy = policy or AddressPolicy(context.config)
        for link in links_of(url):
            policy.check_url(link)
        self._chain = Chain.parse(url, shown)
        super().__init__(self._chain.url, shown, protocol_of(self._chain.url), context)
        self._client = GuardedClient(policy, shown)
        self._http = self._client if self._protocol in WEB else None
        self._check_installed(f"skill source {shown}", "https, s3")
        self._is_anonymous = is_anonymous(self._protocol, self._given_options())

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
