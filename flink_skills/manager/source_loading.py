"""Loads declared sources into entries, and keeps the entries that have not changed since the last load."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from flink_skills.errors import ConfigError, ResourceError, SourceError
from flink_skills.manager.scope import Level, SkillScope
from flink_skills.options import SkillOptions
from flink_skills.skill import AgentSkill, Diagnostic, Found, LoadResult, Report, find_skills, load_found
from flink_skills.skill.file_rules import walk_files
from flink_skills.skill.loader import find_servers
from flink_skills.skill.server_files import PluginServer
from flink_skills.sources import CodeSource, SkillSource, SourceContext, SourceSpec, SourceTree, open_source
from flink_skills.sources.catalog_index import read_index

T = TypeVar("T")
R = TypeVar("R")


def folder_signature(folder: str, root: str, limit: int) -> bytes:
    """Return a value that changes when a file of the skill in ``folder`` is written, added, renamed or removed.

    It consists of path, size, times and inode of each file, at most ``limit``. No file is opened. The value can change
    although the content is the same: only a digest shows that. ``root`` is the real path that links must not leave.
    """
    links: list[str] = []
    found: list[tuple[str, int, int, int, int]] = []
    for path, _, status in walk_files(folder, root, limit, links):
        found.append((path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return hashlib.blake2b(repr((found, links)).encode(errors="surrogateescape"), digest_size=16).digest()


class Entry:
    """A folder with a skill file, loaded.

    ``signature`` is what :func:`folder_signature` said before anything was read, None where the digest was known
    without reading (from the store's index). ``findings`` are what an inspection found, None
    before one.
    """

    __slots__ = ("_bound", "_full", "_limit", "_lock", "_root", "findings", "folder", "result", "signature")

    def __init__(self, folder: str, result: LoadResult, *, root: str, limit: int, signature: bytes | None) -> None:
        self.folder = folder
        self.result = result
        self.signature = signature
        self.findings: tuple[Diagnostic, ...] | None = None
        self._root = root
        self._limit = limit
        self._bound = False
        self._full: AgentSkill | None = None
        self._lock = threading.Lock()

    @property
    def skill(self) -> AgentSkill | None:
        return self.result.skill

    def full_named(self, skill: AgentSkill) -> AgentSkill:
        """Return ``skill``, that of the entry, under its full name: the same object each time."""
        if self._full is None:
            self._full = skill.with_full_name()
        return self._full

    @property
    def is_bound(self) -> bool:
        """Return True if the digest belongs to the content at loading."""
        return self._bound

    def bind(self) -> str:
        """Return the skill's digest at loading. The first call can read all files.

        Later reads are compared with it (format rule S08). Raises :class:`ResourceError` if the files cannot be read
        or have changed since the skill was loaded.
        """
        skill = self.result.skill
        if skill is None:
            raise ResourceError(f"there is no skill in {self.folder}")
        if self._bound:
            return skill.digest
        with self._lock:
            if not self._bound:
                self._check_signature(skill)
                digest = skill.digest
                # Again: it may have been written while it was read.
                self._check_signature(skill)
                self._bound = True
                return digest
        return skill.digest

    def renewed(self, result: LoadResult, signature: bytes | None) -> Entry:
        """This skill under a new signature: its files were touched, but its digest is the same."""
        entry = Entry(self.folder, result, root=self._root, limit=self._limit, signature=signature)
        entry._bound, entry.findings = self._bound, self.findings
        return entry

    def _check_signature(self, skill: AgentSkill) -> None:
        if self.signature is None or self.signature == folder_signature(self.folder, self._root, self._limit):
            return
        raise ResourceError(
            f"skill {skill.name!r}: {self.folder} has changed since it was loaded; load the skills again"
        )


class Declared(NamedTuple):
    """A source as a scope declares it. ``skill`` is one that was made in code."""

    level: Level
    spec: SourceSpec
    skill: AgentSkill | None = None

    def open(self, context: SourceContext) -> SkillSource:
        """Return the source. Raise :class:`ConfigError` for a location that can never work."""
        if self.skill is not None:
            return CodeSource(self.skill, context)
        return open_source(self.spec.kind, self.spec, context)


@dataclass(eq=False)
class LoadedTree:
    """A folder of a source, and the skills in it."""

    tree: SourceTree
    real: str
    entries: tuple[Entry, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
    _servers: list[PluginServer] | None = None

    def servers(self, context: SourceContext) -> Sequence[PluginServer]:
        """Return the MCP servers of the plugins in the tree. The first call searches it."""
        if self._servers is None:
            self._servers = find_servers(self.real, context.limits)
        return self._servers

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What there is to say of the tree: by the source, and by the search for skills in it."""
        return (*self.tree.notes, *self.remarks)

    def close(self) -> None:
        """Let the store remove the folder."""
        if self.tree.lease is not None:
            self.tree.lease.close()


@dataclass(eq=False)
class LoadedSource:
    """What a source gave: its trees, or why it cannot be read (then the trees are those of before).

    ``diagnostics`` are about the source, not about what is in its trees.
    """

    declared: Declared
    trees: tuple[LoadedTree, ...] = ()
    failure: SourceError | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    def at(self, real: str, format: str) -> LoadedTree | None:
        """The tree that was loaded from that folder in that format."""
        return next((tree for tree in self.trees if (tree.real, tree.tree.format) == (real, format)), None)


def in_threads(work: Callable[[T], R], items: Sequence[T], most: int, name: str) -> list[R]:
    """Return what ``work`` returns for each item, in order. At most ``most`` threads run at the same time."""
    if len(items) < 2:
        return list(map(work, items))
    with ThreadPoolExecutor(min(most, len(items)), name) as pool:
        return list(pool.map(work, items))


def declared_sources(scopes: Iterable[SkillScope]) -> list[Declared]:
    """All sources of ``scopes``, in order: of each scope first the skills that were made in code."""
    declared: list[Declared] = []
    for scope in scopes:
        declared += [Declared(scope.level, SourceSpec(CodeSource.kind, skill.name), skill) for skill in scope.skills]
        declared += [Declared(scope.level, spec) for spec in scope.sources]
    return declared


def read_sources(
    declared: Sequence[Declared], context: SourceContext, *, strict: bool, before: Sequence[LoadedSource] = ()
) -> list[LoadedSource]:
    """Resolve and read all sources, several of them at once where they have to be fetched.

    ``before`` is what the same sources gave last time: what did not change is taken from there, and a source
    that fails keeps it. Raises :class:`ConfigError` for a source that can never work, unless there is a before.
    """
    # Every source is made before the first is read: a location that can never work fails at once.
    sources = [one.open(context) for one in declared]
    _check_labels(sources)
    resolved = in_threads(lambda source: _resolve(source, again=bool(before)), sources, 8, "skill-sources")
    loaded: list[LoadedSource] = []
    done: set[tuple[str, str]] = set()
    for position, (one, found) in enumerate(zip(declared, resolved, strict=True)):
        old = before[position] if before else None
        if isinstance(found, SourceError):
            kept = tuple(tree for tree in old.trees if _is_new(tree.real, tree.tree, done)) if old else ()
            report = Report(found.source, strict=strict)
            report.add("D06", str(found))
            loaded.append(LoadedSource(one, kept, found, tuple(report.diagnostics)))
            continue
        trees = []
        for tree in found:
            real = os.path.realpath(tree.path)
            if _is_new(real, tree, done):
                trees.append(_read_tree(tree, real, context, strict, old.at(real, tree.format) if old else None))
        report = Report(sources[position].origin, strict=strict)
        is_empty = not any(tree.entries or tree.servers(context) for tree in trees)
        if is_empty and (trees or not found):
            message = f"there is no skill in {sources[position].origin}"
            report.add("D04", message, fix="a skill is a folder with a SKILL.md")
        loaded.append(LoadedSource(one, tuple(trees), diagnostics=tuple(report.diagnostics)))
    return loaded


def watch(declared: Sequence[Declared], context: SourceContext, changed: Callable[[], None]) -> Callable[[], None]:
    """Call ``changed``, in any thread, when a source reports other content. Return a function that ends this."""
    ends = ExitStack()
    for one in declared:
        ends.callback(one.open(context).watch(changed))
    return ends.close


def _check_labels(sources: Sequence[SkillSource]) -> None:
    labels: dict[str, SkillSource] = {}
    for source in sources:
        other = labels.setdefault(source.label, source)
        if source.label and other is not source and other.spec != source.spec:
            raise ConfigError(
                f"skill source {source.origin}: {other.origin} has the label {source.label!r} as well. Set another one."
            )


def _is_new(real: str, tree: SourceTree, done: set[tuple[str, str]]) -> bool:
    """Whether no source before had this folder: it could add nothing."""
    place = (real, tree.format)
    if place in done:
        return False
    done.add(place)
    return True


def _resolve(source: SkillSource, *, again: bool) -> list[SourceTree] | SourceError:
    try:
        return source.resolve()
    except SourceError as error:
        return error
    except ConfigError as error:
        if not again:
            raise
        # It worked before: a variable or a file that a secret is in has gone. A running job goes on.
        return SourceError(str(error), source=source.origin)


def _read_tree(
    tree: SourceTree, real: str, context: SourceContext, strict: bool, before: LoadedTree | None
) -> LoadedTree:
    if before is not None and tree.version and before.tree.version == tree.version:
        if tree.lease is not None and tree.lease is not before.tree.lease:
            tree.lease.close()
        same = tree.notes == before.tree.notes
        return before if same else replace(before, tree=replace(before.tree, notes=tree.notes))
    indexed = _indexed(tree, context, strict) if tree.results is None else (tree.results, ())
    if indexed is not None:
        limit = context.limits.skill_files
        results, remarks = indexed
        entries = [Entry(_folder_of(result), result, root=real, limit=limit, signature=None) for result in results]
    else:
        entries, remarks = _read_folders(tree, real, context, strict, before)
    return LoadedTree(tree, real, tuple(entries), tuple(remarks))


def iterate_tree(tree: SourceTree, context: SourceContext, report: Report) -> Iterator[tuple[Found, LoadResult]]:
    """Yield the skills in a tree, and what loading returns for each. Nothing is retained.

    ``report`` receives the diagnostics of the search.
    """
    indexed = _indexed(tree, context, report.strict) if tree.results is None else (tree.results, ())
    if indexed is not None:
        results, remarks = indexed
        for one in remarks:
            report.add(one.code, one.message, line=one.line, path=one.path, severity=one.severity, fix=one.fix)
        yield from ((Found(_folder_of(result), ""), result) for result in results)
        return
    real = os.path.realpath(tree.path)
    for found in find_skills(real, report, context.limits):
        yield found, _load(found, tree, real, context, strict=report.strict)


def _indexed(
    tree: SourceTree, context: SourceContext, strict: bool
) -> tuple[Sequence[LoadResult], Sequence[Diagnostic]] | None:
    """Return what the store's index has of a tree. Return None if there is none for this way of loading."""
    plain = not strict and not context.config.get(SkillOptions.STRICT_FIELDS)
    if tree.index is None or not plain or tree.format != "skill":
        return None
    return read_index(tree, origin=tree.origin, remote=tree.remote, limits=context.limits)


def _load(found: Found, tree: SourceTree, real: str, context: SourceContext, *, strict: bool) -> LoadResult:
    return load_found(
        found,
        root=real,
        origin=tree.origin,
        remote=tree.remote,
        strict=strict,
        limits=context.limits,
        format=tree.format,
        known_fields_only=context.config.get(SkillOptions.STRICT_FIELDS),
    )


def _folder_of(result: LoadResult) -> str:
    if result.skill is not None:
        return result.skill.path or ""
    return next((os.path.dirname(one.path) for one in result.diagnostics if one.path), "")


def _read_folders(
    tree: SourceTree, real: str, context: SourceContext, strict: bool, before: LoadedTree | None
) -> tuple[list[Entry], list[Diagnostic]]:
    report = Report(tree.path, strict=strict)
    old = {entry.folder: entry for entry in before.entries} if before is not None else {}
    limits = context.limits
    entries = []
    # By its real path: where a link to the folder is turned to another one, what was loaded stays what it was.
    for found in find_skills(real, report, limits):
        folder, root = found.folder, found.root(real)
        last = old.get(folder)
        signature = folder_signature(folder, root, limits.skill_files)
        if last is not None and last.signature == signature:
            entries.append(last)
            continue
        result = _load(found, tree, real, context, strict=strict)
        if last is not None and _same_digest(last, result):
            # The object stays the same, because its content did not change.
            entries.append(last.renewed(replace(result, skill=last.skill), signature))
        else:
            entries.append(Entry(folder, result, root=root, limit=limits.skill_files, signature=signature))
    return entries, report.diagnostics


def _same_digest(last: Entry, result: LoadResult) -> bool:
    if last.skill is None or result.skill is None or not last.is_bound:
        return False
    with suppress(ResourceError):
        return last.skill.digest == result.skill.digest
    return False
