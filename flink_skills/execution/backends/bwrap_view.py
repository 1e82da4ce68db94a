"""What a command sees of the file system inside of namespaces, in the words of bubblewrap.

Everything is at the path that it has outside, symbolic links included; the rest does not exist.
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
# Made anew inside, so nothing of the outer ones is granted.
_OWN = ("/proc", "/dev")
_TMP = "/tmp"  # the one inside, which is private
_SHARED_MEMORY = "/dev/shm"
_MAX_LINKS = 40  # as in the kernel


class View:
    """Grants ``system`` and ``readable`` to every command; :meth:`operations` adds what one command may see."""

    def __init__(self, system: Iterable[str], readable: Iterable[str]) -> None:
        self._links: dict[str, str] = {}
        found = [place for path in (*system, *readable) for place in _resolved(path, self._links)]
        self._places = outermost(found)
        self._copied = frozenset(place for place in self._places if _is_small_setting(place))

    def operations(self, request: CommandRequest, *, tty: bool = False) -> list[Operation]:
        """The operations, in order, for bubblewrap. ``tty`` says that the command has a terminal."""
        mounts, links = self._places_of(request)
        covered = frozenset(mounts)
        before, after = _temporary_folder(request, covered | links.keys())
        return [
            *before,
            *(self._granted(mounts[place], place) for place in sorted(mounts)),
            *(("--symlink", links[link], link) for link in sorted(links)),
            *after,
            ("--proc", "/proc"),
            # Else a command changes its rank for the kernel's memory killer, and settings of the processes that stay.
            ("--remount-ro", "/proc"),
            *_devices(covered, tty=tty),
            # What bubblewrap made for all this is memory that no limit counts: nobody may write there.
            ("--remount-ro", "/"),
        ]

    def temporary_folders(self, request: CommandRequest) -> tuple[str, ...]:
        """Return the folders that are created for one command and removed with it."""
        mounts, links = self._places_of(request)
        made = mounts.keys() | links.keys()
        lasts = is_within(_TMP, made) or _binds_own_folder(request, made)
        return (_SHARED_MEMORY,) if lasts else (_TMP, _SHARED_MEMORY)

    def _places_of(self, request: CommandRequest) -> tuple[dict[str, str], dict[str, str]]:
        """Return the mounts of a command with their kinds, and the other symbolic links."""
        links = dict(self._links)
        writable = outermost(place for path in request.writable for place in _resolved(path, links))
        readable = [place for path in request.readable for place in _resolved(path, links)]
        # A place inside of a writable one is seen with that. Never mount there: a command may have put a link in the
        # way, which bubblewrap would follow.
        mounts = dict.fromkeys(self._places, "--ro-bind")
        mounts.update((place, "--ro-bind") for place in readable if not is_within(place, mounts))
        mounts = {place: kind for place, kind in mounts.items() if not is_within(place, writable)}
        mounts.update((place, "--bind") for place in writable)
        return mounts, {link: target for link, target in links.items() if not is_within(link, mounts)}

    def _granted(self, kind: str, place: str) -> Operation:
        if kind == "--ro-bind" and place in self._copied:
            return ("--perms", "0444", "--file", place, place)
        return (kind, place, place)


def _is_small_setting(place: str) -> bool:
    """Whether a copy does instead of a mount, of which each takes longer than the one before."""
    return place.startswith("/etc/") and os.path.isfile(place) and os.path.getsize(place) <= _COPIED_BYTES


def _temporary_folder(request: CommandRequest, made: Collection[str]) -> tuple[list[Operation], list[Operation]]:
    """A private ``/tmp``, before and after other things are ``made``.

    It is the workspace's own, whose contents count, unless something is made in it: a command could have put links
    there.
    """
    if is_within(_TMP, made):
        return [], []
    if _binds_own_folder(request, made):
        return [("--bind", _own_folder(request), _TMP)], []
    inside = [place for place in made if place.startswith("/tmp/")]
    # The folders that lead to what is made are for nobody to write, as elsewhere.
    ways = sorted({"/".join(place.split("/")[:3]) for place in inside} - set(made))
    return (
        [("--perms", "1777", "--size", str(_TEMPORARY_BYTES), "--tmpfs", _TMP), *(("--tmpfs", way) for way in ways)],
        [("--remount-ro", way) for way in ways],
    )


def _binds_own_folder(request: CommandRequest, made: Collection[str]) -> bool:
    """Return True if ``/tmp`` can be the workspace's own folder: nothing is made in it."""
    return _own_folder(request) in request.writable and not any(place.startswith("/tmp/") for place in made)


def _own_folder(request: CommandRequest) -> str:
    return f"{request.root}/tmp"


def _devices(mounts: Container[str], *, tty: bool) -> list[Operation]:
    # Where all of the machine is granted, its devices are not.
    hidden = "/" in mounts
    return [
        *((("--tmpfs", "/dev"),) if hidden else ()),
        *(("--dev-bind", f"/dev/{name}", f"/dev/{name}") for name in (*_DEVICES, *(("tty",) if tty else ()))),
        *(("--symlink", target, f"/dev/{name}") for name, target in _DEVICE_LINKS),
        ("--perms", "1777", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", _SHARED_MEMORY),
        *((("--remount-ro", "/dev"),) if hidden else ()),
    ]


def _resolved(path: str, links: dict[str, str]) -> Iterator[str]:
    """The place that ``path`` leads to, if any. The links on the way are added to ``links``."""
    waiting = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    place = "/"
    for _ in range(_MAX_LINKS):
        link = None
        while waiting and link is None:
            part = waiting.pop()
            if part == "..":
                place = os.path.dirname(place)
                continue
            place = os.path.join(place, part)
            link = _link(place)
        if link is None:
            if os.path.exists(place) and not is_within(place, _OWN):
                yield place
            return
        links[place] = link
        place = "/" if link.startswith("/") else os.path.dirname(place)
        waiting += [part for part in reversed(link.split("/")) if part not in ("", ".")]


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
