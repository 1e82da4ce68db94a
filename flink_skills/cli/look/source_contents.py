"""Skills and diagnostics of sources, read with the rules of a job."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from flink_skills.cli.shared_options import absolute_source, is_url, parse_source
from flink_skills.cli.terminal_output import diagnostic_line, print_note, print_omitted
from flink_skills.endpoint import redact
from flink_skills.errors import ResourceError, SkillsError, SourceError, counted
from flink_skills.manager.source_loading import Declared, iterate_tree
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import AgentSkill, Diagnostic, Found, Limits, LoadResult, Report, find_servers, load_found
from flink_skills.skill.diagnostic import CODES
from flink_skills.skill.file_rules import inside
from flink_skills.skill.script_checks import check_scripts
from flink_skills.skill.server_files import not_started
from flink_skills.skill.skill_inspection import check_credentials, check_evals, inspect_skill
from flink_skills.skill.support import check_support
from flink_skills.sources import SourceContext, SourceTree
from flink_skills.sources.skill_source import SourceSpec
from flink_skills.tools import SkillSettings
from flink_skills.tools.dynamic import OfferedTools, check_tools


@dataclass(frozen=True)
class SourceSkill:
    """Skill in a source. The content of the skill is not retained.

    Attributes:
        path: Directory of the skill.
        origin: Source of the skill.
        source: Position of the source on the command line, from 0.
        status: ``"loaded"`` or ``"skipped"``.
        checked_digest: Digest of a loaded skill. None if the files cannot be read.
        plugin: Name of its plugin. An empty string if there is none.
    """

    name: str
    path: str
    origin: str
    source: int
    status: str = "skipped"
    checked_digest: str | None = None
    plugin: str = ""

    @property
    def digest(self) -> str | None:
        """Return the digest. Return None if the files cannot be read."""
        return self.checked_digest


@dataclass(frozen=True)
class LoadedSkill(SourceSkill):
    """Skill that loading accepted, with its content."""

    skill: AgentSkill = field(kw_only=True)

    @property
    def digest(self) -> str | None:
        try:
            return self.skill.digest
        except ResourceError:
            return None

    @property
    def sizes(self) -> dict[str, int]:
        """Return the size of each file in bytes. Return an empty mapping if the files cannot be read."""
        if self.digest is None:
            return {}
        return {path: size for path, (size, _) in sorted(self.skill.files.manifest().items())}


@dataclass
class SourceContents:
    """Result of reading sources: one loaded skill per name, and the skipped skills.

    ``strict_valid`` contains the names of the skills that strict loading accepts, regardless of the mode, ``plugins``
    the name of the plugin of each skill's directory.
    """

    skills: list[SourceSkill] = field(default_factory=list)
    strict_valid: set[str] = field(default_factory=set)
    plugins: dict[str, str] = field(default_factory=dict)
    _diagnostics: list[tuple[int, Diagnostic]] = field(default_factory=list)
    _shown_paths: list[tuple[str, str]] = field(default_factory=list)
    _trees: list[SourceTree] = field(default_factory=list)

    @property
    def loaded(self) -> list[LoadedSkill]:
        """Return the skills that a job loads, sorted by name."""
        return [skill for skill in self.skills if isinstance(skill, LoadedSkill)]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Return the diagnostics, sorted by source, path and line."""

        def sort_key(item: tuple[int, Diagnostic]) -> tuple[int, str, int, str, str]:
            source, diagnostic = item
            return source, diagnostic.path, diagnostic.line, diagnostic.code, diagnostic.message

        unique: dict[tuple[str, int, str, str], Diagnostic] = {}
        for _, diagnostic in sorted(self._diagnostics, key=sort_key):
            # The search and the inspection report the same links, but only the inspection names the skill.
            key = (diagnostic.path, diagnostic.line, diagnostic.code, diagnostic.message)
            if key not in unique or not unique[key].skill:
                unique[key] = diagnostic
        return list(unique.values())

    @property
    def has_errors(self) -> bool:
        """Return True if a diagnostic is an error."""
        return any(diagnostic.severity == "error" for _, diagnostic in self._diagnostics)

    def diagnostics_of(self, skill: SourceSkill) -> list[Diagnostic]:
        """Return the diagnostics of one skill."""
        return [one for one in self.diagnostics if one.skill == skill.name or inside(one.path, skill.path)]

    def plugin_of(self, diagnostic: Diagnostic) -> str:
        """Return the name of the plugin of a diagnostic about a skill, or an empty string."""
        path = diagnostic.path
        while path not in self.plugins and os.path.dirname(path) != path:
            path = os.path.dirname(path)
        return self.plugins.get(path, "")

    def display_path(self, path: str) -> str:
        """Return ``path`` below the source as written on the command line. Paths in archives follow ``!``."""
        for real, prefix in self._shown_paths:
            if inside(path, real):
                return (prefix + path[len(real.rstrip("/")) :]) or path
        return path


