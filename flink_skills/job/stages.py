"""The agents of a job file as stages: what each reads, where its outputs go, and which agent feeds which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from flink_skills.documents.document import Document, Path, Problem
from flink_skills.errors import UnknownNameError
from flink_skills.job.job_model import (
    AgentInput,
    AgentOutput,
    AnswersSection,
    ErrorsSection,
    EventsSection,
    JobAgent,
    JobFile,
    OutputSection,
    WaitsSection,
)


@dataclass(frozen=True)
class Stage:
    """An agent of a job between its input and its outputs.

    ``name`` is the agent's name under ``agents``, and empty in a job with one agent. ``at`` is the path of its sections
    in the file. The input is a ``table``, a ``query``, or the outputs of the agents ``sources``. Outputs go to
    ``output``, a table, and to the agents ``targets``, as events of the fields ``event_columns`` (empty: the default).
    ``keys`` are the key columns; those of the sources if the file has none. ``answers`` are the answers to the agent's
    waits, and ``waits`` is the table of questions.
    """

    name: str
    at: Path
    table: str | None = None
    query: str | None = None
    sources: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    output: OutputSection | None = None
    targets: tuple[str, ...] = ()
    event_columns: Mapping[str, str | None] = field(default_factory=dict)
    errors: ErrorsSection | None = None
    events: EventsSection | None = None
    answers: AnswersSection | None = None
    waits: WaitsSection | None = None
    paths: Mapping[str, Path] = field(default_factory=dict)

    @property
    def agent_at(self) -> Path:
        """The path of the agent."""
        return self.at or ("agent",)

    @property
    def answer_keys(self) -> tuple[str, ...]:
        """The key columns of the answers."""
        return self.keys if self.answers is None or self.answers.key is None else _names(self.answers.key)

    def path(self, *parts: str | int) -> Path:
        """Return the path in the file of a part of the stage. ``errors``, ``events`` and ``waits`` may be the job's."""
        return (*self.paths.get(str(parts[0]), self.at), *parts)

    def title(self, text: str) -> str:
        """Return ``text`` with the name of the agent, if the job has several."""
        return f"{self.name}: {text}" if self.name else text


def stages_of(job: JobFile, document: Document) -> tuple[list[Stage], list[Problem]]:
    """Return the stages of a job, sources before targets, and what is wrong with how they are connected."""
    if job.agents is None:
        if job.input is None or job.output is None:
            return [], []
        only = Stage(
            "",
            (),
            job.input.table,
            job.input.query,
            keys=_names(job.input.key),
            output=job.output,
            errors=job.errors,
            events=job.events,
            answers=job.answers,
            waits=job.waits,
        )
        return [only], []
    wiring = _Wiring(job, job.agents, document)
    return wiring.stages(), wiring.problems


