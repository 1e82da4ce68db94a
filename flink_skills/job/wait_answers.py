"""Checks of the answers to the waits of an agent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.agents.plan.name_checks import NamedAgent, approver_of, job_matches, own_matches
from flink_skills.documents.document import DocumentError, Path, Problem
from flink_skills.errors import UnknownNameError
from flink_skills.job.agent_source import AgentSource
from flink_skills.job.agent_tables import BuildContext, InputShape
from flink_skills.job.job_model import AnswersSection, ControlSection
from flink_skills.job.stages import Stage
from flink_skills.job.statements import tables_in

if TYPE_CHECKING:
    from flink_skills.flink.job_graph import TableShape


@dataclass(frozen=True)
class Approvals:
    """The approval of tool calls of an agent.

    Args:
        agent: The name of the agent.
        tools: The names or patterns of the tools, each with the names of the tools that it matches now.
        by: ``answers`` if people decide, or the function or method that decides. None: all calls are refused.
        timeout: The time to decide, as the file has it. None: no limit.
        on_timeout: What happens after this time. None: people do not decide.
        question: The question for people. None: the default text.
    """

    agent: str
    tools: Mapping[str, tuple[str, ...]]
    by: str | None
    timeout: str | float | None = None
    on_timeout: str | None = None
    question: str | None = None

    def __str__(self) -> str:
        tools = ", ".join(_shown(pattern, names) for pattern, names in self.tools.items())
        if self.by is None:
            return f"{tools}: the calls are refused, because the agent has no 'approve'"
        if self.by != "answers":
            return f"{tools}: {self.by} decides"
        if self.timeout is None:
            return f"{tools}: people decide, without a time limit"
        limit = self.timeout if isinstance(self.timeout, str) else f"{self.timeout:g} s"
        outcome = {"refuse": "the call is refused", "approve": "the call is approved", "fail": "the turn fails"}
        return f"{tools}: people decide; after {limit} {outcome[self.on_timeout or 'refuse']}"


def _shown(pattern: str, names: Sequence[str]) -> str:
    return pattern if tuple(names) == (pattern,) else f"{pattern} ({', '.join(names) or 'no tool yet'})"


def approvals_of(tree: Sequence[NamedAgent]) -> list[Approvals]:
    """Return the approvals of these agents. Agents without approvals are omitted."""
    found = []
    for named in tree:
        agent = named.agent
        section = agent.approvals if isinstance(agent, DeclarativeAgent) else {}
        # A name that this agent does not have may be that of another agent of the job.
        matches = [*job_matches([[named]]), *own_matches(named)]
        tools = {match.use.pattern: match.names for match in matches if match.use.approves and not match.is_error}
        tools |= {name: (name,) for name in named.approved_tools()}
        by = approver_of(agent)
        if not tools:
            continue
        if by == "answers":
            limits = {key: section.get(key) for key in ("timeout", "question")}
            outcome = section.get("on_timeout") or "refuse"
            found.append(Approvals(named.plan.agent_id, tools, by, on_timeout=outcome, **limits))
        else:
            found.append(Approvals(named.plan.agent_id, tools, by))
    return found


def shape_of_rows(
    build: BuildContext, at: Path, section: AnswersSection | ControlSection, problems: list[Problem]
) -> TableShape | None:
    """Return the columns of the section at ``at``, or None if they are not known. ``problems`` receives the reason."""
    query = section.query
    if query is None:
        return build.table((*at, "table"), str(section.table), problems)
    try:
        return build.run_at((*at, "query"), lambda: build.graph.query_shape(query))
    except DocumentError as error:
        problems += error.problems
        return None


def check_approvals(build: BuildContext, stage: Stage, sources: Sequence[AgentSource]) -> None:
    """Check that people receive the questions of agents with ``approve.by: answers``, and can answer them.

    Args:
        build: The job.
        stage: The agent whose turns wait.
        sources: The agent, and the agents that it calls.

    Raises:
        DocumentError: The agent has no answers.
    """
    asking = [source for source in sources if isinstance(source.agent, DeclarativeAgent) and source.agent.asks_people]
    if not asking:
        return
    if stage.waits is None:
        warning = (
            "there is no 'waits' table, so people cannot see which calls need their approval: add the section 'waits'"
        )
        build.warnings.append(stage.title(warning))
    if stage.answers is not None:
        _warn_of_own_answers(build, stage, stage.answers)
        return
    agent, section = (f"agent {stage.name}", f"agents.{stage.name}") if stage.name else ("the agent", "the job")
    message = f"approve.by is 'answers', and {agent} has no answers: add the section 'answers' to {section}"
    problems: list[Problem] = []
    for source in asking:
        if source.document is None:
            problems += build.read.problem(stage.agent_at, message).problems
        else:
            problems.append(source.document.problem((*source.at, "approve", "by"), message))
    raise DocumentError(problems)


def _warn_of_own_answers(build: BuildContext, stage: Stage, answers: AnswersSection) -> None:
    """Warn if who writes an event can write the answer to its approval as well."""
    statements = build.read.statements
    of_events = tables_in(statements, stage.table or stage.query or "")
    common = sorted(of_events & tables_in(statements, answers.table or answers.query or ""))
    if common:
        warning = (
            f"'input' and 'answers' both read {common[0]}, so the author of an event can approve its calls: read the "
            "answers from a table that only the approvers can write"
        )
        build.warnings.append(stage.title(warning))


def check_answers(build: BuildContext, stage: Stage, answers: AnswersSection, events: InputShape | None) -> None:
    """Check the table, the key and the column of the wait. ``events`` are the events of the agent, if they are known.

    Raises :class:`DocumentError` with all problems.
    """
    problems: list[Problem] = []
    shape = shape_of_rows(build, stage.path("answers"), answers, problems)
    if shape is None:
        raise DocumentError(problems)
    place = "the query of answers" if answers.table is None else f"table {answers.table}"

    def add(path: Path, message: str) -> None:
        problems.extend(build.read.problem(path, message).problems)

    keys, at = stage.answer_keys, stage.path("answers")
    if answers.table is not None and answers.table == stage.table:
        add(
            (*at, "table"),
            f"{answers.table!r} is also the table of the input, so each event would be an answer: give 'input' and "
            f"'answers' a 'query' each, and select the answers by {answers.wait_id}",
        )
    types = {column.name: column.sql for column in shape.columns}
    of_input = {} if events is None else events.columns
    for number, name in enumerate(keys):
        inside = () if answers.key is None else ("key", number) if isinstance(answers.key, list) else ("key",)
        if name not in types:
            add((*at, *inside), str(UnknownNameError("key column", name, shape.names, place=place)))
        elif number < len(stage.keys) and _differ(types[name], of_input.get(stage.keys[number], "")):
            sql = of_input[stage.keys[number]]
            add(
                (*at, *inside),
                f"key column {name!r} of {place} is {types[name]}, and {stage.keys[number]!r} of the input is {sql}, "
                "so no answer would reach its wait: use the same type, or a 'query' with CAST",
            )
    if len(keys) != len(stage.keys):
        message = f"the key has {len(keys)} columns and the key of the input {len(stage.keys)}: name as many columns"
        add((*at, "key"), message)
    if answers.wait_id not in shape.names:
        inside = ("wait_id",) if "wait_id" in answers.model_fields_set else ()
        add((*at, *inside), str(UnknownNameError("column", answers.wait_id, shape.names, place=place)))
    if problems:
        raise DocumentError(problems)


_KEY_KINDS = {
    **dict.fromkeys(("STRING", "VARCHAR", "CHAR"), "text"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE"), "number"),
    "BOOLEAN": "boolean",
    "DECIMAL": "decimal",
    "DATE": "date",
    "TIME": "time",
}


def _differ(first: str, second: str) -> bool:
    """Return True if keys with two SQL types are never equal. Other types, and events from agents, are not compared.

    >>> _differ("STRING", "INT NOT NULL"), _differ("INT", "BIGINT"), _differ("STRING", "output of desk")
    (True, False, False)
    """
    one, other = (_KEY_KINDS.get(re.split(r"[ (<]", sql, maxsplit=1)[0]) for sql in (first, second))
    return one is not None and other is not None and one != other
