"""``AgentSkillManager``: the skills of a job, loaded from all of its sources."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, ClassVar

from flink_skills.errors import ConfigError, SkillFormatError, SkillsError, SourceError, counted
from flink_skills.manager.lockfile import SkillLock, outdated_message
from flink_skills.manager.scope import SkillScope, SourceItem
from flink_skills.manager.skill_catalog import Catalog, Refreshed, compare
from flink_skills.manager.skill_checks import (
    Inspector,
    Support,
    hidden_skill,
    inspect_entries,
    refusal_of,
    unavailable_skills,
    unsupported,
)
from flink_skills.manager.source_loading import Entry, LoadedSource, LoadedTree, declared_sources, read_sources, watch
from flink_skills.manager.view import AuditHook, SkillView, log_event
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.prompts import Prompt
from flink_skills.resource import Resource
from flink_skills.skill import AgentSkill, Diagnostic, Limits
from flink_skills.skill.server_files import PluginServer, not_started
from flink_skills.skill.support import RuntimeEnvironment, check_support
from flink_skills.sources import SourceContext

_KEPT_VIEWS = 64

_logger = logging.getLogger(__name__)


class AgentSkillManager(Resource):
    """Loads skills from paths, job-JAR resources and URLs, and returns the skills that a model may see.

    Loading happens once, on first use, and again with :meth:`refresh`. An invalid skill or source does not affect
    others: it becomes a diagnostic, or an entry of :attr:`failures`. Threads can share a manager. :meth:`close` returns
    its folders to the store. If two skills have the same name, one of ``skills`` takes precedence over one of a path, a
    resource or a URL.

    Args:
        paths: Folders and archives: a list of sources, or one source as a string.
        resources, urls: Resources of the job's JARs, and URLs, in the same form.
        skills: Skills that a program created. Their files are in the store while the manager uses them.
        config: The options.
        resource_paths: The resources' paths on this machine, by name.
        store_dir: The directory of the store, unless ``skills.store.dir`` names one.
        strict: True to reject skills with errors. The default is ``skills.strict``.
        limits: The limits. The default is ``skills.limits.*``.
        lock: No skill with another digest is offered. The default is the file of ``skills.lock``.
        audit: Receives each use of a skill.
        opened: Start of the opening in seconds since 1970, by default now. Servers with a request since are skipped.
        environment: The environment of commands. A skill that requires something else is in no view.
        inspectors: Called by :meth:`inspect` with a skill and ``strict``. They return more diagnostics.
        tools: The names of the tools that models have, except those for skills. None: they are not known.

    >>> AgentSkillManager().get_system_prompt() == ""
    True
    """

    resource_type: ClassVar[str] = "skills"

    def __init__(
        self,
        paths: Sequence[SourceItem] | str | None = None,
        resources: Sequence[SourceItem] | str | None = None,
        urls: Sequence[SourceItem] | str | None = None,
        skills: Sequence[AgentSkill] | None = None,
        *,
        config: SkillConfig | None = None,
        resource_paths: Mapping[str, Sequence[str]] | None = None,
        store_dir: str | None = None,
        strict: bool | None = None,
        limits: Limits | None = None,
        lock: SkillLock | None = None,
        audit: AuditHook = log_event,
        opened: float | None = None,
        environment: RuntimeEnvironment | None = None,
        inspectors: Sequence[Inspector] = (),
        tools: Collection[str] | None = (),
    ) -> None:
        listed = []
        for kind, items in (("paths", paths), ("resources", resources), ("urls", urls)):
            if not (items is None or isinstance(items, (str, Iterable))) or isinstance(items, Mapping):
                raise ConfigError(f"AgentSkillManager: {kind} must be a list of strings, not {type(items).__name__}")
            listed.append([items] if isinstance(items, str) else items or ())
        if not (config is None or isinstance(config, SkillConfig)):
            raise ConfigError(f"AgentSkillManager: config must be a SkillConfig, not {type(config).__name__}")
        self._scopes: tuple[SkillScope, ...] = (SkillScope("job", *listed, skills=() if skills is None else skills),)
        self._config = config or SkillConfig()
        self._limits = limits or Limits.from_config(self._config)
        opened = time.time() if opened is None else opened
        self._context = SourceContext(self._config, resource_paths, store_dir, self._limits, opened=opened)
        self._strict = self._config.get(SkillOptions.STRICT) if strict is None else strict
        self._skill_lock = lock
        self._audit: AuditHook = log_event if audit is None else audit
        self._environment = environment
        self._inspectors = tuple(inspectors or ())
        self._tools = tools
        self._unsupported = self._config.get(SkillOptions.UNSUPPORTED)
        self._started: tuple[str, ...] = self._config.get(SkillOptions.PLUGINS_SERVERS)
        self._with_servers: set[LoadedTree] = set()
        self._catalog: Catalog | None = None
        self._unavailable: Mapping[str, Diagnostic] = {}
        self._generation = 0
        self._refused: SkillsError | None = None
        self._closed = False
        self._views: OrderedDict[tuple[str, ...] | None, SkillView] = OrderedDict()
        # The trees of all generations that are still in use.
        self._trees: weakref.WeakSet[LoadedTree] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._outdated: tuple[str, ...] = ()
        self._refreshing = threading.Lock()

    @classmethod
    def from_scopes(cls, scopes: Sequence[SkillScope], **options: Any) -> AgentSkillManager:
        """Return a manager for the sources of job and agent. A skill of the agent overrides one of the job.

        ``options`` are the keyword arguments of the class, from ``config`` on.
        """
        manager = cls(**options)
        # Sorting is stable: within a level the order of declaration stays.
        manager._scopes = tuple(sorted(scopes, key=lambda scope: scope.level != "agent"))
        return manager

    @property
    def paths(self) -> list[str]:
        """The declared paths."""
        return self._declared_as("paths")

    @property
    def resources(self) -> list[str]:
        """The declared resources of the job's jars."""
        return self._declared_as("resources")

    @property
    def urls(self) -> list[str]:
        """The declared URLs, without credentials and queries."""
        return self._declared_as("urls")

    @property
    def skills(self) -> list[AgentSkill]:
        """All loaded skills, as :meth:`get_skills` returns them."""
        return self.get_skills()

    @property
    def config(self) -> SkillConfig:
        """The options of the manager."""
        return self._config

    def _declared_as(self, name: str) -> list[str]:
        return [str(spec.public) for scope in self._scopes for spec in getattr(scope, name)]

    def load_skills(self) -> list[AgentSkill]:
        """Load all sources unless they are loaded. Return the skills sorted by name.

        Raises:
            ConfigError: A source can never work, such as a relative path or a plain http URL that no option allows.
            SkillLockError: Skills differ from the lock.
            UnsupportedSkillError: ``skills.unsupported`` rejects skills. The message has all reasons.
            SkillFormatError: With ``strict``, skills have errors. The message also has those of :meth:`inspect`.
            SourceError: With ``strict``, only sources have errors.
        """
        return list(self._loaded().skills.values())

    def get_skills(self) -> list[AgentSkill]:
        """Return all loaded skills, sorted by name."""
        return self.load_skills()

    def known_names(self) -> list[str]:
        """Return the names of all skills, and the full names of those of plugins."""
        return list(dict.fromkeys(name for skill in self.load_skills() for name in (skill.name, skill.full_name)))

    def plugin_servers(self) -> list[PluginServer]:
        """Return the MCP servers of the plugins in all sources, each once. Started or not.

        Their folders remain in the store until :meth:`close`.
        """
        sources = self._loaded().sources
        found = {(server.root, server.full_name): server for server in self._servers_of(sources)}
        self._with_servers.update(tree for tree in _trees(sources) if tree.servers(self._context))
        return list(found.values())

    def _servers_of(self, sources: Sequence[LoadedSource]) -> list[PluginServer]:
        return [server for tree in _trees(sources) for server in tree.servers(self._context)]

    def _load_skills_from_paths(self, paths: Sequence[SourceItem]) -> list[AgentSkill]:
        """Return the skills of these folders and archives only."""
        return self._skills_of(SkillScope("job", paths=paths))

    def _load_skills_from_resources(self, resources: Sequence[SourceItem]) -> list[AgentSkill]:
        """Return the skills of these job-JAR resources only."""
        return self._skills_of(SkillScope("job", resources=resources))

    def _load_skills_from_urls(self, urls: Sequence[SourceItem]) -> list[AgentSkill]:
        """Return the skills of these URLs only."""
        return self._skills_of(SkillScope("job", urls=urls))

    def refresh(self) -> Refreshed | None:
        """Read all sources again. Return the changes of the skills, None without changes.

        Existing views keep their content. Unmodified files in folders are not read. The digest of a modified skill
        decides whether it has changed. A source that fails keeps its skills, and is in :attr:`failures`. If ``strict``
        or the lock rejects the result, the skills stay as they are, and :attr:`failures` has the reason.
        """
        with self._refreshing:
            before = self._loaded()
            if self._closed:
                return None
            context = replace(self._context, refresh=True)
            found = Catalog.of(self._read(context, before.sources))
            refused = self._refusal(found)
            changes = None if refused else compare(before, found, self._generation + 1)
            unavailable = {} if refused else self._hidden_of(found)
            with self._lock:
                self._refused = refused
                if self._closed:
                    _close_all(set(_trees(found.sources)) - set(_trees(before.sources)))
                    return None
                if refused is None:
                    self._install(found, unavailable)
                    self._generation += changes is not None
            return changes

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, in any thread, when a source reports other content. Return a function that ends this."""
        return watch(declared_sources(self._scopes), self._context, changed)

    @property
    def generation(self) -> int:
        """The number of changes of the skills: 0 before they are loaded, 1 then, and one more with each change."""
        return self._generation

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The diagnostics of loading, in the order of the sources, then those of inspections, by skill."""
        catalog = self._loaded()
        started = set(map(not_started, self._started))
        found = [one for one in catalog.diagnostics if one.message not in started]
        found += self._unavailable.values()
        for skill in catalog.skills.values():
            found.extend(self._without_guesses(catalog.entry(skill).findings or ()))
        if self._refused is not None:
            fix = "the current skills remain in use; fix the source, and the next refresh loads it"
            found.append(Diagnostic("D06", "error", f"the refreshed skills are rejected: {self._refused}", fix=fix))
        return found

    @property
    def failures(self) -> list[SourceError]:
        """The sources that cannot be read, and the reason if the last refresh was rejected."""
        refused = [] if self._refused is None else [SourceError(f"the refreshed skills are rejected: {self._refused}")]
        return [*self._loaded().failures, *refused]

    def check_sources(self) -> None:
        """Raise :class:`SourceError` with all sources that cannot be read. It is ``retryable`` if all of them are."""
        failures = self.failures
        if len(failures) == 1:
            raise failures[0]
        if failures:
            text = "\n".join(f"- {failure}" for failure in failures)
            raise SourceError(
                f"{len(failures)} skill sources cannot be read:\n{text}",
                source=", ".join(failure.source for failure in failures),
                retryable=all(failure.retryable for failure in failures),
            )

    def inspect(self, names: Sequence[str] | None = None) -> list[Diagnostic]:
        """Read these skills, by default all, and return their diagnostics.

        They report problems of the body, missing features of this runtime, and unreadable files. The digests are
        computed as well: a later change is an error instead of new content (rule S08 in the skill format). Several
        skills are read concurrently, and each of them once. Raises :class:`UnknownNameError`.
        """
        catalog = self._loaded()
        entries = [catalog.entry(skill) for skill in catalog.chosen(names, hidden=True)]
        return list(self._without_guesses(chain.from_iterable(self._inspect(catalog, entries))))

    def check_skill(self, skill: AgentSkill) -> list[Diagnostic]:
        """Return a diagnostic for each request of ``skill`` that this runtime does not support."""
        return self._support(self._loaded())(skill)

    _check_skill = check_skill  # its name in the design

    @property
    def hidden(self) -> Mapping[str, Diagnostic]:
        """The skills that no model sees because they cannot work here, by name, with the reason."""
        self._loaded()
        return self._unavailable

    def summary(self) -> dict[str, Any]:
        """Return the counts of skills, sources and diagnostics, for metrics and a line in the log."""
        catalog, diagnostics = self._loaded(), self.diagnostics
        severities = Counter(diagnostic.severity for diagnostic in diagnostics)
        return {
            "skills": len(catalog.skills),
            "sources": len(catalog.sources),
            "failed_sources": len(catalog.failures),
            "errors": severities["error"],
            "warnings": severities["warning"],
            "infos": severities["info"],
            "left_out": sum(diagnostic.left_out for diagnostic in diagnostics),
            "codes": dict(sorted(Counter(diagnostic.code for diagnostic in diagnostics).items())),
        }

    def get_system_prompt(self, names: Sequence[str] | None = None) -> Prompt:
        """Return the menu of these skills (all by default), within ``skills.prompt.max-chars``.

        The prompt is also a string. It is empty if there are no skills.

        Raises :class:`UnknownNameError` for a name that no source has.
        """
        return Prompt(system=self.view(names).menu())

    def view(self, names: Sequence[str] | None = None) -> SkillView:
        """Return the skills that one model may use: ``names``, or all skills that are not hidden from models.

        Skills that cannot work here are omitted. The view for the same names is one object until the skills change.
        Raises :class:`UnknownNameError`, with close matches, for a name that no source has.
        """
        with self._lock:
            catalog = self._loaded()
            chosen = [skill for skill in catalog.chosen(names, hidden=False) if skill.name not in self._unavailable]
            wanted = None if names is None else tuple(sorted(skill.name for skill in chosen))
            known = self._views.get(wanted)
            if known is not None:
                self._views.move_to_end(wanted)
                return known
            view = SkillView(
                chosen,
                max_chars=self._config.get(SkillOptions.PROMPT_MAX_CHARS),
                limits=self._limits,
                bind=catalog.bind,  # and with it the catalog, whose folders the store keeps
                audit=self._audit,
            )
            self._views[wanted] = view
            if len(self._views) > _KEPT_VIEWS:
                self._views.popitem(last=False)
            return view

    def menu_diagnostics(self, names: Sequence[str] | None = None) -> list[Diagnostic]:
        """Return the diagnostics for a menu that is shortened to its maximum length."""
        budget = self._config.get(SkillOptions.PROMPT_MAX_CHARS)
        menu = self.view(names).rendered()
        if not menu.shortened and not menu.left_out:
            return []
        parts = []
        if menu.shortened:
            parts.append(f"{counted(menu.shortened, 'description was', 'descriptions were')} shortened")
        if menu.left_out:
            skills = counted(len(menu.left_out), "skill was", "skills were")
            parts.append(f"{skills} left out: {', '.join(menu.left_out[:20])}")
        fix = f"raise {SkillOptions.PROMPT_MAX_CHARS.key} or choose fewer skills with skill_names"
        return [Diagnostic("P01", "warning", f"to fit {budget} characters, {' and '.join(parts)}", fix=fix)]

    def close(self) -> None:
        """Return the folders of all generations to the store, which can then remove them.

        Loaded skills stay available. A closed manager does not refresh. A second call has no effect.
        """
        with self._lock:
            self._closed = True
            _close_all(self._trees)

    def __enter__(self) -> AgentSkillManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _loaded(self) -> Catalog:
        with self._lock:
            if self._catalog is None:
                catalog = Catalog.of(self._read(self._context, ()))
                refused = self._refusal(catalog)
                if refused is not None:
                    _close_all(_trees(catalog.sources))
                    raise refused
                self._install(catalog, self._hidden_of(catalog))
                self._scopes = self.pinned_scopes()
                self._generation = 1
                return catalog
            return self._catalog

    def pinned_scopes(self) -> tuple[SkillScope, ...]:
        """Return the scopes with the loaded content pinned where a source can pin it."""
        pins = {
            source.declared.spec: tree.tree.pinned
            for source in self._loaded().sources
            for tree in source.trees
            if tree.tree.pinned is not None
        }
        return tuple(replace(scope, urls=tuple(pins.get(url, url) for url in scope.urls)) for scope in self._scopes)

    def _read(self, context: SourceContext, before: Sequence[LoadedSource]) -> list[LoadedSource]:
        return read_sources(declared_sources(self._scopes), context, strict=self._strict, before=before)

    def _install(self, catalog: Catalog, unavailable: Mapping[str, Diagnostic]) -> None:
        self._catalog = catalog
        self._unavailable = unavailable
        self._views.clear()
        self._trees.update(_trees(catalog.sources))

    def _refusal(self, catalog: Catalog) -> SkillsError | None:
        """Return the reason to reject a catalog: errors with ``strict``, or skills that differ from the lock."""
        errors = self._errors(catalog) if self._strict else []
        if errors:
            text = "\n".join(f"- {error}" for error in errors)
            kind: type[SkillsError] = SourceError if len(errors) == len(catalog.failures) else SkillFormatError
            many = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
            return kind(f"{many} in the skills, and skills.strict is set:\n{text}")
        try:
            lock, path = self._skill_lock, self._config.get(SkillOptions.LOCK)
            if lock is None and path:
                lock = SkillLock.read(path)
            if lock is not None:
                catalog.bind_all(catalog.skills.values())
                # A source that failed says so itself: what it has is not missing.
                outdated = lock.check(catalog.skills.values(), complete=not catalog.failures)
                if outdated and outdated != self._outdated:  # a refresh logs the same skills once
                    _logger.warning("%s", outdated_message([catalog.skills[name] for name in outdated]))
                self._outdated = outdated
        except SkillsError as error:
            return error
        return refusal_of(self._reasons(catalog)) if self._unsupported == "refuse" else None

    def _hidden_of(self, catalog: Catalog) -> Mapping[str, Diagnostic]:
        """Return the diagnostics of the skills that are hidden from all models, by name."""
        unavailable = unavailable_skills(catalog.skills.values(), self._environment, strict=self._strict)
        if self._unsupported != "hide":
            return unavailable
        reasons = self._reasons(catalog)
        more = {name: hidden_skill(catalog.skills[name], found) for name, found in reasons.items() if found}
        return {**more, **unavailable}

    def _reasons(self, catalog: Catalog) -> Mapping[str, Sequence[Diagnostic]]:
        """Return the diagnostics about needs that the job does not serve, by skill."""
        unavailable = unavailable_skills(catalog.skills.values(), self._environment, strict=self._strict)
        inspected = self._inspect(catalog, [catalog.entry(skill) for skill in catalog.skills.values()])
        # A server lists its tools when it is connected.
        serving = {name.partition(":")[0] for name in self._started}
        found: dict[str, Sequence[Diagnostic]] = {}
        for name, inspection in zip(catalog.skills, inspected, strict=True):
            diagnostics = [*([unavailable[name]] if name in unavailable else ()), *self._without_guesses(inspection)]
            tools_known = self._tools is not None and catalog.skills[name].plugin not in serving
            found[name] = unsupported(diagnostics, tools_known=tools_known)
        return found

    def _errors(self, catalog: Catalog) -> list[str]:
        """Return all errors of loading and inspecting. With ``strict`` they are reported together."""
        entries = [catalog.entry(skill) for skill in catalog.skills.values()]
        unavailable = unavailable_skills(catalog.skills.values(), self._environment, strict=True)
        found = [*catalog.diagnostics, *unavailable.values(), *chain.from_iterable(self._inspect(catalog, entries))]
        return [str(diagnostic) for diagnostic in found if diagnostic.severity == "error"]

    def _inspect(self, catalog: Catalog, entries: Sequence[Entry]) -> Sequence[Sequence[Diagnostic]]:
        support, strict = self._support(catalog), self._strict
        return inspect_entries(entries, self._limits, strict=strict, support=support, inspectors=self._inspectors)

    def _support(self, catalog: Catalog) -> Support:
        return partial(
            check_support,
            commands=self._config.get(SkillOptions.SHELL_ENABLED),
            tools=self._tools or (),
            environment=self._environment,
            servers=lambda: self._servers_of(catalog.sources),
            started=self._started,
        )

    def _without_guesses(self, found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
        """Return the diagnostics without guesses about requirements, if the environment is known."""
        return (one for one in found if self._environment is None or one.code != "U09")

    def _skills_of(self, scope: SkillScope) -> list[AgentSkill]:
        sources = read_sources(declared_sources([scope]), self._context, strict=self._strict)
        with self._lock:
            self._trees.update(_trees(sources))
        return list(Catalog.of(sources).skills.values())


def _trees(sources: Sequence[LoadedSource]) -> list[LoadedTree]:
    return [tree for source in sources for tree in source.trees]


def _close_all(trees: Sequence[LoadedTree] | set[LoadedTree] | weakref.WeakSet[LoadedTree]) -> None:
    for tree in list(trees):
        tree.close()
