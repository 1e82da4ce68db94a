"""Read sources as a job would, and remember what happened to each skill on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from flink_skills.cli.places import is_url, source_word
from flink_skills.endpoint import redact
from flink_skills.errors import ResourceError, SkillsError, SourceError
from flink_skills.manager.loading import Declared, iterate_tree
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import AgentSkill, Diagnostic, Limits, LoadResult, Report, load_folder
from flink_skills.skill.diagnostic import CODES
from flink_skills.skill.inspection import check_credentials, inspect_skill
from flink_skills.skill.paths import inside
from flink_skills.skill.scripts import check_scripts
from flink_skills.skill.support import check_support
from flink_skills.sources import SourceContext, SourceTree
from flink_skills.sources.spec import SourceSpec
from flink_skills.tools.dynamic import OfferedTools, check_tools

__all__ = ["Depth", "FoundSkill", "LoadedSkill", "Reading", "SkillStream", "read_sources"]


@dataclass(frozen=True)
class FoundSkill:
    """A skill of a source. ``path`` is its folder, ``source`` the number of the word that named the source."""

    name: str
    path: str
    origin: str
    source: int

    @property
    def digest(self) -> str | None:
        """The digest of a skill whose files can be read; None for others."""
        return None

    @property
    def status(self) -> str:
        return "skipped"


@dataclass(frozen=True)
class LoadedSkill(FoundSkill):
    """A skill that loading accepted."""

    skill: AgentSkill

    @property
    def status(self) -> str:
        return "loaded"

    @property
    def digest(self) -> str | None:
        try:
            return self.skill.digest
        except ResourceError:
            return None

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file; empty where they cannot be read."""
        if self.digest is None:
            return {}
        return {path: size for path, (size, _) in sorted(self.skill.files.manifest().items())}


@dataclass(frozen=True)
class CheckedSkill(FoundSkill):
    """A skill that loading accepted, of which only the digest is retained."""

    checked_digest: str | None

    @property
    def status(self) -> str:
        return "loaded"

    @property
    def digest(self) -> str | None:
        return self.checked_digest


@dataclass
class Reading:
    """What reading gave: each name once, and the skills that were skipped.

    ``strict_valid`` has the names of the skills that strict loading accepts, whatever the mode was.
    """

    skills: list[FoundSkill] = field(default_factory=list)
    strict_valid: set[str] = field(default_factory=set)
    _said: list[tuple[int, Diagnostic]] = field(default_factory=list)
    _words: list[tuple[str, str]] = field(default_factory=list)
    _trees: list[SourceTree] = field(default_factory=list)

    @property
    def loaded(self) -> list[LoadedSkill]:
        """The skills that a job would have, sorted by name."""
        return [found for found in self.skills if isinstance(found, LoadedSkill)]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """In the order of the sources, then by path and line."""

        def place(item: tuple[int, Diagnostic]) -> tuple[int, str, int, str, str]:
            source, said = item
            return source, said.path, said.line, said.code, said.message

        once: dict[tuple[str, int, str, str], Diagnostic] = {}
        for _, said in sorted(self._said, key=place):
            # The search for skills and their inspection find the same links; only the latter knows whose they are.
            key = (said.path, said.line, said.code, said.message)
            if key not in once or not once[key].skill:
                once[key] = said
        return list(once.values())

    @property
    def has_errors(self) -> bool:
        return any(said.severity == "error" for _, said in self._said)

    def diagnostics_of(self, found: FoundSkill) -> list[Diagnostic]:
        """What there is to say about one skill."""
        return [said for said in self.diagnostics if said.skill == found.name or inside(said.path, found.path)]

    def shown(self, path: str) -> str:
        """The path as a compiler shows it, below the word that named its source; in an archive after ``!``."""
        for real, word in self._words:
            if inside(path, real):
                return (word + path[len(real.rstrip("/")) :]) or path
        return path


class Depth(IntEnum):
    """How much of a skill is read: what loading reads, all files for the digest, or that and judging its body."""

    FRONT_MATTER = 0
    FILES = 1
    BODY = 2


