"""What a client can check before it submits: sources, skill names, the lock and the place of artifacts."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flink_skills.agents.open.generation import effective_view
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.artifacts import ArtifactStore
from flink_skills.errors import ConfigError, SourceError
from flink_skills.manager import AgentSkillManager, SkillLock
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.address import protocol_of

__all__ = ["check_artifacts", "check_paths", "embed_lock", "resolve_skills"]

_log = logging.getLogger("flink_skills.submit")


def check_paths(plan: AgentPlan) -> None:
    """Raises :class:`ConfigError` for a relative path, which would mean another folder on each TaskManager."""
    for scope in plan.scopes:
        for path in scope.paths:
            if "://" in path.location:
                raise ConfigError(
                    f"skill path {path.shown!r} ({scope.level} level) is a URL: declare it with "
                    "add_skills_from_urls, urls=[…] or skills.from.urls"
                )
            if not Path(path.location).is_absolute():
                raise ConfigError(
                    f"skill path {str(path)!r} ({scope.level} level) is relative, and TaskManagers have other working "
                    f"directories: write {str(Path(str(path)).absolute())!r}"
                )


def embed_lock(plan: AgentPlan, *, local: bool) -> AgentPlan:
    """The plan with the content of the file that ``skills.lock`` names, where this machine has it.

    Elsewhere each TaskManager reads its own. Raises :class:`ConfigError` for a relative path, and
    :class:`SkillsError` for a file that is no lock, or that must be here (``local``) and is not.
    """
    path = SkillConfig(plan.options).get(SkillOptions.LOCK)
    if not path:
        return plan
    if not Path(path).is_absolute():
        raise ConfigError(
            f"{SkillOptions.LOCK.key} {path!r} is relative, and TaskManagers have other working directories: "
            f"write {str(Path(path).absolute())!r}"
        )
    if not local and not os.access(path, os.R_OK):
        return plan
    return _locked(plan, SkillLock.read(path).to_json())


def check_artifacts(plan: AgentPlan, *, local: bool) -> None:
    """Raises :class:`ConfigError` for a ``skills.artifacts.dir`` that cannot be one; nothing is contacted.

    A file system that only the cluster may know is left to the operator's open, as sources are.
    """
    config = SkillConfig(plan.options)
    mode = config.get(SkillOptions.VALIDATE_ON_SUBMIT)
    if mode == "never":
        return
    try:
        ArtifactStore.open(config)
    except ConfigError as error:
        location = config.get(SkillOptions.ARTIFACTS_DIR).strip()
        if mode == "always" or local or protocol_of(location) in ("", "file", "local"):
            raise
        _log.info("the place of artifacts is checked when the operator opens: %s", error)


def _locked(plan: AgentPlan, lock: Mapping[str, Any]) -> AgentPlan:
    return replace(plan, lock=lock, agents={name: _locked(callee, lock) for name, callee in plan.agents.items()})


def resolve_skills(
    plan: AgentPlan, *, local: bool, resource_paths: Mapping[str, Sequence[str]], store_dir: str | None = None
) -> AgentPlan:
    """The plan with each model's effective skills, where all sources can be read from here.

    With ``skills.validate-on-submit`` = ``auto``, a source that only the cluster can read is left to the operator's
    open, unless the job runs in a mini cluster of this process (``local``); with ``always`` it is an error here.

    Raises:
        SourceError: a source that must be readable here is not.
        UnknownNameError: ``skill_names`` holds a name that no source has.
        SkillLockError: the skills are not those of ``skills.lock``.
    """

    def resolved(callee: AgentPlan) -> AgentPlan:
        return resolve_skills(callee, local=local, resource_paths=resource_paths, store_dir=store_dir)

    check_paths(plan)
    plan = replace(plan, agents={name: resolved(callee) for name, callee in plan.agents.items()})
    config = SkillConfig(plan.options)
    mode = config.get(SkillOptions.VALIDATE_ON_SUBMIT)
    if mode == "never":
        return plan
    # A lock file that is not here is read where the operator opens; there one also knows what skills lack.
    elsewhere = (SkillOptions.LOCK.key, SkillOptions.UNSUPPORTED.key)
    config_here = SkillConfig({key: value for key, value in plan.options.items() if key not in elsewhere})
    with AgentSkillManager.from_scopes(
        plan.scopes,
        config=config_here,
        resource_paths=resource_paths,
        store_dir=store_dir,
        lock=SkillLock.from_json(plan.lock) if plan.lock is not None else None,
    ) as manager:
        try:
            manager.load_skills()
            manager.check_sources()
        except SourceError as error:
            if mode == "always" or local:
                raise
            _log.info("skill names are checked when the operator opens: %s", error)
            return plan
        effective = {model.name: effective_view(plan, manager, model).names for model in plan.models}
    return plan.with_effective_skills(effective)
