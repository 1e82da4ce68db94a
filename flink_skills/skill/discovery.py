"""Find the skills in a tree of folders (format.md, section 3)."""

# Paths are text here: they come from listings and descriptors by the thousand, where pathlib costs more than
# the calls themselves.
# ruff: noqa: PTH118, PTH119

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from flink_skills.skill.diagnostic import Report
from flink_skills.skill.limits import Limits
from flink_skills.skill.paths import SKIPPED, inside, skill_file_in

__all__ = ["Found", "find_skills"]

_NOT_SEARCHED = SKIPPED | {"node_modules"}


class Found(NamedTuple):
    """A folder with a skill file in it."""

    folder: str
    skill_file: str


def find_skills(root: str, report: Report, limits: Limits) -> Iterator[Found]:
    """Yield the skills at and below ``root``, in an order that depends on names alone.

    A skill inside a skill is found too. Real folders come before linked ones, so that a link to a folder that
    is found anyway adds nothing; a link that leaves ``root`` is skipped and reported, and so is a limit.
    """
    real_root = os.path.realpath(root)
    seen = {real_root}
    pending: list[tuple[str, str, int]] = [(root, real_root, 0)]
    linked: list[tuple[str, int]] = []
    visited = 0
    too_deep: list[str] = []
    while pending or linked:
        if pending:
            folder, real, depth = pending.pop()
        else:
            folder, depth = linked.pop(0)
            real = os.path.realpath(folder)
            if real in seen:
                continue
            seen.add(real)
        if visited >= limits.tree_directories:
            mend = "point the source at a smaller folder"
            report.add("D01", f"stopped after {visited} folders", path=folder, mend=mend)
            break
        visited += 1
        names, folders, links = _entries(folder, real_root, report)
        if skill_file := skill_file_in(names):
            yield Found(folder, skill_file)
        if depth >= limits.tree_depth:
            too_deep.extend(folders[:1])
            continue
        for path in reversed(folders):
            below = os.path.join(real, os.path.basename(path))
            if below not in seen:
                seen.add(below)
                pending.append((path, below, depth + 1))
        linked.extend((path, depth + 1) for path in links)
    if too_deep:
        message = f"folders more than {limits.tree_depth} levels down were not searched"
        report.add("D01", message, path=too_deep[0], mend="point the source at a deeper folder")


def _entries(folder: str, real_root: str, report: Report) -> tuple[list[str], list[str], list[str]]:
    """Names of files, paths of folders and paths of links to folders, each sorted."""
    names: list[str] = []
    folders: list[str] = []
    links: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name in _NOT_SEARCHED:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_symlink():
                    names.append(entry.name)
                elif not inside(os.path.realpath(entry.path), real_root):
                    mend = "copy what it points to"
                    report.add("S04", "the link leaves its source and was skipped", path=entry.path, mend=mend)
                elif entry.is_dir():
                    links.append(entry.path)
                else:
                    names.append(entry.name)
    except OSError as error:
        mend = "check the folder's permissions"
        report.add("D05", f"cannot be read: {error.strerror}", path=folder, mend=mend)
    return names, folders, links