def _names(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


class _Wiring:
    """Connects the agents of one job."""

    def __init__(self, job: JobFile, agents: Mapping[str, JobAgent], document: Document) -> None:
        self._job, self._agents, self._document = job, agents, document
        # An agent that cannot be used is known all the same.
        written = document.data.get("agents")
        self._names = [str(name) for name in written] if isinstance(written, Mapping) else list(agents)
        self.problems: list[Problem] = []

    def stages(self) -> list[Stage]:
        called = {callee for _, callee in self._calls()}
        self._reject_circles(self._calls(), ("agent_tools",), "an agent that is a tool cannot call its caller")
        edges = list(dict.fromkeys(self._edges()))
        self._reject_circles(edges, ("input",), "outputs would never end")
        found = {}
        for name, agent in self._agents.items():
            sources = tuple(source for source, target in edges if target == name)
            targets = tuple(target for source, target in edges if source == name)
            stage = self._stage(name, agent, sources, targets, is_tool=name in called)
            if stage is not None:
                found[name] = stage
        ordered: dict[str, Stage] = {}
        for name in _in_order(list(found), edges):
            ordered[name] = self._with_keys(found[name], ordered)
        return list(ordered.values())

    def _with_keys(self, stage: Stage, before: Mapping[str, Stage]) -> Stage:
        """Return the stage with the key of its sources, if the file has none."""
        if stage.keys or not stage.sources:
            return stage
        keys = {before[name].keys for name in stage.sources if name in before} - {()}
        if len(keys) > 1:
            names = ", ".join(stage.sources)
            self._add(stage.path("input"), f"agents {names} have different keys; write the 'key' of this agent")
        return replace(stage, keys=min(keys, default=()))

    def _stage(
        self, name: str, agent: JobAgent, sources: tuple[str, ...], targets: tuple[str, ...], *, is_tool: bool
    ) -> Stage | None:
        at: Path = ("agents", name)
        if agent.input is None and not sources:
            sections = ("output", "errors", "events", "answers", "waits")
            unused = [key for key in sections if getattr(agent, key) is not None]
            if unused:
                self._add((*at, unused[0]), "the agent has no input, so nothing would get here; give it an input")
            elif not is_tool:
                self._add(at, "nothing reaches the agent; give it an input, or name it in agent_tools of another agent")
            return None
        events = agent.input or AgentInput.model_validate({})
        output = agent.output or AgentOutput.model_validate({})
        if agent.input is not None:
            kinds = [kind for kind in ("table", "query", "agent") if getattr(events, kind) is not None]
            if len(kinds) > 1:
                self._add((*at, "input"), f"give one of table, query and agent, not {' and '.join(kinds)}")
            elif not kinds and not sources:
                self._add((*at, "input"), "give 'table', 'query' with a SELECT, or 'agent'")
            elif sources and "agent" not in kinds and kinds:
                self._add(
                    (*at, "input", kinds[0]),
                    f"agent {sources[0]} names this agent in its output, and the input of an agent is one table or the "
                    "outputs of agents",
                )
            elif events.key is None and not sources and "agent" not in kinds:
                self._add((*at, "input"), "'key' is missing: the column, or the columns, that are the key")
        table, columns = output.table, output.columns
        if agent.output is None and not targets:
            self._add(at, "'output' is missing: give it a table, or an agent that gets an event for each output")
        elif table is None and not targets:
            self._add((*at, "output"), "give 'table', 'agent', or both")
        return Stage(
            name,
            at,
            events.table,
            events.query,
            sources,
            _names(events.key),
            None if table is None else OutputSection(table=table, columns=columns),
            targets,
            columns if table is None else {},
            agent.errors or self._job.errors,
            agent.events or self._job.events,
            agent.answers,
            agent.waits or self._job.waits,
            {of: () for of in ("errors", "events", "waits") if getattr(agent, of) is None},
        )

    def _edges(self) -> Iterator[tuple[str, str]]:
        for name, agent in self._agents.items():
            if agent.output is not None:
                for target in self._known(agent.output.agent, ("agents", name, "output", "agent")):
                    yield name, target
            if agent.input is not None:
                for source in self._known(agent.input.agent, ("agents", name, "input", "agent")):
                    yield source, name

    def _calls(self) -> list[tuple[str, str]]:
        found = []
        for name, agent in self._agents.items():
            for tool, of in (agent.agent_tools or {}).items():
                path: Path = ("agents", name, "agent_tools", tool)
                callee = of if isinstance(of, str) else of.agent
                found += [
                    (name, known) for known in self._known(callee, path if isinstance(of, str) else (*path, "agent"))
                ]
        return found

    def _known(self, names: str | list[str] | None, path: Path) -> list[str]:
        """Return those of ``names`` that are agents of the job, and note the others once."""
        found = []
        for number, name in enumerate(_names(names)):
            if name in self._names:
                found.append(name)
                continue
            problem = self._document.problem(
                path if isinstance(names, str) else (*path, number),
                str(UnknownNameError("agent", name, self._names, place="agents")),
            )
            if problem not in self.problems:
                self.problems.append(problem)
        return found

    def _reject_circles(self, edges: Iterable[tuple[str, str]], at: Path, why: str) -> None:
        rest = set(edges)
        while ends := {edge for edge in rest if edge[1] not in {source for source, _ in rest}}:
            rest -= ends
        inside = [edge for edge in rest if edge[0] in {target for _, target in rest}]
        if inside:
            names = sorted({name for edge in inside for name in edge})
            self._add(("agents", names[0], *at), f"agents {', '.join(names)} lead back to each other: {why}")

    def _add(self, path: Path, message: str) -> None:
        self.problems.append(self._document.problem(path, message))


def _in_order(names: list[str], edges: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names, sources before targets, and otherwise as they are written. Circles are at the end."""
    rest, waiting = list(names), set(edges)
    found: list[str] = []
    while ready := [name for name in rest if all(source in found for source, target in waiting if target == name)]:
        found.append(ready[0])
        rest.remove(ready[0])
    return found + rest
