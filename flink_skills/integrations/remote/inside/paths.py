"""Folders of the worker and what they are called in a sandbox."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping


def inside(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or below it, by their names alone.

    >>> inside("/a/b/c", "/a/b"), inside("/a/bc", "/a/b")
    (True, False)
    """
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def outermost(folders: Iterable[str]) -> list[str]:
    """``folders`` without those that are below another one, sorted.

    >>> outermost(["/a/b", "/c", "/a"])
    ['/a', '/c']
    """
    kept: list[str] = []
    for folder in sorted({posixpath.normpath(name) for name in folders}):
        if not any(inside(folder, other) for other in kept):
            kept.append(folder)
    return kept


class PathMap:
    """Replaces folders by other folders, wherever a text names them.

    >>> PathMap({"/tmp/ws_1": "/app/ws"}).text("cat /tmp/ws_1/work/a /tmp/ws_12")
    'cat /app/ws/work/a /tmp/ws_12'
    """

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = dict(folders)
        names = sorted(self._folders, key=len, reverse=True)
        # A name that goes on is another folder's: /a/ws_1 is not in /a/ws_12.
        self._text = re.compile("(" + "|".join(map(re.escape, names)) + r")(?![\w.-])") if names else None
        self._bytes = re.compile(self._text.pattern.encode("utf-8", "surrogateescape")) if self._text else None

    def text(self, text: str) -> str:
        if self._text is None:
            return text
        return self._text.sub(lambda found: self._folders[found.group(1)], text)

    def data(self, data: bytes) -> bytes:
        if self._bytes is None:
            return data
        return self._bytes.sub(lambda found: _encode(self._folders[_decode(found.group(1))]), data)

    def backwards(self) -> PathMap:
        """The map that undoes this one."""
        return PathMap({theirs: ours for ours, theirs in self._folders.items()})


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
