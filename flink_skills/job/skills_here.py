"""The skills of a job as this machine sees them, for checks and for explaining a job."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flink_skills.agents.open.described import described_models
from flink_skills.agents.open.generation import effective_view
from flink_skills.agents.open.opening import tool_inspectors
from flink_skills.agents.plan.name_checks import NamedAgent
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.errors import SkillsError, UnknownNameError
from flink_skills.manager import AgentSkillManager, SkillScope, SkillView
from flink_skills.manager.unavailable import hiding_options
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Diagnostic, Limits
from flink_skills.skill.inspection import about_tokens

if TYPE_CHECKING:
    from flink_skills.flink.job_graph import JobGraph

__all__ = ["ModelSkills", "SkillsHere", "skills_here", "with_skills_here"]


@dataclass(frozen=True)
class ModelSkills:
    """What a chat model of a job sees: names of skills and tools, and the size of what it is sent with every event."""

    model: str
    label: str
    skills: tuple[str, ...]
    tools: tuple[str, ...]
    system_chars: int
    tool_chars: int
    tokens: int


@dataclass(frozen=True)
class SkillsHere:
    """The skills of each model; ``not_looked_at`` are sources that were left alone, ``names`` are all skills."""

    models: tuple[ModelSkills, ...]
    names: frozenset[str]
    diagnostics: tuple[Diagnostic, ...] = ()
    not_looked_at: tuple[str, ...] = ()


def skills_here(plan: AgentPlan, graph: JobGraph, *, remote: bool) -> SkillsHere:
    """Load the skills of a plan from here; without ``remote`` those of paths and jars alone.

    Raises :class:`SourceError` for a source that cannot be read from here, :class:`UnknownNameError` for a name in
    ``skill_names`` that no source has, where all were looked at.
    """
    left = () if remote else tuple(url.shown for scope in plan.scopes for url in scope.urls)
    scopes = plan.scopes if remote else tuple(replace(scope, urls=()) for scope in plan.scopes)
    with _manager(plan, scopes, graph) as manager:
        manager.load_skills()
        manager.check_sources()
        views = {}
        for model in plan.models:
            try:
                views[model.name] = effective_view(plan, manager, model)
            except UnknownNameError:
                if not left:
                    raise
                known = {skill.name for skill in manager.get_skills()}
                views[model.name] = manager.view([name for name in plan.filter_of(model) or () if name in known])
        models = tuple(_model(plan, name, view, views) for name, view in views.items())
        names = frozenset(skill.name for skill in manager.get_skills())
        return SkillsHere(models, names, (*manager.diagnostics, *manager.inspect()), left)


def with_skills_here(named: NamedAgent, graph: JobGraph, *, remote: bool) -> NamedAgent:
    """Return an agent with the names of the skills that can be read here."""
    if not named.plan.scopes:
        return named
    try:
        here = skills_here(named.plan, graph, remote=remote)
    except SkillsError:
        return named  # reported with the skills
    bringers = [f"the unread source {', '.join(here.not_looked_at)}"] if here.not_looked_at else []
    if named.config.get(SkillOptions.REFRESH_INTERVAL):
        bringers.append("a refresh of the skills")
    if any(of.severity == "error" or of.left_out for of in here.diagnostics):
        bringers.append("a skill that could not be read")
    return replace(named, skills=here.names, skill_bringers=tuple(bringers))


@contextlib.contextmanager
def _manager(plan: AgentPlan, scopes: Sequence[SkillScope], graph: JobGraph) -> Iterator[AgentSkillManager]:
    from flink_skills.flink.bridge import job_jars
    from flink_skills.flink.jar_resources import client_resources

    config = hiding_options(
        SkillConfig({key: value for key, value in plan.options.items() if key != SkillOptions.LOCK.key})
    )
    jars = job_jars(graph.env) if plan.resources else []
    with (
        client_resources(jars, plan.resources, Limits.from_config(config)) as resources,
        # Tool sets of the agent are not open here.
        AgentSkillManager.from_scopes(
            scopes, config=config, resource_paths=resources, tools=None, inspectors=tool_inspectors(plan, config)
        ) as manager,
    ):
        yield manager


def _model(plan: AgentPlan, name: str, view: SkillView, views: Mapping[str, SkillView]) -> ModelSkills:
    model = described_models(plan, views).model(name)
    setup = next(of.setup for of in plan.models if of.name == name)
    specs = model.tools.specs()
    tools = "".join(_travelling(spec) for spec in specs)
    return ModelSkills(
        name,
        setup.label,
        tuple(sorted(view.names)),
        tuple(spec.name for spec in specs),
        len(model.system),
        len(tools),
        about_tokens(model.system + tools),
    )


def _travelling(spec: Any) -> str:
    return json.dumps({"name": spec.name, "description": spec.description, "parameters": spec.parameters})
