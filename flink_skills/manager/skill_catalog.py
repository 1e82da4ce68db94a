"""Catalog: one skill for each name, diagnostics for the others, and the changes between two catalogs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from flink_skills.errors import ConfigError, ResourceError, SourceError
from flink_skills.manager.source_loading import Declared, Entry, LoadedSource, in_threads
from flink_skills.manager.view import unknown_skill
from flink_skills.skill import AgentSkill, Diagnostic

_COMPARED = ("description", "license", "compatibility", "metadata", "allowed_tools", "extra")


class _Candidate(NamedTuple):
    entry: Entry
    skill: AgentSkill
    source: Declared


@dataclass(eq=False)
class Catalog:
    """Skills by name, sorted; only their front matter is in memory. Not changed once it is made.

    Whoever holds it keeps the folders of its skills in the store.
    """

    sources: Sequence[LoadedSource]
    skills: dict[str, AgentSkill] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    # By identity: a hash of a skill would read all of its files.
    _entries: dict[int, Entry] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, sources: Sequence[LoadedSource]) -> Catalog:
        """The catalog of ``sources``, those that win first."""
        catalog = cls(sources)
        # By name, then by plugin and server.
        winners: dict[str, dict[str, _Candidate]] = {}
        for source in sources:
            for tree in source.trees:
                for entry in tree.entries:
                    catalog.diagnostics.extend(entry.result.diagnostics)
                    if entry.skill is not None:
                        catalog._entries[id(entry.skill)] = entry
                        challenger = _Candidate(entry, entry.skill, source.declared)
                        named = winners.setdefault(entry.skill.name, {})
                        # A skill of a server neither overrides nor is overridden.
                        key = f"{entry.skill.plugin}\0{entry.skill.server}"
                        winner = named.setdefault(key, challenger)
                        if winner is not challenger:
                            named[key] = catalog._choose(winner, challenger)
                catalog.diagnostics.extend(tree.diagnostics)
            catalog.diagnostics.extend(source.diagnostics)
        skills = [skill for named in winners.values() for skill in catalog._named(list(named.values()))]
        # A server's skill with the name of a plugin's skill has the server as the first part.
        taken = {skill.name for skill in skills if not skill.server}
        skills = [catalog._apart(skill) if skill.server and skill.name in taken else skill for skill in skills]
        catalog.skills = {skill.name: skill for skill in sorted(skills, key=lambda skill: skill.name)}
        return catalog

    def _named(self, candidates: list[_Candidate]) -> Iterator[AgentSkill]:
        """Yield the used skills of candidates with one name and different plugins, or none.

        Skills of several plugins have their full names. A skill without a plugin overrides, or is overridden, as in
        :meth:`_choose`. A skill of a server has its full name if there is any other, which keeps its name.
        """
        used: list[_Candidate] = []
        served = [of for of in candidates if of.skill.server]
        for challenger in sorted(candidates, key=lambda of: bool(of.skill.plugin)):
            if challenger.skill.server:
                continue
            other = next((of for of in used if not of.skill.plugin or _same_content(of, challenger)), None)
            if other is None:
                used.append(challenger)
            else:
                used[used.index(other)] = self._choose(other, challenger)
        for candidate in (*used, *served):
            others = [*used, *served] if candidate.skill.server else used
            skill = candidate.skill if len(others) == 1 else candidate.entry.full_named(candidate.skill)
            self._entries[id(skill)] = candidate.entry
            yield skill

    def _apart(self, skill: AgentSkill) -> AgentSkill:
        other = skill.with_full_name("mcp:")
        self._entries[id(other)] = self._entries[id(skill)]
        return other

    @property
    def failures(self) -> list[SourceError]:
        """The sources that could not be read."""
        return [source.failure for source in self.sources if source.failure is not None]

    def entry(self, skill: AgentSkill) -> Entry:
        """Return the entry for a skill in this catalog."""
        return self._entries[id(skill)]

    def bind(self, skill: AgentSkill) -> str:
        """See :meth:`Entry.bind`."""
        return self._entries[id(skill)].bind()

    def bind_all(self, skills: Iterable[AgentSkill]) -> None:
        """Compute the digests, several at the same time. A skill's first use reports a failure."""
        missing = [entry for skill in skills if not (entry := self._entries[id(skill)]).is_bound]
        in_threads(_try_to_bind, missing, 4, "skill-digests")

    def chosen(self, names: Sequence[str] | None, *, hidden: bool) -> list[AgentSkill]:
        """Return the skills with these names, by default all. ``hidden`` includes skills that hide from models.

        Raises :class:`UnknownNameError` for a name that no source has.
        """
        if isinstance(names, str):
            raise ConfigError(f"skill names must be a list, such as [{names!r}], not the string {names!r}")
        if names is None:
            return [skill for skill in self.skills.values() if hidden or not skill.hidden]
        found = dict(zip(names, map(self.find, names), strict=True))
        for name, skill in found.items():
            if skill is None:
                raise unknown_skill(name, self.skills)
        return list({skill.name: skill for skill in found.values() if skill is not None}.values())

    def find(self, name: str) -> AgentSkill | None:
        """Return the skill with this name, or with this full name."""
        skill = self.skills.get(name) or self.skills.get(name.partition(":")[2])
        return skill if skill is not None and name in (skill.name, skill.full_name) else None

    def _choose(self, winner: _Candidate, challenger: _Candidate) -> _Candidate:
        """Return the used skill for a name, and report the other one."""
        same_level = winner.source.level == challenger.source.level
        if same_level and winner.source.skill is not None and challenger.source.skill is None:
            why = "skills created in code take precedence"
        elif same_level and winner.skill.remote and not challenger.skill.remote:
            winner, challenger = challenger, winner
            why = "local sources take precedence over network sources"
        elif winner.source is challenger.source:
            why = "the first skill of a source takes precedence"
        elif same_level:
            why = "the source that is declared first takes precedence"
        else:
            why = "sources of the agent take precedence over sources of the job"
            if winner.skill.remote and not challenger.skill.remote:
                why += ", even if they are remote"
        used, unused = winner.skill, challenger.skill
        place = unused.path or ""
        if _same_content(winner, challenger):
            message, fix = f"the skill is identical to {used.path}", "remove one of them"
            self.diagnostics.append(Diagnostic("D03", "info", message, unused.name, place, fix=fix))
        else:
            message = f"the skill is not used: {used.name!r} of {used.origin} ({used.path}) overrides it ({why})"
            fix = "rename one of them, or remove one of the sources"
            self.diagnostics.append(Diagnostic("D02", "warning", message, unused.name, place, fix=fix))
        return winner


