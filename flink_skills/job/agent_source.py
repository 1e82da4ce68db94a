"""The agent of a job file: a YAML file beside it, ``module:Class``, or the mapping in the file itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from flink_skills.agents.agent import Agent
from flink_skills.agents.agent_file import agent_of, read_agent_document
from flink_skills.agents.compilation import instantiate
from flink_skills.agents.plan import import_object
from flink_skills.agents.spec import AgentSpec
from flink_skills.documents.document import Document
from flink_skills.documents.problems import DocumentError, Path
from flink_skills.documents.validation import schema_problems
from flink_skills.errors import ConfigError, PlanError, SkillsError
from flink_skills.job.reading import ReadJob, hidden
from flink_skills.job.references import References

__all__ = ["AgentSource", "agent_source", "import_agent", "job_agent"]

_YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class AgentSource:
    """An agent, and for one without code what declares it: ``spec``, which stands at ``at`` of ``document``."""

    agent: Agent
    document: Document | None = None
    at: Path = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    references: References | None = None


def job_agent(read: ReadJob) -> Agent:
    """The agent of a job. Raises :class:`DocumentError` with places in the file that is wrong."""
    return agent_source(read).agent


def agent_source(read: ReadJob) -> AgentSource:
    """The agent of a job, and where it comes from. Raises :class:`DocumentError`."""
    given = read.job.agent
    if not isinstance(given, str):
        spec = given.model_dump(exclude_unset=True, mode="python")
        return _declared({"name": read.job.name, **_without_nulls(spec)}, read.document, ("agent",), read.references)
    if given.endswith(_YAML):
        return _from_file(read, read.folder / given)
    try:
        return AgentSource(import_agent(given, f"agent {given!r}", [read.folder, FilePath.cwd()]))
    except SkillsError as error:
        raise read.problem(("agent",), str(error)) from error


def _from_file(read: ReadJob, path: FilePath) -> AgentSource:
    if not path.is_file():
        raise read.problem(("agent",), f"there is no file {path}; write its path from the folder of the job file")
    document = read_agent_document(path)
    problems = schema_problems(document, AgentSpec)
    references = References(document, read.folder, at=("agent",), known=read.references)
    data = references.resolved(document.data)
    if problems or references.problems:
        raise DocumentError([*(hidden(p, references) for p in problems), *references.problems])
    return _declared({"name": path.stem, **data}, document, (), references)


def _declared(spec: Mapping[str, Any], document: Document, at: Path, references: References) -> AgentSource:
    try:
        return AgentSource(agent_of(spec, document, at), document, at, spec, references)
    except DocumentError as error:
        raise error.redacted(references.hide) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def import_agent(word: str, what: str, folders: Sequence[FilePath]) -> Agent:
    """The agent that ``module:Class`` names, searched in ``folders`` as well. Errors begin with ``what``.

    Raises :class:`ConfigError` where there is no such agent, :class:`PlanError` where its module cannot be imported.
    """
    module, colon, name = word.partition(":")
    if not colon or not module or not name:
        raise ConfigError(f"{what}: write module:Class, or the path of a YAML file")
    known = {str(FilePath(entry or ".").absolute()) for entry in sys.path}
    for folder in reversed([folder for folder in folders if str(folder) not in known]):
        sys.path.insert(0, str(folder))
    try:
        target = import_object(word)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what}: there is no module {error.name!r}; run from its folder, install it, or set PYTHONPATH"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"{what}: {error}") from error
    except SkillsError:
        raise
    except (Exception, SystemExit) as error:  # importing a user's module raises anything
        raise PlanError(f"{what}: importing it failed: {type(error).__name__}: {error}") from error
    if not isinstance(target, Agent) and not (isinstance(target, type) and issubclass(target, Agent)):
        raise ConfigError(f"{what}: is not an Agent class or instance, but {target!r:.200}")
    return instantiate(target)
