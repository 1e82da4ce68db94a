"""Checks of loaded skills: their files, their body, and whether they can work in the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from flink_skills.errors import ResourceError, UnsupportedSkillError
from flink_skills.manager.source_loading import Entry, in_threads
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import CODES, AgentSkill, Diagnostic, Limits, Report
from flink_skills.skill.skill_inspection import inspect_skill
from flink_skills.skill.support import RuntimeEnvironment, missing_requirements

#: Returns what only a layer above knows to be wrong with a skill. The second argument is whether loading is strict.
Inspector = Callable[[AgentSkill, bool], Iterable[Diagnostic]]
#: Returns the diagnostics of :func:`~flink_skills.skill.support.check_support` for a job.
Support = Callable[[AgentSkill], list[Diagnostic]]


def unavailable_skills(
    skills: Iterable[AgentSkill], environment: RuntimeEnvironment | None, *, strict: bool
) -> Mapping[str, Diagnostic]:
    """Those of ``skills`` that require what is not there, by name, with the diagnostic that says so.

    Empty without ``environment``, for example on the client that submits a job.
    """
    found: dict[str, Diagnostic] = {}
    for skill in skills if environment is not None else ():
        lacks = missing_requirements(skill, environment)
        if lacks:
            found[skill.name] = _hidden(skill, "U10", lacks, strict=strict)
    return found


def unsupported(found: Iterable[Diagnostic], *, tools_known: bool) -> list[Diagnostic]:
    """Return those of ``found`` that say what a skill needs and the job does not have.

    Without ``tools_known`` a tool that a skill names may be one of the agent's.
    """
    return [one for one in found if CODES[one.code].unsupported and (tools_known or one.code != "U01")]


def hidden_skill(skill: AgentSkill, reasons: Iterable[Diagnostic]) -> Diagnostic:
    """Return the diagnostic of a skill that is hidden for ``reasons``."""
    return _hidden(skill, "U11", [f"{one.code} {one.message}" for one in reasons], strict=False)


def hiding_options(config: SkillConfig) -> SkillConfig:
    """Return the options under which a job is shown elsewhere than in a worker: what workers would refuse is hidden."""
    if config.get(SkillOptions.UNSUPPORTED) != "refuse":
        return config
    return SkillConfig({SkillOptions.UNSUPPORTED.key: "hide"}).merged_over(config)


def refusal_of(reasons: Mapping[str, Sequence[Diagnostic]]) -> UnsupportedSkillError | None:
    """Return the error that lists the reasons against each skill. None without reasons."""
    lines = [f"- {name}: {one.code} {one.message} ({one.fix})" for name, found in reasons.items() for one in found]
    if not lines:
        return None
    many = sum(map(bool, reasons.values()))
    need = "1 skill has" if many == 1 else f"{many} skills have"
    text = "\n".join(lines)
    return UnsupportedSkillError(
        f"{need} requirements that this job does not meet, and skills.unsupported is refuse:\n{text}"
    )


def _hidden(skill: AgentSkill, code: str, reasons: Iterable[str], *, strict: bool) -> Diagnostic:
    report = Report(f"{skill.path}/{skill.files.skill_file}" if skill.path else "", strict=strict, skill=skill.name)
    report.add(code, f"skill {skill.name!r} is hidden: {'; '.join(reasons)}")
    return report.diagnostics[0]


def inspect_entries(
    entries: Sequence[Entry], limits: Limits, *, strict: bool, support: Support, inspectors: Sequence[Inspector] = ()
) -> list[tuple[Diagnostic, ...]]:
    """Bind and inspect skills, several at the same time. The results are stored in the entries.

    ``support`` and ``inspectors`` return more diagnostics.
    """
    missing = [entry for entry in entries if entry.findings is None]
    in_threads(lambda entry: _inspect(entry, limits, strict, support, inspectors), missing, 4, "skill-inspection")
    return [entry.findings or () for entry in entries]


def _inspect(entry: Entry, limits: Limits, strict: bool, support: Support, inspectors: Sequence[Inspector]) -> None:
    skill = entry.skill
    if skill is None or skill.files.on_demand:
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
