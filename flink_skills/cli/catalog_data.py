"""What a catalog shows: skills, their sizes and problems, and who sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flink_skills.agents.agent import Agent
from flink_skills.agents.agent_file import absolute_path
from flink_skills.agents.compilation import compile_plan
from flink_skills.agents.generation import effective_view
from flink_skills.agents.opening import tool_inspectors
from flink_skills.agents.plan import AgentPlan, ModelPlan
from flink_skills.agents.shared import SharedResources
from flink_skills.cli.agents import find_agent, job_scope
from flink_skills.cli.catalog_skill import CatalogSkill, describe_skill
from flink_skills.cli.output import diagnostic_json
from flink_skills.cli.places import near_path
from flink_skills.cli.reading import Depth, read_sources
from flink_skills.endpoint import redact
from flink_skills.errors import SkillsError, UnknownNameError
from flink_skills.manager import AgentSkillManager, SkillScope
from flink_skills.manager.unfit import hiding_options
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Diagnostic
from flink_skills.skill.inspection import about_tokens
from flink_skills.tools.settings import SkillSettings

__all__ = ["Catalog", "Viewer", "catalog_of_job", "catalog_of_sources"]


@dataclass(frozen=True)
class Viewer:
    """A chat model of an agent, which sees some of the skills. ``model`` is "" for an agent without models."""

    agent: str
    model: str
    setup: str
    tools: str
    menu_chars: int
    menu_tokens: int

    @property
    def label(self) -> str:
        """Agent and model in a word."""
        return f"{self.agent}/{self.model}" if self.model else self.agent


@dataclass
class Catalog:
    """Skills sorted by name, who sees them, and what there is to say about sources and what is no skill."""

    title: str
    sources: list[str] = field(default_factory=list)
    skills: list[CatalogSkill] = field(default_factory=list)
    viewers: list[Viewer] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def all_diagnostics(self) -> list[Diagnostic]:
        """What there is to say, of sources first."""
        return [*self.diagnostics, *(said for skill in self.skills for said in skill.diagnostics)]

    @property
    def counts(self) -> Counter[str]:
        """Diagnostics by severity."""
        return Counter(said.severity for said in self.all_diagnostics)

    @property
    def has_errors(self) -> bool:
        return self.counts["error"] > 0

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "sources": self.sources,
            "viewers": [asdict(viewer) for viewer in self.viewers],
            "skills": [
                {**skill.to_json(), "seen_by": [self.viewers[at].label for at in skill.seen_by]}
                for skill in self.skills
            ],
            "diagnostics": [diagnostic_json(said) for said in self.diagnostics],
        }


def catalog_of_sources(words: Sequence[str], config: SkillConfig) -> Catalog:
    """The skills of sources, as one job has them."""
    reading = read_sources(words, config, Depth.BODY)
    found = Catalog("Skills", [redact(word) for word in words])
    for read in reading.loaded:
        said = [replace(each, path=reading.shown(each.path)) for each in reading.diagnostics_of(read)]
        origin = reading.shown(read.origin)
        found.skills.append(describe_skill(read.skill, config, origin=origin, diagnostics=said))
    of_skills = {id(each) for read in reading.loaded for each in reading.diagnostics_of(read)}
    rest = [each for each in reading.diagnostics if id(each) not in of_skills]
    found.diagnostics = [replace(each, path=reading.shown(each.path)) for each in rest]
    return found


def catalog_of_job(
    words: Sequence[str],
    config: SkillConfig,
    *,
    assignments: Sequence[str] = (),
    job: Path | None = None,
    agent: str | None = None,
) -> Catalog:
    """The skills of a job, or of an agent in a job with the sources ``words``, and which model sees which.

    Nothing is asked of Flink, and sources that cannot be read here are diagnostics. Raises :class:`SkillsError` for a
    job or agent that cannot be read.
    """
    if job is not None:
        title, declared, config, scope, shared = _read_job(job, assignments)
    else:
        declared, shared = [find_agent(agent, "")], None
        title, scope = "", SkillScope("job")
    if words or agent is not None:
        scope = job_scope(words, config)
    scopes = [scope] if scope.sources else []
    plans = [compile_plan(of, job_scopes=scopes, config=config, shared=shared) for of in declared]
    collector = _Collector(Catalog(title or plans[0].agent_id), config)
    with ExitStack() as stack:
        for plan in plans:
            for one in plan.tree():
                collector.add(one, stack)
    return collector.finished()


def _read_job(
    job: Path, assignments: Sequence[str]
) -> tuple[str, list[Agent], SkillConfig, SkillScope, SharedResources | None]:
    from flink_skills.job.agent_source import AgentSources
    from flink_skills.job.building import sources_of
    from flink_skills.job.reading import read_job
    from flink_skills.job.resources import shared_resources

    read = read_job(job, assignments, lenient=True)
    sources = AgentSources(read)
    options, section = read.settings.skills, read.job.skills
    listed: dict[str, list[Any]] = {
        kind: [] if section is None else sources_of(section, kind) for kind in ("paths", "resources", "urls")
    }
    paths = [absolute_path(item, read.folder) for item in listed["paths"]]
    scope = SkillScope(
        "job",
        [*options.get(SkillOptions.FROM_PATHS), *paths],
        [*options.get(SkillOptions.FROM_RESOURCES), *listed["resources"]],
        [*options.get(SkillOptions.FROM_URLS), *listed["urls"]],
    )
    agents = [sources.of(stage.name).agent for stage in read.stages]
    return read.job.name, agents, options, scope, shared_resources(read)


class _Collector:
    """Puts the skills of several agents together: those that are the same stand there once."""

    def __init__(self, catalog: Catalog, config: SkillConfig) -> None:
        self._catalog = catalog
        self._config = config
        self._skills: dict[tuple[str, str], CatalogSkill] = {}
        self._said: dict[Diagnostic, None] = {}

    def add(self, plan: AgentPlan, stack: ExitStack) -> None:
        """The skills of an agent, and which of its models sees which."""
        catalog = self._catalog
        for scope in plan.scopes:
            words = [near_path(redact(word)) for _, word in scope.sources]
            words += [f"code: {skill.name}" for skill in scope.skills]
            catalog.sources += [word for word in dict.fromkeys(words) if word not in catalog.sources]
        try:
            manager = stack.enter_context(
                AgentSkillManager.from_scopes(
                    plan.scopes,
                    config=hiding_options(self._config),
                    tools=None,
                    inspectors=tool_inspectors(plan, self._config),
                )
            )
            manager.load_skills()
        except SkillsError as error:
            # Nothing can be loaded with a source that can never work, such as one with a relative path.
            self._say(Diagnostic("D06", "error", str(error), path=plan.agent_id))
            return
        manager.inspect()
        said = manager.diagnostics
        for failure in manager.failures:
            self._say(Diagnostic("D06", "error", str(failure), path=redact(failure.source)))
        here: dict[str, CatalogSkill] = {}
        for skill in manager.get_skills():
            folder = skill.path or skill.origin
            own = [each for each in said if each.skill == skill.name and each.path.startswith(folder)]
            key = (skill.name, folder)
            if key not in self._skills:
                self._skills[key] = describe_skill(
                    skill,
                    self._config,
                    origin=near_path(skill.origin),
                    diagnostics=[_near(each) for each in own],
                )
            here[skill.name] = self._skills[key]
        for each in said:
            self._say(each)
        models: Sequence[ModelPlan | None] = plan.models or (None,)
        for model in models:
            self._see(plan, model, manager, here)

    def _see(
        self, plan: AgentPlan, model: ModelPlan | None, manager: AgentSkillManager, here: dict[str, CatalogSkill]
    ) -> None:
        names = plan.filter_of(model)
        try:
            view = effective_view(plan, manager, model)
        except UnknownNameError as error:
            self._say(Diagnostic("D06", "error", str(error), path=plan.agent_id, mend="correct skill_names"))
            names = ()
            view = manager.view(names)
        settings = SkillSettings.of(self._config, model.skill_settings if model is not None else None)
        menu = view.menu()
        for name in view.names:
            here[name].seen_by.append(len(self._catalog.viewers))
        self._catalog.viewers.append(
            Viewer(
                plan.agent_id,
                model.name if model is not None else "",
                model.setup.label if model is not None else "",
                settings.profile or ", ".join(settings.tools),
                len(menu),
                about_tokens(menu),
            )
        )
        for each in manager.menu_diagnostics(names):
            self._say(each)

    def _say(self, said: Diagnostic) -> None:
        self._said[_near(said)] = None

    def finished(self) -> Catalog:
        """The catalog."""
        if not self._catalog.sources:
            mend = "give those that its cluster adds: flink-skills catalog SOURCE… with --job or --agent"
            said = Diagnostic("D04", "error", "no source of skills is declared", path=self._catalog.title, mend=mend)
            self._say(said)
        self._catalog.skills = sorted(self._skills.values(), key=lambda skill: (skill.name, skill.origin))
        # Those of skills stand with them.
        shown = {each for skill in self._catalog.skills for each in skill.diagnostics}
        self._catalog.diagnostics = [each for each in self._said if each not in shown]
        return self._catalog


def _near(said: Diagnostic) -> Diagnostic:
    return replace(said, path=near_path(said.path))
