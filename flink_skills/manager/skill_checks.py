"""What can only be said of a skill by reading it: its digest, its body, and whether it can work here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from flink_skills.errors import ResourceError
from flink_skills.manager.entry import Entry
from flink_skills.skill import AgentSkill, Diagnostic, Limits
from flink_skills.skill.inspection import inspect_skill
from flink_skills.skill.support import RuntimeEnvironment, check_support

__all__ = ["Inspector", "inspect_entries"]

#: Returns what only a layer above knows to be wrong with a skill. The second argument is whether loading is strict.
Inspector = Callable[[AgentSkill, bool], Iterable[Diagnostic]]

_MAX_CONCURRENT = 4


def inspect_entries(
    entries: Sequence[Entry],
    limits: Limits,
    *,
    strict: bool,
    commands: bool,
    inspectors: Sequence[Inspector] = (),
    tools: Collection[str] = (),
    environment: RuntimeEnvironment | None = None,
) -> list[tuple[Diagnostic, ...]]:
    """Bind and inspect skills, several at once. What was found is kept: asking again costs nothing.

    ``commands``, ``tools`` and ``environment`` are those of :func:`check_support`. ``inspectors`` return more
    diagnostics.
    """
    support = partial(check_support, commands=commands, tools=tools, environment=environment)
    missing = [entry for entry in entries if entry.findings is None]
    if len(missing) == 1:
        _inspect(missing[0], limits, strict, support, inspectors)
    elif missing:
        with ThreadPoolExecutor(min(_MAX_CONCURRENT, len(missing)), "skill-inspection") as pool:
            list(pool.map(lambda entry: _inspect(entry, limits, strict, support, inspectors), missing))
    return [entry.findings or () for entry in entries]


def _inspect(
    entry: Entry,
    limits: Limits,
    strict: bool,
    support: partial[list[Diagnostic]],
    inspectors: Sequence[Inspector],
) -> None:
    skill = entry.skill
    if skill is None:
        entry.findings = ()
        return
    try:
        entry.bind()
        found = [*inspect_skill(skill, limits, strict=strict), *support(skill)]
        for inspector in inspectors:
            found += inspector(skill, strict)
    except ResourceError as error:
        fix = "check the files and their permissions"
        found = [Diagnostic("D05", "error", str(error), skill.name, skill.path or "", fix=fix)]
    entry.findings = tuple(found)
