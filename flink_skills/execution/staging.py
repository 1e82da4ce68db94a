"""Copy a skill into a workspace, read-only, once per digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from flink_skills.errors import ExecutionError
from flink_skills.execution.removal import remove_tree

__all__ = ["StageableSkill", "folder_name", "stage_skill"]

# Links that lead out of the read-only tree to where a command may write, unless the skill has such an entry.
_LINKS = {"out": "../../out", "work": "../../work", "inputs": "../../work/inputs"}
_NOT_COPIED = frozenset({".git", "__pycache__"})
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class StageableSkill(Protocol):
    """What staging needs of a skill. ``path`` is its folder, or None for a skill that exists in memory only;
    that one needs ``instructions`` and ``resources`` as well."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Any: ...
    @property
    def digest(self) -> str: ...


def folder_name(skill_name: str) -> str:
    """The folder of a skill below ``skills/``: its name, or a hash of a name that could be read as a path."""
    if _PLAIN_NAME.fullmatch(skill_name):
        return skill_name
    return "skill-" + hashlib.sha256(skill_name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def stage_skill(skill: StageableSkill, skills_dir: Path, marks_dir: Path) -> Path:
    """Copy ``skill`` to its folder in ``skills_dir`` unless that digest is there already; return the folder.

    ``marks_dir`` keeps which digest is staged. The copy appears at once or not at all. Links that lead out of
    the skill, and anything but files and folders, are left out. Raises :class:`ExecutionError` if the skill's
    files cannot be copied.
    """
    name = folder_name(skill.name)
    target, mark = skills_dir / name, marks_dir / name
    with contextlib.suppress(FileNotFoundError):
        if mark.read_text() == skill.digest and target.is_dir() and not target.is_symlink():
            return target
    building = skills_dir / f".new-{secrets.token_hex(8)}"
    try:
        if skill.path is not None:
            _copy_tree(Path(skill.path), building)
        else:
            _write_from_memory(skill, building)
        _link_out(building)
        _make_read_only(building)
        mark.unlink(missing_ok=True)
        remove_tree(target)
        building.rename(target)
        mark.write_text(skill.digest)
    except ExecutionError:
        remove_tree(building)
        raise
    except OSError as error:
        remove_tree(building)
        raise ExecutionError(
            f"skill {skill.name!r} cannot be copied from {skill.path or 'memory'} to {target}: {error}"
        ) from error
    return target


def _copy_tree(source: Path, target: Path) -> None:
    real_root = Path(os.path.realpath(source))
    waiting = [(real_root, target)]
    while waiting:
        folder, copy = waiting.pop()
        copy.mkdir(mode=0o700)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in _NOT_COPIED:
                    continue
                to = copy / entry.name
                if entry.is_symlink():
                    _copy_link(Path(entry.path), to, real_root)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((Path(entry.path), to))
                elif entry.is_file(follow_symlinks=False):
                    shutil.copyfile(entry.path, to, follow_symlinks=False)
                    shutil.copymode(entry.path, to, follow_symlinks=False)


def _copy_link(link: Path, to: Path, real_root: Path) -> None:
    text = link.readlink()
    real = Path(os.path.realpath(link))
    # An absolute target would lead back to the original, one that leaves the skill to anywhere.
    if not text.is_absolute() and real.is_relative_to(real_root):
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


def _link_out(folder: Path) -> None:
    for name, to in _LINKS.items():
        if not os.path.lexists(folder / name):
            (folder / name).symlink_to(to)


def _make_read_only(root: Path) -> None:
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                path.chmod(0o500 if mode & 0o111 else 0o400)
        Path(folder).chmod(0o500)
