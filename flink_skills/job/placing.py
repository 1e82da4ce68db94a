"""Runs the steps that put a job together, and reports their errors at their places in the job file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from flink_skills.documents.problems import DocumentError, Path, Problem
from flink_skills.errors import SkillsError, UnknownNameError
from flink_skills.job.reading import ReadJob
from flink_skills.job.statements import Statement, creating

if TYPE_CHECKING:
    from flink_skills.flink.job_graph import JobGraph, TableShape

__all__ = ["Placing", "known"]

T = TypeVar("T")


def known(value: T | None, step: str) -> T:
    """Return what ``step`` has found. Raises :class:`RuntimeError` if the step was not taken."""
    if value is None:
        raise RuntimeError(f"{step} was not called")
    return value


@dataclass
class Placing:
    """A job as far as it is put together.

    ``all_defined`` is False if a statement did not run, which may have created a table that is missing.
    ``warnings`` are for the people who start the job.
    """

    read: ReadJob
    opened: JobGraph | None = None
    all_defined: bool = True
    warnings: list[str] = field(default_factory=list)

    @property
    def graph(self) -> JobGraph:
        """The job graph. It is open before anything else is asked of it."""
        return known(self.opened, "open_graph")

    def placed(self, path: Path, step: Callable[[], T]) -> T:
        """Return the result of ``step``. Raises :class:`DocumentError` at ``path`` for an error."""
        try:
            return step()
        except DocumentError:
            raise
        except SkillsError as error:
            raise DocumentError([self.problem(path, error)]) from error

    def connected(self, path: Path, table: str | None, step: Callable[[], T]) -> T:
        """As :meth:`placed`. An error in the options of a table is at the statement that creates it."""
        from flink_skills.flink.flink_failures import SqlError

        read = self.read
        try:
            return step()
        except DocumentError:
            raise
        except SkillsError as error:
            named = error.table if isinstance(error, SqlError) else None
            statement = creating(read.statements, named or table or "")
            missing = any(problem.path == ("tables",) for problem in read.missing)
            without_jar = isinstance(error, SqlError) and error.factory is not None
            if statement is not None and missing and not without_jar and read.references.stays_in(statement.text):
                raise DocumentError([]) from None  # the value of the reference is not known
            if statement is None or named is None:
                raise DocumentError([self.problem(path, error)]) from error
            raise DocumentError([self.problem(("tables",), error, statement)]) from error

    def problem(self, path: Path, error: SkillsError, statement: Statement | None = None) -> Problem:
        """Return an error at its place. An error of Flink knows whether only a jar is missing here."""
        from flink_skills.flink.flink_failures import SqlError

        line_inside = error.line if isinstance(error, SqlError) else 0
        factory = error.factory if isinstance(error, SqlError) else None
        said, line = str(error), 0
        if statement is not None:
            said, line = f"{statement.title}: {error}", statement.line + max(line_inside - 1, 0)
        (problem,) = self.read.problem(path, said, line=line).problems
        # A name that is nearly another one is a mistake on every machine.
        return replace(
            problem, not_here=(factory.kind, factory.name) if factory is not None and not factory.near else None
        )

    def shape(self, path: Path, name: str) -> TableShape:
        """Return the columns of a table.

        Raises :class:`DocumentError`, without a problem if the reason is reported elsewhere.
        """
        try:
            return self.graph.shape(name)
        except SkillsError as error:
            unknown = isinstance(error, UnknownNameError)
            if path in [problem.path for problem in self.read.missing] or (unknown and not self.all_defined):
                raise DocumentError([]) from error
            raise DocumentError([self.problem(path, error)]) from error

    def table(self, path: Path, name: str, problems: list[Problem]) -> TableShape | None:
        """Return the columns of a table, or None if it is not known. ``problems`` gets the reason."""
        try:
            return self.shape(path, name)
        except DocumentError as error:
            problems += error.problems
            return None
