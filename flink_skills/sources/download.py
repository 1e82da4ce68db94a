"""One file behind a URL."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

from flink_skills.errors import SourceError
from flink_skills.sources.address import AddressPolicy
from flink_skills.sources.base import SourceContext
from flink_skills.sources.connection import WEB, Connection, limited, version_text
from flink_skills.sources.encoding import decode

__all__ = ["RemoteFile"]

_IS_FOLDER = "the address is a folder; append '/' to load everything below it, or name an archive"


class RemoteFile(Connection):
    """A URL that is fetched through fsspec, also one inside archives (``zip://inner.zip::s3://…``).

    ``name`` is the file's name. ``policy`` replaces the rules for addresses of the options. ``version_id`` is the
    version of the object that was fetched, "" if its store keeps none. Raises what :class:`Connection` raises.
    """

    def __init__(self, url: str, context: SourceContext, *, policy: AddressPolicy | None = None) -> None:
        super().__init__(url, context, policy)
        self.version_id = ""
        inner = self._chain.inner
        self.name = (inner[-1][1] if inner else unquote(urlsplit(self._chain.url).path)).rpartition("/")[2]

    def version(self, deadline: float) -> str | None:
        """What changes with the content (ETag, time, …) as text; None where the server does not say.

        Raises :class:`SourceError` where the file cannot be had at all.
        """
        if self._protocol not in WEB:
            return self._repeated(deadline, lambda: version_text(self._info(deadline)))
        self._http.head_only = True
        try:
            info = self._within(deadline, lambda: self._info(deadline))
        except SourceError:
            return None  # the download says what is wrong, if it is more than a server without HEAD
        finally:
            self._http.head_only = False
        return version_text(self._http.version or info)

    def fetch(self, target: str, limit: int, deadline: float) -> str | None:
        """Write the file's content to ``target``, at most ``limit`` bytes; its version (see :meth:`version`).

        Transient failures are tried again until the deadline (monotonic seconds). Raises
        :class:`SourceError`.
        """
        return self._repeated(deadline, lambda: self._fetch_once(target, limit, deadline), target)

    def _info(self, deadline: float) -> dict[str, Any]:
        system, path = self._open()
        info: dict[str, Any] = self._call(system, "info", deadline, path)
        return info

    def _fetch_once(self, target: str, limit: int, deadline: float) -> str | None:
        transfer = self._transfer(target)
        system, path = self._open()
        # Asked before the transfer, so that a change in between shows the next time. A web server says it
        # with the file itself.
        info = {} if self._protocol in WEB else self._call(system, "info", deadline, path)
        if info.get("type") == "directory":
            raise transfer.error(_IS_FOLDER)
        if (info.get("size") or 0) > limit:
            raise transfer.too_large(limit)
        self._call(system, "get_file", deadline, path, target, callback=limited(transfer, limit, deadline))
        if os.path.isdir(target):
            raise transfer.error(_IS_FOLDER)
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
        return version_text(self._http.version or info)
