"""Read sources as a job would, and remember what happened to each skill on the way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from flink_skills.cli.places import is_url, source_word
from flink_skills.endpoint import redact
from flink_skills.errors import ResourceError, SkillsError
from flink_skills.manager import loading as manager_loading
from flink_skills.manager.loading import Declared, LoadedTree
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import AgentSkill, Diagnostic, Limits, LoadResult, load_folder
from flink_skills.skill.diagnostic import CODES
from flink_skills.skill.inspection import check_credentials, inspect_skill
from flink_skills.skill.paths import inside
from flink_skills.skill.scripts import check_scripts
from flink_skills.skill.support import check_support
from flink_skills.sources import SourceContext, SourceTree
from flink_skills.sources.spec import SourceSpec
from flink_skills.tools.dynamic import OfferedTools, check_tools

__all__ = ["Depth", "FoundSkill", "LoadedSkill", "Reading", "read_sources"]


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


@dataclass
class Reading:
    """What reading gave: each name once, and the skills that were skipped.

    ``strict_valid`` has the names of the skills that strict loading accepts, whatever the mode was.
    """

    skills: list[FoundSkill] = field(default_factory=list)
    strict_valid: set[str] = field(default_factory=set)
    _said: list[tuple[int, Diagnostic]] = field(default_factory=list)
    _words: list[tuple[str, str]] = field(default_factory=list)
    _trees: list[LoadedTree] = field(default_factory=list)

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
    for number, word in sorted(enumerate(words), key=lambda source: is_url(source[1])):
        reader.read(number, word)
    reader.reading.skills.sort(key=lambda found: (found.name, found.source, found.path))
    return reader.reading


class _Reader:
    def __init__(self, config: SkillConfig, depth: Depth, only: str | None, offered: OfferedTools | None) -> None:
        self.reading = Reading()
        self._limits = Limits.from_config(config)
        self._context = SourceContext(config, limits=self._limits)
        self._strict = config.get(SkillOptions.STRICT)
        self._commands = config.get(SkillOptions.SHELL_ENABLED)
        self._depth = depth
        self._only = only
        self._offered = offered
        self._winners: dict[str, LoadedSkill] = {}
        self._folders: set[str] = set()

    def read(self, number: int, word: str) -> None:
        try:
            declared = Declared("job", *source_word(word))
            (loaded,) = manager_loading.read_sources([declared], self._context, strict=self._strict)
        except SkillsError as error:  # a location that can never work
            self._say(number, Diagnostic("D06", "error", str(error), path=redact(word) if is_url(word) else word))
            return
        if loaded.failure is not None:
            self._say(number, Diagnostic("D06", "error", str(loaded.failure), path=loaded.failure.source))
            return
        for tree in loaded.trees:
            self._remember_word(word, declared.location, tree)
            self.reading._trees.append(tree)  # its lease keeps it in the store
            for entry in tree.entries:
                if entry.folder not in self._folders:  # or it is in two sources, one inside the other
                    self._folders.add(entry.folder)
                    self._read(number, tree.tree, entry.folder, entry.result)
            self._say_of_tree(number, tree)
        self._say(number, *(said for said in loaded.diagnostics if said.code != "D04"))
        if not any(tree.entries for tree in loaded.trees):
            origin = redact(word) if is_url(word) else declared.location
            message, mend = f"there is no skill in {origin}", "a skill is a folder with a SKILL.md"
            # Nothing to work with is no mere oddity where somebody asks for these skills by name.
            self._say(number, Diagnostic("D04", "error", message, path=origin, mend=mend))

    def _remember_word(self, word: str, location: str, tree: LoadedTree) -> None:
        if is_url(word):
            self.reading._words.append((tree.real, f"{tree.tree.origin}!"))
            return
        path, given = SourceSpec.parse("path", location).location, SourceSpec.parse("path", word).location
        in_place = tree.real == os.path.realpath(path)
        self.reading._words.append((tree.real, given.rstrip("/") if in_place else f"{given}!"))
        self.reading._words.append((path, given))

    def _say_of_tree(self, number: int, tree: LoadedTree) -> None:
        self._say(number, *tree.diagnostics)
        for said in filter(_fails_strict, tree.diagnostics):
            self.reading.strict_valid -= {e.skill.name for e in tree.entries if e.skill and inside(said.path, e.folder)}

    def _read(self, number: int, tree: SourceTree, folder: str, result: LoadResult) -> None:
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
        self._say(number, *said)
        if result.skill is None or (self._strict and not strict_valid):
            self.reading.skills.append(FoundSkill(name, folder, tree.origin, number))
        else:
            self._add(LoadedSkill(name, folder, tree.origin, number, result.skill))

    def _leniently(self, tree: SourceTree, folder: str) -> AgentSkill | None:
        root = os.path.realpath(tree.path)
        return load_folder(folder, root=root, origin=tree.origin, limits=self._limits, format=tree.format).skill

    def _inspect(self, skill: AgentSkill) -> list[Diagnostic]:
        said: list[Diagnostic] = []
        if self._depth is Depth.BODY:
            said += inspect_skill(skill, self._limits, strict=self._strict)
            said += check_credentials(skill, strict=self._strict)
            said += check_scripts(skill, self._limits, strict=self._strict)
            names = self._offered.names if self._offered is not None else ()
            said += check_support(skill, commands=self._commands, tools=names)
            offered = self._offered or OfferedTools()
            said += check_tools(skill, strict=self._strict, offered=offered, limits=self._limits)
        try:
            skill.files.manifest()
        except ResourceError as error:
            mend = "check the file and its permissions"
            said.append(Diagnostic("D05", "error", str(error), skill.name, skill.path or "", mend=mend))
        return said

    def _add(self, read: LoadedSkill) -> None:
        """One skill for each name: the first one."""
        winner = self._winners.setdefault(read.name, read)
        if winner is read:
            self.reading.skills.append(read)
        elif read.digest is not None and read.digest == winner.digest:
            message, mend = f"is the same as {winner.path}, byte for byte", "remove one of them"
            self._say(read.source, Diagnostic("D03", "info", message, read.name, read.path, mend=mend))
        else:
            message = f"is not used: the skill {read.name!r} of {winner.path} was declared first"
            mend = "rename one of them or remove the one that is not wanted"
            self._say(read.source, Diagnostic("D02", "warning", message, read.name, read.path, mend=mend))

    def _say(self, number: int, *said: Diagnostic) -> None:
        self.reading._said.extend((number, each) for each in said)


def _fails_strict(said: Diagnostic) -> bool:
    """Whether strict loading takes it for an error; a third party's codes are as grave as they say."""
    known = CODES.get(said.code)
    return (known.strict if known else said.severity) == "error"