def _same_content(one: _Candidate, other: _Candidate) -> bool:
    if os.path.realpath(one.entry.folder) == os.path.realpath(other.entry.folder):
        return True
    # Digests read whole trees: first what is in memory.
    if any(getattr(one.skill, name) != getattr(other.skill, name) for name in _COMPARED):
        return False
    try:
        return one.entry.bind() == other.entry.bind()
    except ResourceError:
        return False


def _try_to_bind(entry: Entry) -> None:
    with suppress(ResourceError):
        entry.bind()


class Refreshed(NamedTuple):
    """The new generation, and the names of skills that it has more, no more, and with other content."""

    generation: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def compare(before: Catalog, after: Catalog, generation: int) -> Refreshed | None:
    """Return the difference between two catalogs. Return None if all digests are the same."""
    added = tuple(name for name in after.skills if name not in before.skills)
    removed = tuple(name for name in before.skills if name not in after.skills)
    changed = tuple(name for name in after.skills if name in before.skills and _differs(before, after, name))
    if not (added or removed or changed):
        return None
    return Refreshed(generation, added, removed, changed)


def _differs(before: Catalog, after: Catalog, name: str) -> bool:
    old, new = before.skills[name], after.skills[name]
    if old is new:
        return False
    try:
        return before.bind(old) != after.bind(new)
    except ResourceError:
        return True  # the old content was not read in time
