"""URLs with ``::``: a file inside an archive somewhere else.

``zip://skills/inner.zip::s3://bucket/outer.zip`` is fetched whole and then unpacked here under the same rules as any
archive, where fsspec would read pieces of it over the network: that would have no size limit, no version and no
second try.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from flink_skills.endpoint import links_of
from flink_skills.errors import ConfigError, SourceError
from flink_skills.skill import Limits
from flink_skills.sources.address import protocol_of
from flink_skills.sources.archive import ArchiveKind, archive_kind, unpack
from flink_skills.sources.entries import ArchiveRefusedError
from flink_skills.sources.store import remove_tree

__all__ = ["Chain"]

# The store keeps what was fetched, and asks for changes; these would keep it once more and never ask.
_CACHES = frozenset({"simplecache", "filecache", "blockcache", "cached"})
_ARCHIVES = ("zip", "tar")


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
