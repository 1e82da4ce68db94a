"""Loader of skills: it finds the skill folders in a tree, and reads the front matter of each one."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from flink_skills.skill.agent_skill import AgentSkill
from flink_skills.skill.diagnostic import CODES, Diagnostic, Report
from flink_skills.skill.file_rules import inside, is_generated, link_problem, open_inside, skill_file_in
from flink_skills.skill.frontmatter import starts_with_front_matter
from flink_skills.skill.plugins import MANIFEST, Plugin, is_plugin, plugins_in, report_unselected
from flink_skills.skill.server_files import PluginServer
from flink_skills.skill.skill_fields import Fields, read_fields
from flink_skills.skill.skill_limits import Limits
from flink_skills.skill.text import is_utf16

# Folders that are searched beyond a limit to count the skills there.
_MAX_COUNTED = 50_000

_DEEPER = "raise skills.limits.tree-depth, or point the source at a deeper folder"

# A folder to look into: its path, its real path, its depth, and the count that it adds to.
_Folder = tuple[str, str, int, list[int]]
_DEFAULT_LIMITS = Limits()


class Found(NamedTuple):
    """A folder with a skill file in it. ``plugin`` is the plugin that it belongs to."""

    folder: str
    skill_file: str
    plugin: Plugin | None = None

    def root(self, real: str) -> str:
        """Return the real path that links must not leave, in a tree with the real path ``real``."""
        return real if self.plugin is None else self.plugin.root


def find_skills(
    root: str, report: Report, limits: Limits, servers: list[PluginServer] | None = None
) -> Iterator[Found]:
    """Yield the skills at and below ``root``, in an order that depends on names alone.

    A skill inside a skill is found too. Real folders precede linked ones, so that a link to a folder that is found
    adds nothing. Folders whose skill file is a link come last, because their target can be found with the files next
    to it. A link that leaves ``root`` is skipped and reported. A limit is reported with the number of skills that it
    omits. The folders inside a skill, such as its references, are counted separately from those that are searched for
    skills: each skill can have as many as the whole search. ``servers`` receives the MCP servers of plugins.
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
        if count is outside and is_plugin(names, folders) and (plugins := plugins_in(folder, report)) is not None:
            if servers is not None:
                servers += [server for plugin in plugins for server in plugin.servers]
            yield from _skills_of(plugins, report)
            report_unselected(folder, plugins, limits, report)
            continue
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


def find_servers(root: str, limits: Limits) -> list[PluginServer]:
    """Return the MCP servers of the plugins at and below ``root`` that have no faults."""
    servers: list[PluginServer] = []
    deque(find_skills(root, Report(root), limits, servers), maxlen=0)
    return servers


def _skills_of(plugins: Sequence[Plugin], report: Report) -> Iterator[Found]:
    """Yield the skills of plugins, each folder once."""
    seen = set()
    for plugin in plugins:
        for folder in plugin.folders:
            try:
                names = os.listdir(folder)
            except OSError as error:
                report.add("D05", f"the folder cannot be read: {error.strerror}", path=folder)
                continue
            skill_file = skill_file_in(names)
            if skill_file is None or folder in seen or (plugin.is_standard and skill_file != "SKILL.md"):
                continue
            seen.add(folder)
            path = os.path.join(folder, skill_file)
            if not inside(os.path.realpath(path), plugin.root):
                report.add("S04", "the skill file is a link that leaves its plugin", path=path)
            elif os.path.isfile(path) or not plugin.is_standard:
                yield Found(folder, skill_file, plugin)


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
                if name == MANIFEST:
                    names.append(name)
                elif entry.is_dir(follow_symlinks=False):
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


@dataclass(frozen=True)
class LoadResult:
    """A skill with diagnostics, or diagnostics alone. ``strict_valid``: strict loading accepts it."""

    skill: AgentSkill | None
    diagnostics: tuple[Diagnostic, ...]
    strict_valid: bool


