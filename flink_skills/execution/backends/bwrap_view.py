"""File system of a command inside of namespaces, as operations of bubblewrap.

Everything is at the path that it has outside, including symbolic links; nothing else exists.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Iterator

from flink_skills.execution.host import is_within, outermost
from flink_skills.execution.request import CommandRequest

__all__ = ["Operation", "View"]

Operation = tuple[str, ...]

_DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"))
_SHARED_MEMORY_BYTES = 64 << 20
_TEMPORARY_BYTES = 64 << 20
_COPIED_BYTES = 128 << 10
# Created inside, so nothing of the outer ones is granted.
_CREATED = ("/proc", "/dev")
_TMP = "/tmp"  # the one inside, which is private
_SHARED_MEMORY = "/dev/shm"
_MAX_LINKS = 40  # as in the kernel


class View:
    """Grants ``system`` and ``readable`` to every command; :meth:`operations` adds what one command may see."""

    def __init__(self, system: Iterable[str], readable: Iterable[str]) -> None:
        self._links: dict[str, str] = {}
        self._paths = outermost(real for path in (*system, *readable) for real in _resolved(path, self._links))
        self._copied = frozenset(filter(_is_small_setting, self._paths))

    def operations(self, request: CommandRequest, *, tty: bool = False) -> list[Operation]:
        """Return the operations for bubblewrap, in order. The command has a terminal if ``tty`` is true."""
        mounts, links = self._mounts_of(request)
        before, after = _temporary_folder(request, mounts.keys() | links.keys())
        return [
            *before,
            *(self._granted(mounts[path], path) for path in sorted(mounts)),
            *(("--symlink", links[link], link) for link in sorted(links)),
            *after,
            ("--proc", "/proc"),
            # Otherwise a command can change its rank for the kernel's memory killer, and settings of other processes.
            ("--remount-ro", "/proc"),
            *_devices(mounts, tty=tty),
            # The directories that bubblewrap creates are memory that no limit counts, so they are read-only.
            ("--remount-ro", "/"),
        ]

    def temporary_folders(self, request: CommandRequest) -> tuple[str, ...]:
        """Return the folders that are created for one command and removed with it."""
        mounts, links = self._mounts_of(request)
        created = mounts.keys() | links.keys()
        persists = is_within(_TMP, created) or _binds_own_folder(request, created)
        return (_SHARED_MEMORY,) if persists else (_TMP, _SHARED_MEMORY)

    def _mounts_of(self, request: CommandRequest) -> tuple[dict[str, str], dict[str, str]]:
        """Return the mounts of a command with their kinds, and the other symbolic links."""
        links = dict(self._links)
        writable = outermost(real for path in request.writable for real in _resolved(path, links))
        readable = [real for path in request.readable for real in _resolved(path, links)]
        # A path inside a writable one is visible with that. Never mount there: a command can have created a link on the
        # way, which bubblewrap would follow.
        mounts = dict.fromkeys(self._paths, "--ro-bind")
        mounts.update((path, "--ro-bind") for path in readable if not is_within(path, mounts))
        mounts = {path: kind for path, kind in mounts.items() if not is_within(path, writable)}
        mounts.update((path, "--bind") for path in writable)
        return mounts, {link: target for link, target in links.items() if not is_within(link, mounts)}

    def _granted(self, kind: str, path: str) -> Operation:
        if kind == "--ro-bind" and path in self._copied:
            return ("--perms", "0444", "--file", path, path)
        return (kind, path, path)


def _is_small_setting(path: str) -> bool:
    """Return True if a copy replaces a mount, of which each takes longer than the one before."""
    return path.startswith("/etc/") and os.path.isfile(path) and os.path.getsize(path) <= _COPIED_BYTES


def _temporary_folder(request: CommandRequest, created: Collection[str]) -> tuple[list[Operation], list[Operation]]:
    """Return the operations for a private ``/tmp``, before and after those that create the paths ``created``.

    It is the workspace's own directory, whose contents count, unless a path in it is created: a command could have
    created links there.
    """
    if is_within(_TMP, created):
        return [], []
    if _binds_own_folder(request, created):
        return [("--bind", _own_folder(request), _TMP)], []
    inside = [path for path in created if path.startswith("/tmp/")]
    # The directories on the way to the created paths are read-only, as elsewhere.
    ways = sorted({"/".join(path.split("/")[:3]) for path in inside} - set(created))
    return (
        [("--perms", "1777", "--size", str(_TEMPORARY_BYTES), "--tmpfs", _TMP), *(("--tmpfs", way) for way in ways)],
        [("--remount-ro", way) for way in ways],
    )


def _binds_own_folder(request: CommandRequest, created: Collection[str]) -> bool:
    """Return True if ``/tmp`` can be the workspace's own directory: no path in it is created."""
    return _own_folder(request) in request.writable and not any(path.startswith("/tmp/") for path in created)


def _own_folder(request: CommandRequest) -> str:
    return f"{request.root}/tmp"


def _devices(mounts: Container[str], *, tty: bool) -> list[Operation]:
    # If all files of the host are granted, its devices are not.
    hidden = "/" in mounts
    return [
        *((("--tmpfs", "/dev"),) if hidden else ()),
        *(("--dev-bind", f"/dev/{name}", f"/dev/{name}") for name in (*_DEVICES, *(("tty",) if tty else ()))),
        *(("--symlink", target, f"/dev/{name}") for name, target in _DEVICE_LINKS),
        ("--perms", "1777", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", _SHARED_MEMORY),
        *((("--remount-ro", "/dev"),) if hidden else ()),
    ]


def _resolved(path: str, links: dict[str, str]) -> Iterator[str]:
    """Yield the real path of ``path``, if it exists. The links on the way are added to ``links``."""
    waiting = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    found, seen = "/", 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            found = os.path.dirname(found)
            continue
        found = os.path.join(found, part)
        try:
            link = os.readlink(found)
        except OSError:
            continue  # not a link
        if seen >= _MAX_LINKS:
            return
        seen += 1
        links[found] = link
        found = "/" if link.startswith("/") else os.path.dirname(found)
        waiting += [part for part in reversed(link.split("/")) if part not in ("", ".")]
    if os.path.exists(found) and not is_within(found, _CREATED):
        yield found
