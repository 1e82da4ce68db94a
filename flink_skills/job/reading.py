"""Reads a job file: YAML, its schema, its options and its agent; all that is wrong is said at once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from flink_skills.errors import ConfigError, SkillsError
from flink_skills.job.document import Document, read_document
from flink_skills.job.model import JobFile
from flink_skills.job.problems import JobFileError, Problem
from flink_skills.job.references import References
from flink_skills.job.settings import JobSettings, read_settings
from flink_skills.job.statements import Statement, refusal, split_statements
from flink_skills.job.validation import schema_problems

__all__ = ["ReadJob", "read_job"]


@dataclass(frozen=True)
class ReadJob:
    """A job file that is sound by itself.

    ``job`` has its references replaced, so it may hold secrets; ``references.hide`` takes them out of a text.
    ``missing`` are references that could not be replaced here; they are still in ``job`` as they are written.
    """

    file: FilePath
    document: Document = field(repr=False)
    job: JobFile = field(repr=False)
    settings: JobSettings = field(repr=False)
    statements: tuple[Statement, ...] = field(repr=False)
    references: References = field(repr=False)
    missing: tuple[Problem, ...] = ()

    @property
    def folder(self) -> FilePath:
        """The folder of the job file, which relative paths in it are below."""
        return self.file.parent

    def problem(self, path: tuple[str | int, ...], message: str, *, line: int = 0) -> JobFileError:
        """An error at a place of the file; what was inserted into the file is not shown."""
        return JobFileError([self.document.problem(path, self.references.hide(message), line=line)])


def read_job(path: str | FilePath, assignments: Iterable[str] = (), *, lenient: bool = False) -> ReadJob:
    """Read and check a job file.

    Args:
        path: The file.
        assignments: ``KEY=VALUE`` words that win over the file's ``flink`` and ``options``.
        lenient: Leave references that cannot be replaced here in place, for a check on another machine.

    Raises:
        JobFileError: with all that is wrong; no message holds a value that a reference stands for.
        ConfigError: for an assignment that cannot be used.
    """
    file = FilePath(path).absolute()
    document = read_document(path)
    if not isinstance(document.data, Mapping):
        kind = type(document.data).__name__
        raise JobFileError([document.problem((), f"holds a {kind}; write a mapping such as 'name: triage'")])
    problems = schema_problems(document, JobFile)
    references = References(document, file.parent)
    data = references.resolved(document.data)
    settings = read_settings(document, data, assignments)
    problems += [hidden(problem, references) for problem in settings.problems]
    statements: tuple[Statement, ...] = ()
    if isinstance(data.get("tables"), str):
        statements, found = _statements(document, data["tables"])
        problems += [hidden(problem, references) for problem in found]
    problems += _input_problems(document, data)
    missing = tuple(references.problems)
    if problems or (missing and not lenient):
        raise JobFileError([*problems, *missing])
    try:
        job = JobFile.model_validate(data)
    except ValidationError as error:
        # What a reference stands for does not fit where the reference did.
        raise JobFileError(
            [
                document.problem(tuple(found["loc"]), references.hide(f"with its references replaced: {found['msg']}"))
                for found in error.errors(include_input=False)
            ]
        ) from None
    return ReadJob(file, document, job, settings, statements, references, missing)


def hidden(problem: Problem, references: References) -> Problem:
    """A problem without what references stand for."""
    return JobFileError([problem]).redacted(references.hide).problems[0]


def _statements(document: Document, text: str) -> tuple[tuple[Statement, ...], list[Problem]]:
    at = ("tables",)
    try:
        statements = split_statements(text)
    except ValueError as error:
        message, line = error.args
        return (), [document.problem(at, message, line=line)]
    problems = [
        document.problem(at, message, line=statement.line)
        for statement in statements
        if (message := refusal(statement)) is not None
    ]
    if not statements:
        problems.append(document.problem(at, "holds no statement; write CREATE TABLE …"))
    return tuple(statements), problems


def _input_problems(document: Document, data: Mapping[str, Any]) -> list[Problem]:
    section = data.get("input")
    if not isinstance(section, Mapping):
        return []
    given = [key for key in ("table", "query") if section.get(key) is not None]
    if len(given) == 1:
        return []
    message = "give 'table' or 'query', not both" if given else "give 'table', or 'query' with a SELECT"
    return [document.problem(("input",), message)]


@functools.cache
def is_job_file(path: FilePath) -> bool:
    """Whether a YAML file is a job and no agent: a mapping with ``agent`` and ``input``, or with ``tables``."""
    try:
        data = read_document(path).data
    except (SkillsError, ConfigError):
        return False
    return isinstance(data, Mapping) and ("tables" in data or {"agent", "input"} <= set(data))