def load_folder(
    folder: str,
    *,
    root: str | None = None,
    skill_file: str | None = None,
    folder_name: str | None = None,
    origin: str = "",
    remote: bool = False,
    strict: bool = False,
    limits: Limits = _DEFAULT_LIMITS,
    format: str = "skill",
    plugin: str = "",
    known_fields_only: bool = False,
) -> LoadResult:
    """Load the skill in ``folder`` (an absolute path).

    ``root`` is the real path that links must not leave (the folder itself by default). ``folder_name`` replaces the
    folder's name. With ``format="heading"``, or with a ``schema.json`` or ``tools.py`` in the folder, a file
    without front matter is accepted too: its first ``# `` heading is the description. ``known_fields_only`` makes
    unknown fields errors of strict loading. Never raises for the folder's content.
    """
    root = os.path.realpath(folder) if root is None else root
    if skill_file is None:
        with suppress(OSError):
            skill_file = skill_file_in(os.listdir(folder))
    path = os.path.join(folder, skill_file or "SKILL.md")
    name = folder_name or os.path.basename(folder)
    report = Report(path, strict=strict, known_fields_only=known_fields_only, skill=name)
    if skill_file is None:
        report.add("F01", "there is no SKILL.md in the folder", severity="error", fix="add one")
        return LoadResult(None, tuple(report.diagnostics), strict_valid=False)
    if skill_file != "SKILL.md":
        report.add("F01", f"the skill file is named {skill_file}")
    form = "skill"
    fields: Fields | None = None
    if (start := _read_start(path, root, report, limits)) is not None:
        data, complete = start
        if is_utf16(data):
            report.add("L16", "the file is in UTF-16 instead of UTF-8")
        else:
            heading = not starts_with_front_matter(data) and (format == "heading" or _has_tool_files(folder))
            fields, form = read_fields(data, report, limits, folder=name, heading=heading, complete=complete)
    if fields is None or report.has_errors:
        return LoadResult(None, tuple(report.diagnostics), report.strict_valid)
    skill = AgentSkill.from_folder(
        folder,
        fields,
        root=root,
        skill_file=skill_file,
        origin=origin,
        remote=remote,
        limits=limits,
        form=form,
        plugin=plugin,
    )
    return LoadResult(skill, tuple(report.diagnostics), report.strict_valid)


def load_found(found: Found, *, root: str, **options: Any) -> LoadResult:
    """Load a skill that :func:`find_skills` found below the real path ``root``. ``options``: see :func:`load_folder`.

    A skill of a plugin of the standard has to conform to the specification of skills, and is skipped otherwise. Its
    links must not leave the plugin.
    """
    plugin = found.plugin
    options["plugin"] = "" if plugin is None else plugin.name
    result = load_folder(found.folder, root=found.root(root), skill_file=found.skill_file, **options)
    if plugin is None or not plugin.is_standard or result.skill is None or result.strict_valid:
        return result
    problems = ", ".join(sorted({each.code for each in result.diagnostics if CODES[each.code].strict == "error"}))
    message = f"plugin {plugin.name!r} omits the skill, because it does not conform to the specification: {problems}"
    path = os.path.join(found.folder, found.skill_file)
    skipped = Diagnostic("G05", "error", message, result.skill.name, path, fix=CODES["G05"].fix)
    return LoadResult(None, (*result.diagnostics, skipped), strict_valid=False)


def _has_tool_files(folder: str) -> bool:
    """Return True if the folder has files that only skills of the form "heading" have."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in ("schema.json", "tools.py"))


def _read_start(path: str, root: str, report: Report, limits: Limits) -> tuple[bytes, bool] | None:
    """The file's beginning, enough for the front matter, and whether that is all of it."""
    try:
        descriptor = open_inside(path, root)
        if descriptor is None:
            report.add("S04", "the skill file is a link that leaves its source", severity="error")
            return None
    except OSError as error:
        is_dangling = os.path.islink(path) and not os.path.exists(path)
        message, fix = link_problem(path) if is_dangling else (f"the file cannot be read: {error.strerror}", "")
        report.add("D05", message, fix=fix)
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            report.add("D05", "the path is not a regular file", fix="replace it with a file")
            return None
        if status.st_size > limits.skill_file:
            message = f"the file has {status.st_size} bytes; the limit is {limits.skill_file}"
            report.add("S05", message, fix="move parts of it into references")
            return None
        head = os.read(descriptor, limits.front_matter + 64)
        return head, len(head) >= status.st_size
    except OSError as error:
        report.add("D05", f"the file cannot be read: {error.strerror}")
        return None
    finally:
        os.close(descriptor)
