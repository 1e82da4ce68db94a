"""Prepare a delegated cgroup v2 for the cgroups of commands.

A cgroup that contains processes cannot limit the memory of cgroups in it. Therefore the processes of a container are
moved to a cgroup next to those of the commands.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from flink_skills.execution.cgroups.place import NotDelegatedError, Place
from flink_skills.execution.launcher.descent import descendants

__all__ = ["CONTROLLERS", "delegated_folder"]

CONTROLLERS = ("memory", "pids")
_OTHERS = "flink-skills.others"
_ENABLED = "cgroup.subtree_control"
_PROCESSES = "cgroup.procs"
_TRIES = 50


def delegated_folder(place: Place) -> Path:
    """Return the cgroup in which this process may create cgroups with limits, given its own cgroup ``place``.

    Raise :class:`NotDelegatedError` if there is none, and :class:`OSError` if the kernel denies what file modes allow.
    """
    base = place.folder
    if base.name == _OTHERS and place.path != "/":
        base = base.parent
    _check(base)
    if not set(CONTROLLERS) <= set((base / _ENABLED).read_text().split()):
        if base == place.folder:
            _check_movable(place)
        enable(base)
    return base


def enable(folder: Path) -> None:
    """Enable the controllers for the cgroups in ``folder``. Move the processes of ``folder`` to one of these before."""
    for _ in range(_TRIES):
        _move_processes(folder)
        try:
            (folder / _ENABLED).write_text(" ".join(f"+{name}" for name in CONTROLLERS))
        except OSError as error:
            if error.errno != errno.EBUSY:  # a process was forked after the move
                raise
        else:
            return
    raise NotDelegatedError(f"new processes start in {folder} all the time")


def _check(base: Path) -> None:
    if os.statvfs(base).f_flag & os.ST_RDONLY:
        raise NotDelegatedError(f"{base} is mounted read-only")
    for path in (base, base / _PROCESSES, base / _ENABLED):
        if not os.access(path, os.W_OK, effective_ids=True):
            raise NotDelegatedError(f"the worker has no right to write to {path}")
    kind = base / "cgroup.type"
    if not kind.exists():
        raise NotDelegatedError(f"{base} is the root cgroup of the machine")
    if kind.read_text().strip() != "domain":
        raise NotDelegatedError(f"{base} is a threaded cgroup")
    if not (base / "cgroup.kill").exists():
        raise NotDelegatedError("the kernel cannot kill a cgroup, which needs Linux 5.14 or newer")
    missing = sorted(set(CONTROLLERS) - set((base / "cgroup.controllers").read_text().split()))
    if missing:
        raise NotDelegatedError(f"{base} does not have the controllers {', '.join(missing)}")


def _check_movable(place: Place) -> None:
    """Check that the processes in a cgroup belong to the container, to a delegation of systemd, or to this process."""
    pids = _processes(place.folder)
    if 0 in pids:
        raise NotDelegatedError(f"{place.folder} has processes that the worker cannot see")
    if place.path == "/" or _is_marked(place.folder):
        return
    if not pids <= {os.getpid(), *descendants(os.getpid())}:
        raise NotDelegatedError(
            f"{place.folder} has other processes, and it is neither a container's cgroup nor delegated by systemd "
            "(Delegate=yes)"
        )


def _is_marked(folder: Path) -> bool:
    """Return True if systemd has marked a cgroup as delegated."""
    try:
        return os.getxattr(folder, "user.delegate") == b"1"
    except OSError:
        return False


def _move_processes(folder: Path) -> None:
    pids = _processes(folder)
    if not pids:
        return
    others = folder / _OTHERS
    others.mkdir(exist_ok=True)
    for pid in pids:
        try:
            (others / _PROCESSES).write_text(str(pid))
        except ProcessLookupError:
            continue


def _processes(folder: Path) -> set[int]:
    return {int(line) for line in (folder / _PROCESSES).read_text().split()}
