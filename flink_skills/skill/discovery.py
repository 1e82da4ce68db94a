"""Find the skills in a tree of folders (format.md, section 3)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from flink_skills.skill.diagnostic import Report
from flink_skills.skill.generated import is_generated
from flink_skills.skill.limits import Limits
from flink_skills.skill.paths import inside, link_problem, skill_file_in

__all__ = ["Found", "find_skills"]

# A folder to look into: its path, its real path, its depth, and the count that it adds to.
_Folder = tuple[str, str, int, list[int]]


class Found(NamedTuple):
    """A folder with a skill file in it."""

    folder: str
    skill_file: str


def find_skills(root: str, report: Report, limits: Limits) -> Iterator[Found]:
    """Yield the skills at and below ``root``, in an order that depends on names alone.

    A skill inside a skill is found too. Real folders come before linked ones, so that a link to a folder that
    is found anyway adds nothing, and folders whose skill file is a link come last: what they link to may be
    found with the files beside it. A link that leaves ``root`` is skipped and reported, and so is a limit. The
    folders inside a skill, such as its references, are counted apart from those that are searched for skills:
    each skill may have as many as the whole search.
    """
    real_root = os.path.realpath(root)
    seen = {real_root}
    pending: list[_Folder] = [(root, real_root, 0, [0])]
    linked: deque[_Folder] = deque()
    by_link: list[Found] = []
    too_deep = ""
    while pending or linked:
        if pending:
            folder, real, depth, count = pending.pop()
        else:
            folder, _, depth, count = linked.popleft()
            real = os.path.realpath(folder)
            if real in seen:
                continue
            seen.add(real)
        if count[0] >= limits.tree_directories:
            if count[0] == limits.tree_directories:
                report.add("D01", f"stopped after {count[0]} folders", path=folder)
                count[0] += 1
            continue
        count[0] += 1
        names, folders, links = _entries(folder, real_root, report)
        if names and (skill_file := skill_file_in(names)):
            count = [0]
            found = Found(folder, skill_file)
            if os.path.islink(os.path.join(folder, skill_file)):
                by_link.append(found)
            else:
                yield found
        if depth >= limits.tree_depth:
            too_deep = too_deep or (folders and os.path.join(folder, folders[0])) or ""
            continue
        if not folders and not links:
            continue
        above = folder if folder.endswith("/") else folder + "/"
        real_above = real if real.endswith("/") else real + "/"
        for name in reversed(folders):
            below = real_above + name
            if below not in seen:
                seen.add(below)
                pending.append((above + name, below, depth + 1, count))
        if links:
            linked.extend((above + name, "", depth + 1, count) for name in links)
    yield from by_link
    if too_deep:
        message = f"folders more than {limits.tree_depth} levels down were not searched"
        mend = "point the source at a deeper folder, or raise skills.limits.tree-depth"
        report.add("D01", message, path=too_deep, mend=mend)


def _entries(folder: str, real_root: str, report: Report) -> tuple[list[str], list[str], list[str]]:
    """Names of possible skill files, of folders and of links to folders, the latter two sorted."""
    names: list[str] = []
    folders: list[str] = []
    links: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if not is_generated(name):
                        folders.append(name)
                elif entry.is_symlink():
                    if is_generated(name):
                        continue
                    if not inside(os.path.realpath(entry.path), real_root):
                        message, fix = link_problem(entry.path)
                        report.add("S04", message, path=entry.path, mend=fix)
                    elif os.path.isdir(entry.path):  # False, and no error, for a link to itself
                        links.append(name)
                    else:
                        names.append(name)
                elif len(name) == 8:
                    names.append(name)
    except OSError as error:
        report.add("D05", f"cannot be read: {error.strerror}", path=folder, mend="check the folder's permissions")
    folders.sort()
    links.sort()
    return names, folders, links
