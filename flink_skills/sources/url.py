"""Skills behind a URL: an archive or a single SKILL.md, through fsspec."""

# Paths are text here: they come from listings and descriptors by the thousand, where pathlib costs more than
# the calls themselves.
# ruff: noqa: PTH105, PTH112, PTH113, PTH118, PTH119, PTH123, PTH202

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.sources.address import links_of, protocol_of, redact
from flink_skills.sources.base import SkillSource, SourceContext, SourceTree
from flink_skills.sources.download import RemoteFile
from flink_skills.sources.locking import file_lock
from flink_skills.sources.path import local_tree
from flink_skills.sources.store import remove_tree

__all__ = ["UrlSource"]

_PIN = re.compile(r"#sha256=([0-9A-Fa-f]{64})$")


class UrlSource(SkillSource):
    """A URL of a zip, tar or tar.gz archive or of a bare ``SKILL.md``; ``file://`` also of a folder.

    ``#sha256=…`` at the end pins the content. Several processes that open the same URL at once download it
    once; a later one asks the server whether it has changed, where the server can tell.
    """

    kind = "url"

    def __init__(self, location: str, context: SourceContext) -> None:
        super().__init__(location, context)
        pin = _PIN.search(location)
        self._sha256 = pin.group(1).lower() if pin else None
        if "#sha256=" in location and pin is None:
            raise ConfigError(f"skill source {self.origin}: '#sha256=' needs 64 hexadecimal digits")
        # A fragment is never sent: without it the same file has the same key.
        self._url = location.partition("#")[0] if protocol_of(location) in ("http", "https") or pin else location
        if not protocol_of(location):
            raise ConfigError(f"skill source {self.origin}: is no URL; write https://…, s3://… or file:///…")
        self._local = _local_path(self._url, self.origin) if protocol_of(self._url) in ("file", "local") else None
        self._remote = None if self._local is not None else RemoteFile(self._url, context)

    @property
    def origin(self) -> str:
        return redact(self.location)

    def resolve(self) -> list[SourceTree]:
        deadline = time.monotonic() + self.context.config.get(SkillOptions.SOURCE_TIMEOUT)
        if self._local is not None or self._remote is None:
            if self._sha256 and self._local and os.path.isfile(self._local):
                self._check_pin(self._local)
            return [local_tree(self._local or "", self.origin, self.context)]
        store = self.context.store
        key = hashlib.sha256(self._url.encode()).hexdigest()
        asked = time.time()
        try:
            with file_lock(store.lock_path(key), deadline, self.origin):
                known = self._known(store.record_path(key), asked)
                if known is not None and known["fetched"] < asked:
                    version = self._remote.version(deadline)
                    if version is None or version != known["version"]:
                        known = None
                if known is None:
                    folder, version = self._download(self._remote, key, deadline)
                    known = {"fetched": time.time(), "folder": os.path.basename(folder), "version": version}
                    _write_whole(store.record_path(key), json.dumps(known))
        except OSError as error:
            raise store.disk_error(error, self.origin) from None
        return [SourceTree(os.path.join(store.folder, known["folder"]), self.origin, remote=True)]

    def _known(self, path: str, asked: float) -> dict[str, Any] | None:
        """What was fetched before, if it is still in the store and the pin does not ask for something
        else."""
        try:
            record = json.loads(Path(path).read_text())
        except (FileNotFoundError, ValueError):
            return None
        if not isinstance(record, dict) or not isinstance(record.get("fetched"), float):
            return None
        folder = str(record.get("folder"))
        # A clock that was set back must not make a record look new for good.
        if record["fetched"] > asked + 3600 or not os.path.isdir(os.path.join(self.context.store.folder, folder)):
            return None
        return None if self._sha256 and folder != self._sha256 else record

    def _download(self, remote: RemoteFile, key: str, deadline: float) -> tuple[str, str | None]:
        store = self.context.store
        work = store.work_path(key)
        try:
            name = os.path.basename(unquote(urlsplit(links_of(self._url)[-1]).path))
            # A name of its own: a transfer that was given up may still write to the old one.
            target = os.path.join(work, secrets.token_hex(8))
            version = remote.fetch(target, self.context.limits.download, deadline)
            if self._sha256:
                self._check_pin(target)
            if name.lower() == "skill.md":
                return self._single_file(target, deadline), version
            return store.add_archive(target, self.origin, deadline=deadline, name=name), version
        finally:
            remove_tree(work)

    def _single_file(self, target: str, deadline: float) -> str:
        size, limit = os.path.getsize(target), self.context.limits.skill_file
        if size > limit:
            message = f"skill source {self.origin}: has {size} bytes; the limit for a SKILL.md is {limit}"
            raise SourceError(message, source=self.origin)
        return self.context.store.add_file(Path(target).read_bytes(), "SKILL.md", self.origin, deadline=deadline)

    def _check_pin(self, path: str) -> None:
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while data := file.read(1 << 18):
                digest.update(data)
        if digest.hexdigest() != self._sha256:
            message = f"skill source {self.origin}: its sha256 is {digest.hexdigest()} and not the pinned one"
            raise SourceError(f"{message}; check what changed, then pin the new one", source=self.origin)


def _local_path(url: str, shown: str) -> str:
    rest = url.partition("://")[2]
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise ConfigError(f"skill source {shown}: a file URL has three slashes and an absolute path: file:///…")
    return "/" + unquote(path)


def _write_whole(path: str, text: str) -> None:
    new = f"{path}.new"
    Path(new).write_text(text)
    os.replace(new, path)
