"""What a client can check before it submits: sources and skill names."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from flink_skills.agents.plan import AgentPlan
from flink_skills.errors import ConfigError, SourceError, UnknownNameError
from flink_skills.manager import AgentSkillManager
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["check_paths", "resolve_skills"]

_log = logging.getLogger("flink_skills.submit")


def check_paths(plan: AgentPlan) -> None:
    """Raises :class:`ConfigError` for a relative path, which would mean another folder on each TaskManager."""
    for scope in plan.scopes:
        for path in scope.paths:
            if not Path(path).is_absolute():
                raise ConfigError(
                    f"skill path {path!r} ({scope.level} level) is relative, and TaskManagers have other working "
                    f"directories: write {str(Path(path).absolute())!r}"
                )


def resolve_skills(
    plan: AgentPlan, *, local: bool, resource_paths: Mapping[str, Sequence[str]], store_dir: str | None = None
) -> AgentPlan:
    """The plan with each model's effective skills, where all sources can be read from here.

    With ``skills.validate-on-submit`` = ``auto``, a source that only the cluster can read is left to the operator's
    open, unless the job runs in a mini cluster of this process (``local``); with ``always`` it is an error here.

    Raises:
        SourceError: a source that must be readable here is not.
        UnknownNameError: ``skill_names`` holds a name that no source has.
    """
    check_paths(plan)
    config = SkillConfig(plan.options)
    mode = config.get(SkillOptions.VALIDATE_ON_SUBMIT)
    if mode == "never":
        return plan
    manager = AgentSkillManager.from_scopes(
        plan.scopes, config=config, resource_paths=resource_paths, store_dir=store_dir
    )
    manager.load_skills()
    try:
        manager.check_sources()
    except SourceError as error:
        if mode == "always" or local:
            raise
        _log.info("skill names are checked when the operator opens: %s", error)
        return plan
    effective = {}
    for model in plan.models:
        try:
            effective[model.name] = manager.view(model.skill_names).names
        except UnknownNameError as error:
            raise UnknownNameError(
                "skill",
                error.name,
                [skill.name for skill in manager.get_skills()],
                place=f"skill_names of chat model {model.name!r} of agent {plan.agent_id}",
            ) from error
    return plan.with_effective_skills(effective)
