"""The cgroup of this process in the mounted cgroup v2."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["NotDelegatedError", "Place", "own_place"]

_OCTAL = re.compile(r"\\([0-7]{3})")


class NotDelegatedError(Exception):
    """The worker may not create cgroups. The message is the reason, as part of a sentence."""


class Place(NamedTuple):
    """A cgroup.

    Attributes:
        folder: Its directory.
        path: Its path in the namespace of this process. ``/`` for the root of the namespace.
    """

    folder: Path
    path: str


def own_place(proc: Path = Path("/proc/self")) -> Place:
    """Return the cgroup of this process. Raise :class:`NotDelegatedError` if it is in no visible cgroup v2."""
    try:
        groups = (proc / "cgroup").read_text()
        mounts = (proc / "mountinfo").read_text()
    except OSError as error:
        raise NotDelegatedError(f"the cgroup of the worker cannot be read ({error})") from error
    path = next((line[3:] for line in groups.splitlines() if line.startswith("0::/")), "")
    found = [] if not path else [line for line in mounts.splitlines() if " - cgroup2 " in line]
    if not found:
        raise NotDelegatedError("the worker has no cgroup v2")
    for line in found:
        fields = line.split()
        root, mounted = _plain(fields[3]), _plain(fields[4])
        if _is_outside(root) or _is_outside(path):
            continue
        inside = os.path.relpath(path, root)
        if not _is_outside(f"/{inside}"):
            return Place(Path(mounted, inside), path)
    raise NotDelegatedError(f"the cgroup of the worker ({path}) is outside the mounted cgroup v2")


def _is_outside(path: str) -> bool:
    return path == "/.." or path.startswith("/../")


def _plain(field: str) -> str:
    """Return the path of a field of ``mountinfo``, in which spaces are octal numbers."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)
