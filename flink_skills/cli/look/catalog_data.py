"""Data of a catalog: skills, their diagnostics, and the models that see them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.resource import SharedResources
from flink_skills.agents.open.generation import effective_view
from flink_skills.agents.open.opening import tool_inspectors
from flink_skills.agents.plan.agent_file import absolute_path
from flink_skills.agents.plan.compilation import compile_plan
from flink_skills.agents.plan.plan import AgentPlan, ModelPlan
from flink_skills.cli.agent_args import find_agent, job_scope
from flink_skills.cli.look.source_contents import Depth, read_sources
from flink_skills.cli.shared_options import display_path
from flink_skills.cli.terminal_output import diagnostic_json
from flink_skills.endpoint import redact
from flink_skills.errors import ResourceError, SkillsError, UnknownNameError
from flink_skills.manager import AgentSkillManager, SkillScope
from flink_skills.manager.menu import MenuEntry, render_menu
from flink_skills.manager.skill_checks import hiding_options
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import AgentSkill, Diagnostic
from flink_skills.skill.diagnostic import CODES
from flink_skills.skill.skill_inspection import about_tokens
from flink_skills.skill.support import missing_requirements
from flink_skills.tools.dynamic import tool_names_of
from flink_skills.tools.profiles import SkillSettings
from flink_skills.tools.skills.command_environment import command_environment

_SCRIPT_FOLDERS = ("scripts/", "bin/")
_SCRIPT = re.compile(r"\.(?:py|sh|bash|zsh|fish|m?js|cjs|tsx?|rb|pl|php|r|jl|lua|go|java|jar|awk|ps1)$", re.IGNORECASE)


@dataclass(frozen=True)
class Length:
    """Length of a string in characters, and approximately in tokens."""

    chars: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, text: str) -> Length:
        """Return the length of ``text``."""
        return cls(len(text), about_tokens(text))


@dataclass
class CatalogSkill:
    """Skill of a catalog.

    Attributes:
        files: Pairs of path and size in bytes.
        menu: Length of the menu entry, which is part of each request to a model.
        body: Length of the instructions that loading the skill adds.
        tools: Names of the bundled tools.
        missing: Requirements that this host does not meet.
        seen_by: Indexes into the viewers of the catalog.
    """

    name: str
    description: str
    origin: str
    plugin: str = ""
    digest: str = ""
    files: list[tuple[str, int]] = field(default_factory=list)
    menu: Length = Length()
    body: Length = Length()
    documents: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    allowed_tools: list[str] | None = None
    license: str = ""
    compatibility: str = ""
    missing: list[str] = field(default_factory=list)
    is_hidden: bool = False
    is_remote: bool = False
    diagnostics: list[Diagnostic] = field(default_factory=list)
    seen_by: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return the total size of the files in bytes."""
        return sum(size for _, size in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the skill as JSON data."""
        data = asdict(self)
        data["files"] = [{"path": path, "bytes": size} for path, size in self.files]
        data["diagnostics"] = [diagnostic_json(diagnostic) for diagnostic in self.diagnostics]
        return data


@dataclass(frozen=True)
class Viewer:
    """Chat model of an agent that sees some of the skills. ``model`` is "" for an agent without models."""

    agent: str
    model: str
    setup: str
    tools: str
    menu_chars: int
    menu_tokens: int

    @property
    def label(self) -> str:
        """Return the names of agent and model."""
        return f"{self.agent}/{self.model}" if self.model else self.agent


@dataclass
class Catalog:
    """Skills sorted by name, the models that see them, and the diagnostics of sources and directories."""

    title: str
    sources: list[str] = field(default_factory=list)
    skills: list[CatalogSkill] = field(default_factory=list)
    viewers: list[Viewer] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def all_diagnostics(self) -> list[Diagnostic]:
        """Return all diagnostics, those of sources first."""
        return [*self.diagnostics, *(diagnostic for skill in self.skills for diagnostic in skill.diagnostics)]

    @property
    def counts(self) -> Counter[str]:
        """Return the number of diagnostics by severity."""
        return Counter(diagnostic.severity for diagnostic in self.all_diagnostics)

    @property
    def has_errors(self) -> bool:
        """Return True if a diagnostic is an error."""
        return self.counts["error"] > 0

    def to_json(self) -> dict[str, Any]:
        """Return the catalog as JSON data."""
        return {
            "sources": self.sources,
            "viewers": [asdict(viewer) for viewer in self.viewers],
            "skills": [
                {**skill.to_json(), "seen_by": [self.viewers[index].label for index in skill.seen_by]}
                for skill in self.skills
            ],
            "diagnostics": [diagnostic_json(diagnostic) for diagnostic in self.diagnostics],
        }

    def to_page(self) -> dict[str, Any]:
        """Return the data of the HTML page."""
        return {
            "sources": self.sources,
            "viewers": [asdict(viewer) for viewer in self.viewers],
            "skills": [
                {**skill.to_json(), "size": skill.size, "diagnostics": _explained(skill.diagnostics)}
                for skill in self.skills
            ],
            "diagnostics": _explained(self.diagnostics),
        }


def _explained(diagnostics: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """Return diagnostics as JSON data, with the meaning of their codes."""
    return [{**asdict(one), "meaning": CODES[one.code].meaning if one.code in CODES else ""} for one in diagnostics]


def read_source_catalog(sources: Sequence[str], config: SkillConfig) -> Catalog:
    """Return the catalog of sources as one job loads them."""
    contents = read_sources(sources, config, Depth.BODY)
    catalog = Catalog("Skills", [redact(source) for source in sources])
    for loaded in contents.loaded:
        diagnostics = [replace(one, path=contents.display_path(one.path)) for one in contents.diagnostics_of(loaded)]
        origin = contents.display_path(loaded.origin)
        catalog.skills.append(_describe(loaded.skill, config, origin=origin, diagnostics=diagnostics))
    skill_ids = {id(one) for loaded in contents.loaded for one in contents.diagnostics_of(loaded)}
    others = [one for one in contents.diagnostics if id(one) not in skill_ids]
    catalog.diagnostics = [replace(one, path=contents.display_path(one.path)) for one in others]
    return catalog


def read_job_catalog(
    sources: Sequence[str],
    config: SkillConfig,
    *,
    assignments: Sequence[str] = (),
    job: Path | None = None,
    agent: str | None = None,
) -> Catalog:
    """Return the catalog of a job file or of one agent, with the models that see each skill.

    Flink is not used. A source that cannot be read results in a diagnostic.

    Args:
        sources: Skill sources of the job. They replace the sources that the job file or the options declare.
        config: Options of the job. Replaced by the options of ``job`` if it is set.
        assignments: Values of ``--set`` for the job file.
        job: Job file. Exactly one of ``job`` and ``agent`` is set.
        agent: ``module:Class`` or a YAML file.

    Raises:
        SkillsError: The job or agent cannot be read.
    """
    if job is not None:
        title, declared, config, scope, shared = _read_job(job, assignments)
    else:
        declared, shared = [find_agent(agent, "")], None
        title, scope = "", SkillScope("job")
    if sources or agent is not None:
        scope = job_scope(sources, config)
    scopes = [scope] if scope.sources else []
    plans = [compile_plan(one, job_scopes=scopes, config=config, shared=shared) for one in declared]
    collector = _Collector(Catalog(title or plans[0].agent_id), config)
    with ExitStack() as stack:
        for plan in plans:
            for agent_plan in plan.tree():
                collector.add(agent_plan, stack)
    return collector.finish()


def _read_job(
    job: Path, assignments: Sequence[str]
) -> tuple[str, list[Agent], SkillConfig, SkillScope, SharedResources | None]:
    from flink_skills.job.agent_source import AgentSources
    from flink_skills.job.building import sources_of
    from flink_skills.job.job_reading import read_job
    from flink_skills.job.shared_resources import shared_resources

    read = read_job(job, assignments, lenient=True)
    sources = AgentSources(read)
    options, section = read.settings.skills, read.job.skills
    declared: dict[str, list[Any]] = {
        kind: [] if section is None else sources_of(section, kind) for kind in ("paths", "resources", "urls")
    }
    paths = [absolute_path(item, read.folder) for item in declared["paths"]]
    scope = SkillScope(
        "job",
        [*options.get(SkillOptions.FROM_PATHS), *paths],
        [*options.get(SkillOptions.FROM_RESOURCES), *declared["resources"]],
        [*options.get(SkillOptions.FROM_URLS), *declared["urls"]],
    )
    agents = [sources.of(stage.name).agent for stage in read.stages]
    return read.job.name, agents, options, scope, shared_resources(read)


class _Collector:
    """Builder that merges the skills of several agents into one catalog without duplicates."""

    def __init__(self, catalog: Catalog, config: SkillConfig) -> None:
        self._catalog = catalog
        self._config = config
        self._skills: dict[tuple[str, str], CatalogSkill] = {}
        self._diagnostics: dict[Diagnostic, None] = {}

    def add(self, plan: AgentPlan, stack: ExitStack) -> None:
        """Add the skills of an agent and the visibility for each of its models."""
        catalog = self._catalog
        for scope in plan.scopes:
            names = [display_path(source.shown) for source in scope.sources]
            names += [f"code: {skill.name}" for skill in scope.skills]
            catalog.sources += [name for name in dict.fromkeys(names) if name not in catalog.sources]
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
            # An invalid source, such as a relative path, prevents loading of all skills.
            self._report(Diagnostic("D06", "error", str(error), path=plan.agent_id))
            return
        manager.inspect()
        diagnostics = manager.diagnostics
        for failure in manager.failures:
            self._report(Diagnostic("D06", "error", str(failure), path=redact(failure.source)))
        by_name: dict[str, CatalogSkill] = {}
        for skill in manager.get_skills():
            folder = skill.path or skill.origin
            short = skill.name.removeprefix(f"{skill.plugin}:")
            own = [one for one in diagnostics if one.skill in (skill.name, short) and one.path.startswith(folder)]
            key = (skill.name, folder)
            if key not in self._skills:
                self._skills[key] = _describe(
                    skill,
                    self._config,
                    origin=display_path(skill.origin),
                    diagnostics=[_with_display_path(one) for one in own],
                )
            by_name[skill.name] = self._skills[key]
        for diagnostic in diagnostics:
            self._report(diagnostic)
        models: Sequence[ModelPlan | None] = plan.models or (None,)
        for model in models:
            self._add_viewer(plan, model, manager, by_name)

    def _add_viewer(
        self, plan: AgentPlan, model: ModelPlan | None, manager: AgentSkillManager, by_name: dict[str, CatalogSkill]
    ) -> None:
        names = plan.filter_of(model)
        try:
            view = effective_view(plan, manager, model)
        except UnknownNameError as error:
            self._report(Diagnostic("D06", "error", str(error), path=plan.agent_id, fix="correct skill_names"))
            names = ()
            view = manager.view(names)
        settings = SkillSettings.of(self._config, model.skill_settings if model is not None else None)
        menu = view.menu()
        for name in view.names:
            by_name[name].seen_by.append(len(self._catalog.viewers))
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
        for diagnostic in manager.menu_diagnostics(names):
            self._report(diagnostic)

    def _report(self, diagnostic: Diagnostic) -> None:
        self._diagnostics[_with_display_path(diagnostic)] = None

    def finish(self) -> Catalog:
        """Return the complete catalog."""
        if not self._catalog.sources:
            fix = "name the sources that the cluster adds: flink-skills catalog SOURCE… with --job or --agent"
            message = "the job declares no skill sources"
            self._report(Diagnostic("D04", "error", message, path=self._catalog.title, fix=fix))
        self._catalog.skills = sorted(self._skills.values(), key=lambda skill: (skill.name, skill.origin))
        # Each skill has its own diagnostics.
        of_skills = {diagnostic for skill in self._catalog.skills for diagnostic in skill.diagnostics}
        self._catalog.diagnostics = [one for one in self._diagnostics if one not in of_skills]
        return self._catalog


def _with_display_path(diagnostic: Diagnostic) -> Diagnostic:
    return replace(diagnostic, path=display_path(diagnostic.path))


def _describe(
    skill: AgentSkill, config: SkillConfig, *, origin: str, diagnostics: Sequence[Diagnostic]
) -> CatalogSkill:
    """Return the catalog entry of ``skill``. Unreadable parts are omitted, and a diagnostic has the reason."""
    entry = CatalogSkill(
        skill.name,
        skill.description,
        origin,
        skill.plugin,
        menu=Length.of(_menu_line(skill)),
        allowed_tools=None if skill.allowed_tools is None else list(skill.allowed_tools),
        license=skill.license or "",
        compatibility=skill.compatibility or "",
        missing=missing_requirements(skill, command_environment(config)),
        is_hidden=skill.hidden,
        is_remote=skill.remote,
        diagnostics=list(diagnostics),
    )
    try:
        entry.digest = skill.digest
        entry.files = [(path, size) for path, (size, _) in sorted(skill.files.manifest().items())]
        entry.body = Length.of(skill.instructions)
        entry.documents = list(skill.docs)
        entry.tools = tool_names_of(skill)
    except (ResourceError, OSError):
        return entry
    entry.scripts = [
        path
        for path, _ in entry.files
        if path not in entry.documents and (path.startswith(_SCRIPT_FOLDERS) or _SCRIPT.search(path))
    ]
    return entry


def _menu_line(skill: AgentSkill) -> str:
    menu_entry = MenuEntry(skill.name, skill.description, skill.origin if skill.remote else "")
    text = render_menu([menu_entry], 1 << 30, "").text
    return text.partition("<available_skills>\n")[2].rpartition("</available_skills>")[0]
