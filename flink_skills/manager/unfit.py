"""Skills that cannot work where the job runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flink_skills.skill import AgentSkill, Diagnostic, Report
from flink_skills.skill.requirements import Surroundings, missing_requirements

__all__ = ["unfit_skills"]


def unfit_skills(
    skills: Iterable[AgentSkill], surroundings: Surroundings | None, *, strict: bool
) -> Mapping[str, Diagnostic]:
    """Those of ``skills`` that require what is not there, by name, with the diagnostic that says so.

    None without ``surroundings``: then nobody knows what commands will have, as on the client that submits a job.
    """
    found: dict[str, Diagnostic] = {}
    for skill in skills if surroundings is not None else ():
        lacks = missing_requirements(skill, surroundings)
        if lacks:
            report = Report(f"{skill.path}/{skill.files.skill_file}" if skill.path else "", strict=strict)
            report.skill = skill.name
            report.add("U10", f"skill {skill.name!r} is hidden: {'; '.join(lacks)}")
            found[skill.name] = report.diagnostics[0]
    return found
