"""Agents of a job file: YAML files in its folder, ``module:Class``, or mappings in the file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.agent_file import agent_of, read_agent_document, with_absolute_paths
from flink_skills.agents.plan.compilation import instantiate
from flink_skills.agents.plan.plan import import_object, unknown_in_module
from flink_skills.agents.plan.spec import AgentSpec
from flink_skills.documents.document import Document, DocumentError, Path
from flink_skills.documents.schema_validation import schema_problems
from flink_skills.errors import ConfigError, PlanError, SkillsError
from flink_skills.hints import is_class
from flink_skills.job.job_model import AgentToolSpec, JobAgent
from flink_skills.job.job_reading import ReadJob, hidden
from flink_skills.job.job_references import References

_YAML = (".yaml", ".yml")
# Keys that connect an agent with the rest of its job.
_AROUND = ("agent", "input", "output", "errors", "events", "answers", "waits", "agent_tools")


@dataclass(frozen=True)
class AgentSource:
    """An agent. For an agent without code, ``spec`` declares it, at the path ``at`` of ``document``."""

    agent: Agent
    document: Document | None = None
    at: Path = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    references: References | None = None


class AgentSources:
    """The agents of a job, each with where it comes from. An agent is loaded once."""

    def __init__(self, read: ReadJob) -> None:
        self._read = read
        self._found: dict[str, AgentSource] = {}
        self._loading: list[str] = []
        # Agents and tools may be in modules next to the file.
        search_modules([read.folder, FilePath.cwd()])

    def of(self, name: str = "") -> AgentSource:
        """Return an agent of the job, "" for the one of a job with one.

        Raises :class:`DocumentError` with places in the file that is wrong.
        """
        if name not in self._found:
            self._found[name] = self._load(name)
        return self._found[name]

    def called(self, name: str = "") -> list[AgentSource]:
        """Return an agent and the agents that it calls, directly or through others. Raises as :meth:`of`."""
        found: dict[str, AgentSource] = {}
        left = [name]
        while left:
            each = left.pop(0)
            if each in found:
                continue
            found[each] = self.of(each)
            entry = (self._read.job.agents or {}).get(each)
            tools = (entry.agent_tools or {}) if entry is not None else {}
            left += [tool if isinstance(tool, str) else tool.agent for tool in tools.values()]
        return list(found.values())

    def _load(self, name: str) -> AgentSource:
        if not name:
            given = self._read.job.agent
            if isinstance(given, str):
                return self._named(given, ("agent",))
            return self._inline(self._read.job.name, given.model_dump(exclude_unset=True) if given else {}, ("agent",))
        entry = (self._read.job.agents or {})[name]
        at: Path = ("agents", name)
        spec = entry.model_dump(exclude_unset=True, exclude=set(_AROUND))
        if entry.agent is None:
            return self._inline(name, {**spec, **self._tools(name, entry)}, at)
        if spec:
            raise self._read.problem(
                (*at, next(iter(spec))), f"the agent is {entry.agent}, which has its own keys; write it there"
            )
        source = self._named(entry.agent, (*at, "agent"))
        tools = self._tools(name, entry)
        if not tools:
            return source
        if source.document is None:
            raise self._read.problem(
                (*at, "agent_tools"), "an agent of code declares the agents that it calls with @agent_tool"
            )
        return _declared({**source.spec, **tools}, source.document, source.at, source.references)

    def _tools(self, name: str, entry: JobAgent) -> dict[str, Any]:
        """Return the agents that an agent calls, as a declarative agent has them."""
        found = {}
        for tool, of in (entry.agent_tools or {}).items():
            called = AgentToolSpec.model_validate({"agent": of}) if isinstance(of, str) else of
            path: Path = ("agents", name, "agent_tools", tool)
            if called.agent not in (self._read.job.agents or {}) or called.agent in (name, *self._loading):
                raise DocumentError([])  # reported where agents are connected
            self._loading.append(name)
            try:
                callee = self.of(called.agent)
            finally:
                self._loading.pop()
            manner = called.model_dump(exclude={"agent"}, exclude_none=True)
            if callee.document is not None:
                found[tool] = {**manner, "spec": dict(callee.spec)}
            elif (self._read.job.agents or {})[called.agent].agent is not None:
                found[tool] = {**manner, "class": (self._read.job.agents or {})[called.agent].agent}
            else:
                raise self._read.problem(path, f"agent {called.agent} cannot be called")
        return {"agent_tools": found} if found else {}

    def _named(self, word: str, at: Path) -> AgentSource:
        read = self._read
        if word.endswith(_YAML):
            return _from_file(read, read.folder / word, at)
        try:
            return AgentSource(import_agent(word, f"agent {word!r}"))
        except SkillsError as error:
            raise read.problem(at, str(error)) from error

    def _inline(self, name: str, spec: Mapping[str, Any], at: Path) -> AgentSource:
        read = self._read
        spec = with_absolute_paths({"name": name, **_without_nulls(spec)}, read.folder, read.document, at)
        return _declared(spec, self._read.document, at, self._read.references)


def _from_file(read: ReadJob, path: FilePath, at: Path) -> AgentSource:
    if not path.is_file():
        raise read.problem(at, f"there is no file {path}; write its path from the folder of the job file")
    document = read_agent_document(path)
    problems = schema_problems(document, AgentSpec)
    references = References(document, read.folder, at=("agent",), known=read.references)
    data = references.resolved(document.data)
    search_modules([read.folder, path.parent, FilePath.cwd()])
    if problems or references.problems:
        raise DocumentError([*(hidden(p, references) for p in problems), *references.problems])
    spec = with_absolute_paths({"name": path.stem, **data}, path.parent, document)
    return _declared(spec, document, (), references)


def _declared(spec: Mapping[str, Any], document: Document, at: Path, references: References | None) -> AgentSource:
    try:
        return AgentSource(agent_of(spec, document, at), document, at, spec, references)
    except DocumentError as error:
        raise (error if references is None else error.redacted(references.hide)) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def search_modules(folders: Sequence[FilePath]) -> None:
    """Search modules in ``folders`` first, in their order, unless Python searches them already."""
    known = {str(FilePath(entry or ".").absolute()) for entry in sys.path}
    for folder in reversed([str(folder.absolute()) for folder in folders]):
        if folder not in known:
            known.add(folder)
            sys.path.insert(0, folder)


def import_agent(word: str, what: str) -> Agent:
    """Return the agent that ``module:Class`` names. Errors begin with ``what``.

    Raises :class:`ConfigError` if there is no such agent, and :class:`PlanError` if its module cannot be imported.
    """
    module, colon, name = word.partition(":")
    if not colon or not module or not name:
        raise ConfigError(f"{what}: write module:Class, or the path of a YAML file")
    try:
        target = import_object(word)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what}: there is no module {error.name!r}; run from its folder, install it, or set PYTHONPATH"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"{what}: {unknown_in_module(module, name) or error}") from error
    except SkillsError:
        raise
    except (Exception, SystemExit) as error:  # importing a user's module raises anything
        raise PlanError(f"{what}: importing it failed: {type(error).__name__}: {error}") from error
    if not isinstance(target, Agent) and not (is_class(target) and issubclass(target, Agent)):
        raise ConfigError(f"{what}: is not an Agent class or instance, but {target!r:.200}")
    return instantiate(target)
