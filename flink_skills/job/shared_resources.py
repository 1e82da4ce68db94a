"""Connections, chat models and prompts that the agents of a job file share, and problems of its chat models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flink_skills.agents.declare.resource import SharedResources
from flink_skills.agents.plan.agent_file import agent_of
from flink_skills.agents.plan.compilation import compile_plan
from flink_skills.agents.plan.declarative import DeclarativeAgent, descriptor_of, prompt_of
from flink_skills.agents.plan.spec import AgentSpec, route_problems, setup_problems
from flink_skills.documents.document import DocumentError, Path, Problem
from flink_skills.errors import SkillsError
from flink_skills.job.agent_source import AgentSource
from flink_skills.job.job_reading import ReadJob, hidden
from flink_skills.options import SkillOptions

if TYPE_CHECKING:
    from flink_skills.flink.agents_environment import AgentsExecutionEnvironment


def add_resources(read: ReadJob, agents_env: AgentsExecutionEnvironment) -> None:
    """Add the shared resources of a job to its environment.

    Raises :class:`DocumentError` at the place of a resource that is wrong.
    """
    for part, name, value in _written(read):
        try:
            agents_env.add_resource(name, _resource(part, value))
        except SkillsError as error:
            raise read.problem((part, name), str(error).removeprefix("prompt: ")) from error


def shared_resources(read: ReadJob) -> SharedResources:
    """Return the shared resources of a job that can be used. :func:`add_resources` reports the others."""
    found = SharedResources()
    for part, name, value in _written(read):
        try:
            found = found.with_resource(name, _resource(part, value))
        except SkillsError:
            continue
    return found


def _written(read: ReadJob) -> Iterator[tuple[str, str, Any]]:
    for part in ("connections", "models", "prompts"):
        for name, value in (getattr(read.job, part) or {}).items():
            yield part, name, value if isinstance(value, str) else value.model_dump(exclude_none=True)


def _resource(part: str, value: Any) -> Any:
    return prompt_of(value, "prompt") if part == "prompts" else descriptor_of(value, part)


_SHARED = {"chat_model_setups": "models", "chat_model_connections": "connections"}


def problems_of_models(read: ReadJob, source: AgentSource | None) -> list[Problem]:
    """Return what is wrong with the shared chat models, and with those of an agent without code."""
    found = _problems_of_shared(read)
    if source is None or source.document is None or source.references is None:
        return found
    return found + _problems(read, source.spec, source.at, source)


def problems_of_declared(read: ReadJob) -> list[Problem]:
    """Return what is wrong with the shared chat models, and with agents whose section of the file cannot be used."""
    found = _problems_of_shared(read)
    data = read.document.data
    agent, agents = data.get("agent"), data.get("agents")
    declared: list[tuple[Path, str, Any]] = [(("agent",), read.job.name, agent)]
    if isinstance(agents, Mapping):
        declared += [(("agents", name), str(name), of) for name, of in agents.items()]
    for at, name, spec in declared:
        is_known = ("skills",) not in read.broken and not any(at == each.path[: len(at)] for each in read.problems)
        if ("agents",) in read.broken:
            is_known = is_known and any(stage.at == at for stage in read.stages)  # the agents before it may be wrong
        if isinstance(spec, Mapping) and not is_known:
            around = ("input", "output", "errors", "events", "answers", "waits", "agent", "agent_tools")
            own = {key: value for key, value in spec.items() if at[0] == "agent" or key not in around}
            found += _problems(read, {"name": name, **own}, at)
            if "agent" not in spec:
                found += _problems_of_rest(read, {"name": name, **own}, at)
    return found


def sound_part(read: ReadJob, spec: Mapping[str, Any], at: Path) -> dict[str, Any]:
    """Return the keys of an agent that have no problem. ``at`` is the path of the agent in the job file."""
    depth = len(at)
    wrong = {each.path[depth] for each in read.problems if each.path[:depth] == at and len(each.path) > depth}
    return {
        key: value
        for key, value in spec.items()
        if key in AgentSpec.model_fields and key not in wrong and value is not None
    }


def _problems_of_rest(read: ReadJob, spec: Mapping[str, Any], at: Path) -> list[Problem]:
    """Return what is wrong with an agent except for its chat models and for what the schema reports."""
    apart = ("chat_model_setups", "chat_model_connections", "agent_tools")
    rest = {key: value for key, value in sound_part(read, spec, at).items() if key not in apart}
    found: list[Problem] = []
    try:
        agent_of({"name": read.job.name, **rest}, read.document, at)
    except DocumentError as error:
        found += error.problems
    if "model" in rest:
        try:
            model = DeclarativeAgent.from_spec({"name": read.job.name, "model": rest["model"]})
            compile_plan(model, config=read.settings.skills, shared=shared_resources(read))
        except SkillsError as error:
            found.append(read.document.problem((*at, "model"), str(error)))
    return [hidden(problem, read.references) for problem in found]


def _problems(read: ReadJob, spec: Mapping[str, Any], at: Path, source: AgentSource | None = None) -> list[Problem]:
    document = source.document if source is not None and source.document is not None else read.document
    references = source.references if source is not None and source.references is not None else read.references
    # The agents that it calls are looked at by themselves.
    spec = {key: value for key, value in spec.items() if key != "agent_tools"}
    inside = [problem.path for problem in read.problems if at and problem.path[: len(at)] == at]
    found = setup_problems(
        spec,
        document,
        at,
        has_sources=_has_sources(read),
        config=read.settings.skills,
        known=inside,
        shared=shared_resources(read),
    )
    found += route_problems(spec, document, at, shared_resources(read), inside)
    return [hidden(problem, references) for problem in found]


def _problems_of_shared(read: ReadJob) -> list[Problem]:
    """Return what is wrong with ``connections`` and ``models`` of the job, each at its key."""
    data = read.document.data
    written = {key: data.get(name) for key, name in _SHARED.items()}
    spec: dict[str, Any] = {key: value for key, value in written.items() if isinstance(value, Mapping)}
    if isinstance(data.get("prompts"), Mapping):
        spec["prompts"] = data["prompts"]
    # Tools and skills depend on the agent.
    spec["chat_model_setups"] = {
        name: {key: value for key, value in setup.items() if key not in ("tools", "skill_names")}
        for name, setup in spec.get("chat_model_setups", {}).items()
        if isinstance(setup, Mapping)
    }
    known = [problem.path for problem in read.problems]
    of_models = {name: key for key, name in _SHARED.items()}
    found = setup_problems(
        {"name": read.job.name, **spec},
        read.document,
        (),
        has_sources=True,
        config=read.settings.skills,
        known=[(of_models.get(str(path[0]), path[0]), *path[1:]) if path else path for path in known],
        names=_SHARED,
    )
    return [hidden(problem, read.references) for problem in found]


def _has_sources(read: ReadJob) -> bool:
    options, section = read.settings.skills, read.job.skills
    sources = (SkillOptions.FROM_PATHS, SkillOptions.FROM_RESOURCES, SkillOptions.FROM_URLS)
    # A section that cannot be read may have sources.
    return ("skills",) in read.broken or section is not None or any(map(options.get, sources))