def report_problems(contents: SourceContents, diagnostics: list[Diagnostic] | None = None) -> None:
    """Print errors and the warnings about sources. Print only the number of the other warnings."""
    selected = contents.diagnostics if diagnostics is None else diagnostics
    printed = [one for one in selected if one.severity == "error" or (one.code[0] == "D" and one.severity == "warning")]
    for diagnostic in printed:
        print_note(*diagnostic_line(diagnostic, path=contents.display_path(diagnostic.path)))
    print_omitted(selected)
    warnings = sum(one.severity == "warning" for one in selected if one not in printed)
    if warnings:
        print_note(
            f"{counted(warnings, 'more warning' if printed else 'warning')}. "
            "Run flink-skills validate to see the details."
        )


# Starts the key of a skill of a server among those of plugins.
_SERVED = "\0"


class Depth(IntEnum):
    """Amount of a skill that is read: front matter; also files, for the digest; also body, with all checks."""

    FRONT_MATTER = 0
    FILES = 1
    BODY = 2


def read_sources(
    sources: Sequence[str],
    config: SkillConfig,
    depth: Depth,
    *,
    only: str | None = None,
    offered: OfferedTools | None = None,
) -> SourceContents:
    """Read sources with the precedence of a job: paths before URLs, then by position.

    A source that cannot be read or has no skill results in an error diagnostic.

    Args:
        sources: Paths and URLs as written on the command line.
        config: Options of the job.
        depth: Amount of each skill that is read.
        only: Name of the only skill whose files and body are read. None reads all.
        offered: Tools that an agent offers to the skills.
    """
    reader = _Reader(config, depth, only, offered)
    for number, source in _by_precedence(sources):
        reader.contents._diagnostics.extend((number, diagnostic) for diagnostic in reader.read(number, source))
    reader.sort()
    return reader.contents


class SkillStream:
    """Iterable of the diagnostics of sources, in the order of the search.

    Only the name, directory and digest of a skill are retained. Iterate once. After the iteration, ``contents`` has
    the skills without diagnostics.
    """

    def __init__(self, sources: Sequence[str], config: SkillConfig, *, offered: OfferedTools | None = None) -> None:
        self._sources = sources
        self._reader = _Reader(config, Depth.BODY, None, offered, is_stream=True)
        self.contents = self._reader.contents

    def __iter__(self) -> Iterator[Diagnostic]:
        for number, source in _by_precedence(self._sources):
            yield from self._reader.read(number, source)
        self._reader.sort()


def _by_precedence(sources: Sequence[str]) -> list[tuple[int, str]]:
    return sorted(enumerate(sources), key=lambda numbered: is_url(numbered[1]))


