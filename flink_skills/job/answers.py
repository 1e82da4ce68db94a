"""Checks of the answers to the waits of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.documents.problems import DocumentError, Path, Problem
from flink_skills.errors import UnknownNameError
from flink_skills.job.agent_source import AgentSource
from flink_skills.job.model import AnswersSection
from flink_skills.job.placing import Placing
from flink_skills.job.stages import Stage

if TYPE_CHECKING:
    from flink_skills.flink.job_graph import TableShape

__all__ = ["check_answers", "check_approvals", "shape_of_answers"]


def shape_of_answers(
    placing: Placing, stage: Stage, answers: AnswersSection, problems: list[Problem]
) -> TableShape | None:
    """Return the columns, or None if they are not known. ``problems`` receives the reason."""
    query = answers.query
    if query is None:
        return placing.table(stage.path("answers", "table"), str(answers.table), problems)
    try:
        return placing.placed(stage.path("answers", "query"), lambda: placing.graph.query_shape(query))
    except DocumentError as error:
        problems += error.problems
        return None


def check_approvals(placing: Placing, stage: Stage, source: AgentSource) -> None:
    """Check that people receive the questions of an agent with ``approve.by: answers``, and can answer them.

    Raises :class:`DocumentError` if the agent has no answers.
    """
    if stage.waits is None:
        warning = "there is no 'waits' table, so people cannot see which calls need their approval"
        placing.warnings.append(stage.title(warning))
    if stage.answers is None and source.document is not None:
        message = "approve.by is 'answers', and the agent has no answers: add the section 'answers' to the job"
        raise DocumentError([source.document.problem((*source.at, "approve", "by"), message)])


def check_answers(placing: Placing, stage: Stage, answers: AnswersSection) -> None:
    """Check the key and the column of the wait. Raises :class:`DocumentError` with all problems."""
    problems: list[Problem] = []
    shape = shape_of_answers(placing, stage, answers, problems)
    if shape is None:
        raise DocumentError(problems)
    place = "the query of answers" if answers.table is None else f"table {answers.table}"

    def add(path: Path, message: str) -> None:
        problems.extend(placing.read.problem(path, message).problems)

    keys, at = stage.answer_keys, stage.path("answers")
    for number, name in enumerate(keys):
        if name not in shape.names:
            inside = () if answers.key is None else ("key", number) if isinstance(answers.key, list) else ("key",)
            add((*at, *inside), str(UnknownNameError("key column", name, shape.names, place=place)))
    if len(keys) != len(stage.keys):
        message = f"the key has {len(keys)} columns and the key of the input {len(stage.keys)}: name as many columns"
        add((*at, "key"), message)
    if answers.wait_id not in shape.names:
        inside = ("wait_id",) if "wait_id" in answers.model_fields_set else ()
        add((*at, *inside), str(UnknownNameError("column", answers.wait_id, shape.names, place=place)))
    if problems:
        raise DocumentError(problems)