def read_sources(
    words: Sequence[str],
    config: SkillConfig,
    depth: Depth,
    *,
    only: str | None = None,
    offered: OfferedTools | None = None,
) -> Reading:
    """Read the sources that ``words`` name, with the precedence of a job: paths before URLs, first before later.

    A source that cannot be read, or has no skill, is an error among the diagnostics. ``only``: the one skill whose
    files and body count. ``offered`` are the tools that the skills find in an agent.
    """
    reader = _Reader(config, depth, only, offered)
    for number, word in _in_order(words):
        reader.reading._said.extend((number, said) for said in reader.read(number, word))
    reader.sort()
    return reader.reading


class SkillStream:
    """The diagnostics of sources, each yielded as soon as it is found, in the order of the search.

    What is known of a skill is not retained, apart from its name, folder and digest. Iterate once; then ``reading``
    has the skills, without diagnostics.
    """

    def __init__(self, words: Sequence[str], config: SkillConfig, *, offered: OfferedTools | None = None) -> None:
        self._words = words
        self._reader = _Reader(config, Depth.BODY, None, offered, is_stream=True)
        self.reading = self._reader.reading

    def __iter__(self) -> Iterator[Diagnostic]:
        for number, word in _in_order(self._words):
            yield from self._reader.read(number, word)
        self._reader.sort()


