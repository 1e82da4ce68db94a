"""Staging of skills: a verified read-only copy of the source, with the links and folders that commands need."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from flink_skills.errors import ExecutionError
from flink_skills.execution.workspace.safe_files import Ownership, folder_in, pinned, write_all
from flink_skills.execution.workspace.workspace_paths import VENV
from flink_skills.skill.roles import is_environment, is_excluded

__all__ = ["StageableSkill", "copy_skill", "finish_skill", "seal_files", "walk"]

# Links that lead out of the read-only tree to where a command may write, unless the skill has such an entry.
_LINKS = {"out": "../../out", "work": "../../work", "inputs": "../../work/inputs"}
_CHUNK = 1 << 20


class StageableSkill(Protocol):
    """Skill attributes that staging uses.

    ``path`` is its folder. A skill that exists only in memory has None, and ``instructions`` and ``resources``. An
    optional ``files.manifest()`` returns size and sha256 by path. A copy that differs is rejected.
    """

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Any: ...
    @property
    def digest(self) -> str: ...


def copy_skill(skill: StageableSkill, target: Path) -> None:
    """Copy the files of ``skill`` to the new folder ``target``.

    Links that lead out of the skill, and everything except files and folders, are omitted. Raises :class:`OSError`,
    and :class:`ExecutionError` for a file that differs from the manifest.
    """
    if skill.path is None:
        _write_from_memory(skill, target)
        return
    files = getattr(skill, "files", None)
    manifest: Mapping[str, tuple[int, str]] = files.manifest() if files is not None else {}
    real_root = Path(os.path.realpath(skill.path))
    waiting = [(real_root, target, "")]
    while waiting:
        folder, copy, prefix = waiting.pop()
        with os.scandir(folder) as scanned:
            entries = list(scanned)
        if prefix and is_environment([entry.name for entry in entries]):
            continue
        copy.mkdir(mode=0o700)
        for entry in entries:
            if is_excluded(prefix + entry.name):
                continue
            to = copy / entry.name
            if entry.is_symlink():
                _copy_link(Path(entry.path), to, real_root)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), to, f"{prefix}{entry.name}/"))
            elif entry.is_file(follow_symlinks=False):
                found = _copy_file(entry.path, to)
                known = manifest.get(prefix + entry.name)
                if known is not None and tuple(known) != found:
                    raise ExecutionError(
                        f"skill {skill.name!r}: the file {prefix + entry.name!r} in {folder} has changed since the "
                        "skill was loaded: refresh the skills (skills.refresh.interval) or restart the job"
                    )


def walk(root: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below ``root``, a folder before its entries. Links are not followed. Any depth is supported."""
    waiting: list[str | os.PathLike[str]] = [root]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def seal_files(root: Path, ownership: Ownership) -> None:
    """Make all files below ``root`` read-only. Executable files stay executable."""
    for entry in walk(root):
        if entry.is_file(follow_symlinks=False):
            executable = entry.stat(follow_symlinks=False).st_mode & 0o111
            (ownership.program if executable else ownership.data).apply_by_path(entry.path)


def finish_skill(root: Path, ownership: Ownership, previous: Path | None) -> bool:
    """Add the links and a folder for a virtual environment, and make the folders of the tree read-only.

    The latter is not a link, because ``python -m venv .venv`` rejects one. It moves here from ``previous``, the tree
    that this one replaces. Return False if the skill contains a ``.venv``, which is read-only like its other files.
    """
    for name, to in _LINKS.items():
        if not os.path.lexists(root / name):
            (root / name).symlink_to(to)
    folders = [entry.path for entry in walk(root) if entry.is_dir(follow_symlinks=False)]
    venv = root / VENV
    writable = not os.path.lexists(venv)
    if writable:
        if previous is not None:
            _move_venv(previous, venv, ownership)
        with pinned(root) as folder, folder_in(folder, VENV, ownership.open):
            pass  # created or repaired
    for path in (*folders, str(root)):
        ownership.sealed.apply_by_path(path)
    return writable


def _move_venv(previous: Path, venv: Path, ownership: Ownership) -> None:
    try:
        previous.chmod(0o700)  # a command of the worker's own user may have closed it
        with pinned(previous / VENV) as folder:
            ownership.open.apply(folder)  # to be moved it must be writable
    except (FileNotFoundError, NotADirectoryError):
        return
    (previous / VENV).rename(venv)


def _copy_file(source: str, to: Path) -> tuple[int, str]:
    """Copy a file, and return its size and sha256."""
    digest = hashlib.sha256()
    size = 0
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(reading, "rb", buffering=0) as reader, to.open("xb", buffering=0) as writer:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            write_all(writer.fileno(), chunk)
        os.fchmod(writer.fileno(), 0o700 if os.fstat(reading).st_mode & 0o111 else 0o600)
    return size, digest.hexdigest()


def _copy_link(link: Path, to: Path, real_root: Path) -> None:
    text = link.readlink()
    real = Path(os.path.realpath(link))
    # An absolute target would lead back to the original, one that leaves the skill to anywhere.
    if text.is_absolute() or not real.is_relative_to(real_root):
        return
    if not is_excluded(real.relative_to(real_root).as_posix()):
        to.symlink_to(text)


def _write_from_memory(skill: Any, target: Path) -> None:
    target.mkdir(mode=0o700)
    (target / "SKILL.md").write_text(skill.instructions or "", encoding="utf-8", errors="replace")
    resources: Mapping[str, str | bytes] = skill.resources or {}
    for path, content in resources.items():
        parts = path.split("/")
        if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ExecutionError(
                f"skill {skill.name!r}: the resource path {path!r} is not a plain relative path: rename it"
            )
        file = target.joinpath(*parts)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
        if file.read_bytes()[:2] == b"#!":
            file.chmod(0o700)
