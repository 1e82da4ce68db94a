"""``AgentSkillManager``: the skills of a job, loaded from all of its sources."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from flink_skills.errors import ConfigError, SkillFormatError, SkillsError, SourceError, UnknownNameError
from flink_skills.manager.catalog import Catalog
from flink_skills.manager.menu import MenuEntry, render_menu
from flink_skills.manager.scope import SkillScope
from flink_skills.manager.view import SkillView
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import AgentSkill, Diagnostic, Limits
from flink_skills.sources import SourceContext

__all__ = ["AgentSkillManager"]


class AgentSkillManager:
    """Loads skills from paths, job-JAR resources and URLs, and shows models what they may see of them.

    One bad skill or source takes nothing else down: it is a diagnostic, or an entry of :attr:`failures`,
    unless ``strict`` (``skills.strict`` by default) asks otherwise. Loading happens once, when first needed.

    >>> AgentSkillManager().get_system_prompt()
    ''
    """

    def __init__(
        self,
        paths: Sequence[str] = (),
        resources: Sequence[str] = (),
        urls: Sequence[str] = (),
        *,
        config: SkillConfig | None = None,
        resource_paths: Mapping[str, Sequence[str]] | None = None,
        store_dir: str | None = None,
        strict: bool | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._scopes: tuple[SkillScope, ...] = (SkillScope("job", tuple(paths), tuple(resources), tuple(urls)),)
        self._config = config or SkillConfig()
        self._limits = limits or Limits()
        self._context = SourceContext(self._config, resource_paths, store_dir, self._limits)
        self._strict = self._config.get(SkillOptions.STRICT) if strict is None else strict
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None
        for name, value in (("paths", paths), ("resources", resources), ("urls", urls)):
            if isinstance(value, str):
                raise ConfigError(f"skill {name} {value!r}: give a list, such as [{value!r}]")

    @classmethod
    def from_scopes(
        cls,
        scopes: Sequence[SkillScope],
        *,
        config: SkillConfig | None = None,
        resource_paths: Mapping[str, Sequence[str]] | None = None,
        store_dir: str | None = None,
        strict: bool | None = None,
        limits: Limits | None = None,
    ) -> AgentSkillManager:
        """A manager for what job and agent declare: an agent's skill wins over the job's of the same name."""
        manager = cls(config=config, resource_paths=resource_paths, store_dir=store_dir, strict=strict, limits=limits)
        # Sorting is stable: within a level the order of declaration stays.
        manager._scopes = tuple(sorted(scopes, key=lambda scope: scope.level != "agent"))
        return manager

    def load_skills(self) -> list[AgentSkill]:
        """Load all sources, the first time; the skills sorted by name.

        Raises :class:`ConfigError` for a source that can never work (a relative path, a plain http URL that
        no option allows). With ``strict``, raises :class:`SkillFormatError` (:class:`SourceError` if only
        sources failed) with all errors at once.
        """
        return list(self._loaded().skills.values())

    def get_skills(self) -> list[AgentSkill]:
        """All loaded skills, sorted by name."""
        return self.load_skills()

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What loading had to say, sources in order."""
        return list(self._loaded().diagnostics)

    @property
    def failures(self) -> list[SourceError]:
        """The sources that could not be read at all."""
        return list(self._loaded().failures)

    def check_sources(self) -> None:
        """Raise :class:`SourceError` naming every source that cannot be read; ``retryable`` if all of them
        are.

        For the places where a missing source must not pass: submit, and the operator's open.
        """
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

    def get_system_prompt(self, names: Sequence[str] | None = None) -> str:
        """The menu for these skills (all by default), within ``skills.prompt.max-chars``; "" when there is
        none.

        Raises :class:`UnknownNameError` for a name that no source has.
        """
        return self.view(names).menu()

    def view(self, names: Sequence[str] | None = None) -> SkillView:
        """The skills that one model may use: ``names``, or all that do not ask to be hidden from models.

        Raises :class:`UnknownNameError` for a name that no source has, with near names.
        """
        skills = self._loaded().skills
        if isinstance(names, str):
            raise ConfigError(f"skill names {names!r}: give a list, such as [{names!r}]")
        if names is None:
            chosen = [skill for skill in skills.values() if not skill.hidden]
        else:
            for name in names:
                if name not in skills:
                    raise UnknownNameError("skill", name, skills)
            chosen = [skills[name] for name in dict.fromkeys(names)]
        return SkillView(chosen, max_chars=self._config.get(SkillOptions.PROMPT_MAX_CHARS), limits=self._limits)

    def menu_diagnostics(self, names: Sequence[str] | None = None) -> list[Diagnostic]:
        """What the budget does to the menu of these skills."""
        view = self.view(names)
        skills = [skill for name in view if (skill := view.get(name)) is not None and not skill.hidden]
        budget = self._config.get(SkillOptions.PROMPT_MAX_CHARS)
        menu = render_menu([MenuEntry(skill.name, skill.description) for skill in skills], budget)
        if not menu.shortened and not menu.left_out:
            return []
        parts = [f"{menu.shortened} descriptions were shortened"] if menu.shortened else []
        if menu.left_out:
            parts.append(f"{len(menu.left_out)} skills were left out: {', '.join(menu.left_out[:20])}")
        mend = f"raise {SkillOptions.PROMPT_MAX_CHARS.key} or choose fewer skills with skill_names"
        return [Diagnostic("P01", "warning", f"to fit {budget} characters, {' and '.join(parts)}", mend=mend)]

    def _loaded(self) -> Catalog:
        with self._lock:
            if self._catalog is None:
                catalog = Catalog.load(self._scopes, self._context, self._limits, strict=self._strict)
                if self._strict:
                    _raise_all(catalog)
                self._catalog = catalog
            return self._catalog


def _raise_all(catalog: Catalog) -> None:
    errors = [str(diagnostic) for diagnostic in catalog.diagnostics if diagnostic.severity == "error"]
    if not errors:
        return
    text = "\n".join(f"- {error}" for error in errors)
    kind: type[SkillsError] = SourceError if len(errors) == len(catalog.failures) else SkillFormatError
    raise kind(f"{len(errors)} errors in the skills, and skills.strict is set:\n{text}")