def _in_order(words: Sequence[str]) -> list[tuple[int, str]]:
    return sorted(enumerate(words), key=lambda source: is_url(source[1]))


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
        self.reading = Reading()
        self._limits = Limits.from_config(config)
        self._context = SourceContext(config, limits=self._limits)
        self._strict = config.get(SkillOptions.STRICT)
        self._commands = config.get(SkillOptions.SHELL_ENABLED)
        self._depth = depth
        self._only = only
        self._offered = offered
        self._is_stream = is_stream
        self._winners: dict[str, FoundSkill] = {}
        self._folders: set[str] = set()
        self._links: set[tuple[str, str]] = set()

    def sort(self) -> None:
        self.reading.skills.sort(key=lambda found: (found.name, found.source, found.path))

    def read(self, number: int, word: str) -> Iterator[Diagnostic]:
        """Read one source, and yield its diagnostics."""
        try:
            declared = Declared("job", *source_word(word))
            trees = declared.open(self._context).resolve()
        except SourceError as error:
            yield Diagnostic("D06", "error", str(error), path=error.source)
            return
        except SkillsError as error:  # a location that can never work
            yield Diagnostic("D06", "error", str(error), path=redact(word) if is_url(word) else word)
            return
        count = 0
        for tree in trees:
            self._remember_word(word, declared.location, tree)
            self.reading._trees.append(tree)  # its lease keeps it in the store
            report = Report(tree.path, strict=self._strict)
            valid: dict[str, str] = {}
            for folder, result in iterate_tree(tree, self._context, report):
                count += 1
                if folder not in self._folders:  # or it is in two sources, one inside the other
                    self._folders.add(folder)
                    yield from self._read(number, tree, folder, result, valid)
            yield from self._of_tree(tree, report, valid)
        if not count:
            origin = redact(word) if is_url(word) else declared.location
            message, mend = f"there is no skill in {origin}", "a skill is a folder with a SKILL.md"
            # Nothing to work with is no mere oddity where somebody asks for these skills by name.
            yield Diagnostic("D04", "error", message, path=origin, mend=mend)

    def _remember_word(self, word: str, location: str, tree: SourceTree) -> None:
        real = os.path.realpath(tree.path)
        if is_url(word):
            self.reading._words.append((real, f"{tree.origin}!"))
            return
        path, given = SourceSpec.parse("path", location).location, SourceSpec.parse("path", word).location
        in_place = real == os.path.realpath(path)
        self.reading._words.append((real, given.rstrip("/") if in_place else f"{given}!"))
        self.reading._words.append((path, given))

    def _of_tree(self, tree: SourceTree, report: Report, valid: Mapping[str, str]) -> Iterator[Diagnostic]:
        """Yield the diagnostics of a source and of the search for skills in it.

        ``valid`` maps folders of skills that strict loading accepts to their names.
        """
        for said in (*tree.notes, *report.diagnostics):
            if _fails_strict(said):
                above = said.path
                while above not in valid and os.path.dirname(above) != above:
                    above = os.path.dirname(above)
                self.reading.strict_valid.discard(valid.get(above, ""))
            # The search for skills and their inspection find the same links; only the latter knows whose they are.
            if (said.path, said.message) not in self._links:
                yield said

    def _read(
        self, number: int, tree: SourceTree, folder: str, result: LoadResult, valid: dict[str, str]
    ) -> Iterator[Diagnostic]:
        said = list(result.diagnostics)
        if self._depth is not Depth.FRONT_MATTER:
            # Strict loading gives no skill of what it refuses; its body is worth a look all the same.
            skill = result.skill or (self._leniently(tree, folder) if self._strict else None)
            if skill is not None and self._only in (None, skill.name):
                said += self._inspect(skill)
        name = result.skill.name if result.skill else next((each.skill for each in said if each.skill), "")
        name = name or os.path.basename(folder)
        strict_valid = result.strict_valid and not any(_fails_strict(each) for each in said)
        if strict_valid:
            self.reading.strict_valid.add(name)
            valid[folder] = name
        self._links.update((each.path, each.message) for each in said if each.code == "S04")
        yield from dict.fromkeys(sorted(said, key=lambda each: (each.path, each.line, each.code, each.message)))
        if result.skill is None or (self._strict and not strict_valid):
            self.reading.skills.append(FoundSkill(name, folder, tree.origin, number))
        else:
            yield from self._add(LoadedSkill(name, folder, tree.origin, number, result.skill))

    def _leniently(self, tree: SourceTree, folder: str) -> AgentSkill | None:
        root = os.path.realpath(tree.path)
        return load_folder(folder, root=root, origin=tree.origin, limits=self._limits, format=tree.format).skill

    def _inspect(self, skill: AgentSkill) -> list[Diagnostic]:
        unreadable: list[Diagnostic] = []
        try:
            skill.files.manifest()  # first: the list of files is known from here on
        except ResourceError as error:
            mend = "check the file and its permissions"
            unreadable.append(Diagnostic("D05", "error", str(error), skill.name, skill.path or "", mend=mend))
        said: list[Diagnostic] = []
        if self._depth is Depth.BODY:
            said += inspect_skill(skill, self._limits, strict=self._strict)
            said += check_credentials(skill, strict=self._strict)
            said += check_scripts(skill, self._limits, strict=self._strict)
            names = self._offered.names if self._offered is not None else ()
            said += check_support(skill, commands=self._commands, tools=names)
            offered = self._offered or OfferedTools()
            said += check_tools(skill, strict=self._strict, offered=offered, limits=self._limits)
        return said + unreadable

    def _add(self, read: LoadedSkill) -> Iterator[Diagnostic]:
        """Add a skill, or yield why it is not used: the first one of each name is."""
        winner = self._winners.get(read.name)
        if winner is None:
            kept = read if not self._is_stream else self._without_content(read)
            self._winners[read.name] = kept
            self.reading.skills.append(kept)
        elif read.digest is not None and read.digest == winner.digest:
            message, mend = f"is the same as {winner.path}, byte for byte", "remove one of them"
            yield Diagnostic("D03", "info", message, read.name, read.path, mend=mend)
        else:
            message = f"is not used: the skill {read.name!r} of {winner.path} was declared first"
            mend = "rename one of them or remove the one that is not wanted"
            yield Diagnostic("D02", "warning", message, read.name, read.path, mend=mend)

    def _without_content(self, read: LoadedSkill) -> FoundSkill:
        return CheckedSkill(read.name, read.path, read.origin, read.source, read.digest)


def _fails_strict(said: Diagnostic) -> bool:
    """Whether strict loading takes it for an error; a third party's codes are as grave as they say."""
    known = CODES.get(said.code)
    return (known.strict if known else said.severity) == "error"
