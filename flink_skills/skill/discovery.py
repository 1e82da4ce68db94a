"""Find the skills in a tree of folders (format.md, section 3)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from flink_skills.skill.diagnostic import Report
from flink_skills.skill.limits import Limits
from flink_skills.skill.paths import inside, link_problem, skill_file_in
from flink_skills.skill.roles import is_generated

__all__ = ["Found", "find_skills"]

# Folders that are searched beyond a limit to count the skills there.
_MAX_COUNTED = 50_000

_DEEPER = "raise skills.limits.tree-depth, or point the source at a deeper folder"

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
    found with the files beside it. A link that leaves ``root`` is skipped and reported. A limit is reported with the
    number of skills that it leaves out. The folders inside a skill, such as its references, are counted apart from
    those that are searched for skills: each skill may have as many as the whole search.
    """
    real_root = os.path.realpath(root)
    seen = {real_root}
    outside = [0]  # the count of folders that are in no skill
    pending: list[_Folder] = [(root, real_root, 0, outside)]
    linked: deque[_Folder] = deque()
    by_link: list[Found] = []
    skipped: dict[int, tuple[list[int], list[str]]] = {}
    too_deep: list[str] = []
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
            skipped.setdefault(id(count), (count, []))[1].append(folder)
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
        elif count is outside and "tools.py" in names and not os.path.exists(os.path.join(folder, "__init__.py")):
            report.add("D09", "the folder has tools.py and no SKILL.md, so it is not read", path=folder)
        if depth >= limits.tree_depth:
            too_deep.extend(os.path.join(folder, name) for name in folders)
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
    beyond = _Beyond(real_root, report)
    for _, folders in skipped.values():
        beyond.add(folders, f"the search stopped after {limits.tree_directories:,} folders")
    beyond.add(too_deep, f"folders more than {limits.tree_depth} levels down are not searched", fix=_DEEPER)


class _Beyond:
    """Counts and reports the skills in folders that a limit kept from being searched."""

    def __init__(self, real_root: str, report: Report) -> None:
        self._real_root = real_root
        self._report = report
        self._budget = _MAX_COUNTED

    def add(self, folders: list[str], reason: str, *, fix: str = "") -> None:
        """Report the skills in ``folders``, if there are any."""
        left_out, counted = self._count(folders)
        if counted and not left_out:
            return
        number = f"{left_out:,}" if counted else f"at least {left_out:,}"
        skills = f"{number} skill is" if left_out == 1 else f"{number} skills are"
        message = f"{skills} left out: {reason}" if left_out else reason
        self._report.add("D01", message, path=folders[0], fix=fix, left_out=left_out)

    def _count(self, folders: list[str]) -> tuple[int, bool]:
        """Return the number of skills in ``folders`` and below, and whether all of these were searched."""
        pending = folders[::-1]
        found = 0
        unreported = Report()
        while pending:
            if not self._budget:
                return found, False
            self._budget -= 1
            folder = pending.pop()
            names, below, _ = _entries(folder, self._real_root, unreported)
            found += bool(names and skill_file_in(names))
            pending.extend(os.path.join(folder, name) for name in reversed(below))
        return found, True


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
                        report.add("S04", message, path=entry.path, fix=fix)
                    elif os.path.isdir(entry.path):  # False, and no error, for a link to itself
                        links.append(name)
                    else:
                        names.append(name)
                elif len(name) == 8:
                    names.append(name)
    except OSError as error:
        report.add(
            "D05", f"the folder cannot be read: {error.strerror}", path=folder, fix="check the folder's permissions"
        )
    folders.sort()
    links.sort()
    return names, folders, links