class _Reader:
    def __init__(
        self,
        config: SkillConfig,
        depth: Depth,
        only: str | None,
        offered: OfferedTools | None,
        *,
        is_stream: bool = False,
    ) -> None:
        self.contents = SourceContents()
        self._limits = Limits.from_config(config)
        self._context = SourceContext(config, limits=self._limits)
        self._strict = config.get(SkillOptions.STRICT)
        self._commands = config.get(SkillOptions.SHELL_ENABLED)
        self._started: tuple[str, ...] = config.get(SkillOptions.PLUGINS_SERVERS)
        self._servers = functools.cache(functools.partial(find_servers, limits=self._limits))
        self._depth = depth
        self._only = only
        # Only the names of an agent resolve a tool that allowed-tools names.
        self._names = offered.names if offered is not None else ()
        self._offered = offered or OfferedTools(bundled_off=SkillSettings.of(config).bundled_off)
        self._is_stream = is_stream
        # By name, then by plugin.
        self._winners: dict[str, dict[str, SourceSkill]] = {}
        self._folders: set[str] = set()
        self._links: set[tuple[str, str]] = set()

    def sort(self) -> None:
        """Give skills of several plugins their full names, and sort the skills by name, source and path."""
        full = {
            id(skill): f"{plugin.removeprefix(_SERVED)}:{name}"
            for name, winners in self._winners.items()
            for plugin, skill in winners.items()
            if plugin and len([other for other in winners if plugin[:1] == _SERVED or other[:1] != _SERVED]) > 1
        }
        self.contents.strict_valid |= {full[id(skill)] for skill in self.contents.skills if id(skill) in full}
        for index, skill in enumerate(self.contents.skills):
            if id(skill) in full:
                named = replace(skill, name=full[id(skill)])
                if isinstance(named, LoadedSkill):
                    named = replace(named, skill=named.skill.with_full_name())
                self.contents.skills[index] = named
        self.contents.skills.sort(key=lambda skill: (skill.name, skill.source, skill.path))

    def read(self, number: int, source: str) -> Iterator[Diagnostic]:
        """Read one source, and yield its diagnostics."""
        try:
            written = parse_source(source)
            declared = Declared("job", absolute_source(written))
            trees = declared.open(self._context).resolve()
        except SourceError as error:
            yield Diagnostic("D06", "error", str(error), path=error.source)
            return
        except SkillsError as error:  # The location is invalid.
            yield Diagnostic("D06", "error", str(error), path=redact(source) if is_url(source) else source)
            return
        count = 0
        for tree in trees:
            self._add_shown_path(written, declared.spec.location, tree)
            self.contents._trees.append(tree)  # The lease keeps the tree in the store.
            report = Report(tree.path, strict=self._strict)
            valid: dict[str, str] = {}
            for found, result in iterate_tree(tree, self._context, report):
                count += 1
                if found.folder not in self._folders:  # Nested sources yield a directory twice.
                    self._folders.add(found.folder)
                    yield from self._read(number, tree, found, result, valid)
            yield from self._tree_diagnostics(tree, report, valid)
        if not count and not any(self._servers(os.path.realpath(tree.path)) for tree in trees):
            origin = redact(source) if is_url(source) else str(declared.spec)
            message, fix = f"there is no skill in {origin}", "a skill is a folder with a SKILL.md"
            # A job only warns, but here the user named the source.
            yield Diagnostic("D04", "error", message, path=origin, fix=fix)

    def _add_shown_path(self, source: SourceSpec, path: str, tree: SourceTree) -> None:
        real, written = os.path.realpath(tree.path), source.location
        if source.kind == "url":
            self.contents._shown_paths.append((real, f"{tree.origin}!"))
            return
        in_place = real == os.path.realpath(path)
        self.contents._shown_paths.append((real, written.rstrip("/") if in_place else f"{written}!"))
        self.contents._shown_paths.append((path, written))

    def _tree_diagnostics(self, tree: SourceTree, report: Report, valid: Mapping[str, str]) -> Iterator[Diagnostic]:
        """Yield the diagnostics of a source and of the search for skills in it.

        ``valid`` maps the directories of skills that strict loading accepts to their names.
        """
        for diagnostic in (*tree.notes, *report.diagnostics):
            if _fails_strict(diagnostic):
                parent = diagnostic.path
                while parent not in valid and os.path.dirname(parent) != parent:
                    parent = os.path.dirname(parent)
                self.contents.strict_valid.discard(valid.get(parent, ""))
            # The search and the inspection report the same links, but only the inspection names the skill.
            is_started = diagnostic.message in map(not_started, self._started)
            if not is_started and (diagnostic.path, diagnostic.message) not in self._links:
                yield diagnostic

    def _read(
        self, number: int, tree: SourceTree, found: Found, result: LoadResult, valid: dict[str, str]
    ) -> Iterator[Diagnostic]:
        folder, diagnostics = found.folder, list(result.diagnostics)
        plugin = result.skill.plugin if result.skill else found.plugin.name if found.plugin else ""
        self.contents.plugins[folder] = plugin
        if self._depth is not Depth.FRONT_MATTER:
            # Strict loading returns no skill if it rejects it. Inspect the rejected skill as well.
            skill = result.skill or (self._load_leniently(tree, found) if self._strict else None)
            if skill is not None and self._only in (None, skill.name, skill.full_name):
                diagnostics += self._inspect(skill, tree)
        name = result.skill.name if result.skill else next((one.skill for one in diagnostics if one.skill), "")
        name = name or os.path.basename(folder)
        strict_valid = result.strict_valid and not any(_fails_strict(one) for one in diagnostics)
        if strict_valid:
            self.contents.strict_valid.add(name)
            valid[folder] = name
        self._links.update((one.path, one.message) for one in diagnostics if one.code == "S04")
        yield from dict.fromkeys(sorted(diagnostics, key=lambda one: (one.path, one.line, one.code, one.message)))
        if result.skill is None or (self._strict and not strict_valid):
            self.contents.skills.append(SourceSkill(name, folder, tree.origin, number, plugin=plugin))
        else:
            yield from self._add(
                LoadedSkill(name, folder, tree.origin, number, "loaded", plugin=plugin, skill=result.skill)
            )

    def _load_leniently(self, tree: SourceTree, found: Found) -> AgentSkill | None:
        root = os.path.realpath(tree.path)
        return load_found(found, root=root, origin=tree.origin, limits=self._limits, format=tree.format).skill

    def _inspect(self, skill: AgentSkill, tree: SourceTree) -> list[Diagnostic]:
        unreadable: list[Diagnostic] = []
        try:
            skill.files.manifest()  # Lists the files, which the checks below use.
        except ResourceError as error:
            fix = "check the file and its permissions"
            unreadable.append(Diagnostic("D05", "error", str(error), skill.name, skill.path or "", fix=fix))
        diagnostics: list[Diagnostic] = []
        if self._depth is Depth.BODY:
            diagnostics += inspect_skill(skill, self._limits, strict=self._strict)
            diagnostics += check_credentials(skill, strict=self._strict)
            diagnostics += check_evals(skill)
            diagnostics += check_scripts(skill, self._limits, strict=self._strict)
            servers = functools.partial(self._servers, tree.path)
            diagnostics += check_support(
                skill, commands=self._commands, tools=self._names, servers=servers, started=self._started
            )
            diagnostics += check_tools(skill, strict=self._strict, offered=self._offered, limits=self._limits)
        return diagnostics + unreadable

    def _add(self, skill: LoadedSkill) -> Iterator[Diagnostic]:
        """Add a skill, or yield a diagnostic if an earlier skill of its plugin, or of none, has the same name."""
        plugin = skill.skill.plugin
        others = self._winners.setdefault(skill.name, {})
        if skill.skill.server:  # Such a skill has its own name.
            plugin = _SERVED + plugin
            winner = others.get(plugin)
        else:
            equal = (of for key, of in others.items() if key[:1] != _SERVED and of.digest == skill.digest)
            same = next(equal, None) if skill.digest is not None else None
            winner = others.get(plugin) or others.get("") or same
        if winner is None:
            stored: SourceSkill = skill
            if self._is_stream:  # Retain only the digest.
                stored = SourceSkill(skill.name, skill.path, skill.origin, skill.source, "loaded", skill.digest, plugin)
            others[plugin] = stored
            self.contents.skills.append(stored)
        elif skill.digest is not None and skill.digest == winner.digest:
            message, fix = f"the skill is identical to {winner.path}", "remove one of them"
            yield Diagnostic("D03", "info", message, skill.name, skill.path, fix=fix)
        else:
            message = f"the skill is not used: {skill.name!r} of {winner.path} was declared first"
            fix = "rename or remove one of them"
            yield Diagnostic("D02", "warning", message, skill.name, skill.path, fix=fix)


def _fails_strict(diagnostic: Diagnostic) -> bool:
    """Return True if strict loading treats the diagnostic as an error.

    Codes of other packages have the severity of the diagnostic.
    """
    code = CODES.get(diagnostic.code)
    return (code.strict if code else diagnostic.severity) == "error"
