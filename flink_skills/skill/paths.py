"""Which folders and files belong to a skill, and whether a path stays inside (format rules F01, S04)."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator

from flink_skills.skill.roles import ALWAYS_EXCLUDED, Role, is_environment, role_of

__all__ = ["inside", "is_foreign", "link_problem", "open_inside", "resource_parts", "skill_file_in", "walk_files"]

_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")


def skill_file_in(names: Collection[str]) -> str | None:
    """The name of the skill file among a folder's names: ``SKILL.md`` in exact case before any other.

    >>> skill_file_in(["skill.md", "SKILL.md"])
    'SKILL.md'
    """
    found = [name for name in names if len(name) == 8 and name.lower() == "skill.md"]
    return None if not found else "SKILL.md" if "SKILL.md" in found else min(found)


def is_foreign(names: Collection[str]) -> bool:
    """Return True if a folder below a skill is not part of it: a nested skill or a virtual environment.

    ``names`` are the entries of the folder.

    >>> is_foreign(["SKILL.md"]), is_foreign(["pyvenv.cfg"]), is_foreign(["a.md"])
    (True, True, False)
    """
    return skill_file_in(names) is not None or is_environment(names)


def inside(path: str, root: str) -> bool:
    """Whether ``path`` is ``root`` or below it. Both are real paths."""
    return path == root or path.startswith(root if root.endswith(os.sep) else root + os.sep)


def link_problem(path: str) -> tuple[str, str]:
    """Return why a link is skipped, and the fix: it points to nothing, or to a place outside its source."""
    if os.path.exists(path):
        return "the link leaves its source and was skipped", "copy what it points to"
    try:
        target = os.readlink(path)
    except OSError:  # a link on the way to it
        target = os.path.realpath(path)
    return f"the link points to {target!r}, which does not exist, and was skipped", "correct the link, or remove it"


def open_inside(path: str, root: str) -> int | None:
    """Open a file for reading: its descriptor, or None when it lies outside of the real path ``root``.

    Links on the way are followed. What counts is where the opened file lies, so that nothing can change
    between the check and the reading. Raises :class:`OSError`.
    """
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        real = os.path.realpath(path)
        if not inside(real, root):
            return None
        descriptor = os.open(real, _READ_FLAGS)
    try:
        if inside(_real_path(descriptor, path), root):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _real_path(descriptor: int, path: str) -> str:
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no /proc: the path once more
        return os.path.realpath(path)
    return real if real.startswith("/") else os.path.realpath(path)


def resource_parts(path: str) -> tuple[str, ...]:
    """The parts of a relative path inside a skill. Raises :class:`ValueError` saying what is wrong with it.

    >>> resource_parts("./references/a.md")
    ('references', 'a.md')
    """
    if "\0" in path or "\\" in path:
        raise ValueError("a path has neither backslashes nor NUL; write it with '/'")
    if _ENCODED.search(path):
        raise ValueError("a path is not percent-encoded")
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise ValueError("the path must be relative to the skill's folder")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ValueError("a path must not contain '..'")
    if not parts:
        raise ValueError("the path is empty")
    return parts


def walk_files(
    folder: str,
    root: str,
    limit: int,
    skipped_links: list[str],
    excluded: list[str] | None = None,
    *,
    also: Collection[Role] = (),
) -> Iterator[tuple[str, str]]:
    """Yield ``(relative path, real path)`` of the regular files of a skill, sorted within each folder.

    Nested skills are skills of their own and omitted. A link is followed if its target is inside ``root``. Generated
    files, virtual environments, tests and proofs are not part of a skill, and neither are links to them.

    Args:
        folder: The folder of the skill.
        root: The real path that links must not leave.
        limit: Maximum number of files.
        skipped_links: Receives the relative paths of the links that leave ``root`` or point to nothing.
        excluded: Receives the relative paths of files and folders that are not part of the skill, the topmost only.
        also: Roles of files that are yielded although they are not part of a skill.
    """
    real_folder = os.path.realpath(folder)
    seen = {real_folder}
    pending = [("", folder)]
    count = 0
    while pending:
        prefix, current = pending.pop()
        try:
            names = sorted(os.listdir(current))
        except OSError:
            continue  # an unreadable folder has no files that anybody could read
        if prefix:
            if skill_file_in(names):
                continue
            if "generated" not in also and is_environment(names):
                _note(excluded, prefix[:-1])
                continue
        below: list[tuple[str, str]] = []
        for name in names:
            if name in ALWAYS_EXCLUDED:
                continue
            path, relative = os.path.join(current, name), prefix + name
            if _is_left_out(relative, also):
                _note(excluded, relative)
                continue
            real = os.path.realpath(path) if os.path.islink(path) else path
            if real is not path and not inside(real, root):
                skipped_links.append(relative)
                continue
            if real is not path and inside(real, real_folder) and _is_left_out(real[len(real_folder) + 1 :], also):
                _note(excluded, relative)
                continue
            if os.path.isfile(real):
                count += 1
                if count > limit:
                    return
                yield relative, real
            elif os.path.isdir(real):
                target = os.path.realpath(real)
                if target not in seen:
                    seen.add(target)
                    below.append((relative + "/", path))
            elif real is not path and not os.path.lexists(real):
                skipped_links.append(relative)
        pending.extend(reversed(below))


def _note(excluded: list[str] | None, path: str) -> None:
    if excluded is not None:
        excluded.append(path)


def _is_left_out(path: str, also: Collection[Role]) -> bool:
    role = role_of(path)
    return role not in ("model", "person") and role not in also
