"""``flink-skills run JOB.yaml --check``: what can be known of a job before it is submitted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from flink_skills.agents.columns import OutputShape
from flink_skills.agents.messages import ModelRequest, UserMessage
from flink_skills.agents.models.registry import create_model
from flink_skills.agents.plan import AgentPlan, ModelPlan
from flink_skills.agents.record_rows import RecordRows
from flink_skills.documents.problems import DocumentError, Problem
from flink_skills.errors import ConfigError, SkillsError, SourceError
from flink_skills.job.advice import job_warnings
from flink_skills.job.building import JobBuilder, output_shape
from flink_skills.job.reading import ReadJob, survey_job
from flink_skills.job.skills_here import skills_here
from flink_skills.options import SkillConfig, SkillOptions

if TYPE_CHECKING:
    from flink_skills.flink.job_graph import JobGraph, TableShape

__all__ = ["Check", "CheckReport", "check_job"]

Status = Literal["ok", "error", "warning", "unknown"]
T = TypeVar("T")
# What a model is asked for a sign of life may cost.
_FEW_TOKENS = 16
_REACH_TIMEOUT = 30.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. ``unknown``: it cannot be told on this machine, and ``message`` says why."""

    name: str
    status: Status
    message: str
    problem: Problem | None = None

    def to_json(self) -> dict[str, Any]:
        place = self.problem.place if self.problem is not None else None
        return {
            "check": self.name,
            "status": self.status,
            "message": self.message,
            "file": self.problem.file if self.problem is not None else None,
            "line": place.line if place is not None else None,
            "column": place.column or None if place is not None else None,
            "path": list(self.problem.path) if self.problem is not None else None,
        }


@dataclass
class CheckReport:
    """All checks of a job, in their order."""

    checks: list[Check] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong; what cannot be told here is not wrong."""
        return all(check.status != "error" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.sound, "checks": [check.to_json() for check in self.checks]}


def check_job(
    path: str | Path,
    assignments: Iterable[str] = (),
    *,
    reach: bool = False,
    note: Callable[[Check], None] = lambda check: None,
) -> CheckReport:
    """Check a job file as far as this machine can; ``note`` gets each check as it ends.

    ``reach`` also loads every source of skills and asks each chat model for a sign of life. Nothing is submitted.
    """
    return _Checker(note).run(path, assignments, reach=reach)


class _Checker:
    def __init__(self, note: Callable[[Check], None]) -> None:
        self._note = note
        self._report = CheckReport()
        self._hide: Callable[[str], str] = lambda text: text

    def run(self, path: str | Path, assignments: Iterable[str], *, reach: bool) -> CheckReport:
        read = self._step("file", lambda: survey_job(path, assignments))
        if read is None:
            return self._report
        self._hide = read.references.hide
        # What is wrong with one part says nothing of the others.
        for problem in DocumentError(read.problems).problems:
            self._add(Check("file", "error", str(problem), problem))
        if not read.problems:
            options = len(list(read.settings.skills)) + len(read.settings.flink)
            self._ok("file", f"{read.file.name}: {len(read.statements)} statements, {options} options")
        for problem in read.missing:
            self._add(Check("references", "error", str(problem), problem))
        builder = JobBuilder(read, local=True)
        if _is_broken(read, "agent", "skills"):
            agent = None
            self._step("agent", builder.check_declared_models)
        else:
            agent = self._step("agent", builder.load_agent)
        graph = self._graph(builder)
        if graph is not None:
            self._tables(builder, graph, agent, reach=reach)
        return self._report

    def _graph(self, builder: JobBuilder) -> JobGraph | None:
        try:
            import flink_skills.flink.job_graph  # noqa: F401 - only whether it is there
        except ImportError as error:
            self._add(
                Check(
                    "flink",
                    "unknown",
                    f"{error.name} is not installed here, so tables, columns and connectors are not checked: "
                    "pip install 'flink-skills[flink]'",
                )
            )
            return None
        problems: list[Problem] = []
        graph = self._step("flink", lambda: builder.open_graph(problems.append))
        for problem in DocumentError(problems).problems:
            self._add(Check("flink", "error", str(problem), problem))
        if graph is not None and not problems:
            self._ok("flink", "Flink takes the options")
        return graph

    def _tables(self, builder: JobBuilder, graph: JobGraph, agent: Any, *, reach: bool) -> None:
        read = builder.read
        defined = self._step("tables", lambda: _done(builder.define_tables))
        if defined and not _is_broken(read, "tables"):
            self._ok("tables", ", ".join(statement.title for statement in read.statements))
        shape = None if _is_broken(read, "input") else self._step("input", builder.input_shape)
        keyed = shape is not None and ("input", "key") not in read.broken
        if shape is not None and keyed and self._step("input", lambda: _done(lambda: builder.check_keys(shape))):
            time_of = ", with event time" if shape.has_rowtime else ""
            self._ok("input", f"{len(shape.columns)} columns, key {', '.join(builder.keys)}{time_of}")
        plan = self._plan(builder, agent) if agent is not None else None
        if plan is not None:
            self._skills(read, graph, plan, reach=reach)
        if shape is None or _is_broken(read, "output", "errors", "events"):
            self._step("columns", builder.check_tables)
        else:
            # Without the agent nothing is known of its outputs.
            known = output_shape(agent, plan) if plan is not None else OutputShape()
            filled = self._step("columns", lambda: builder.fill_tables(shape, known))
            if plan is None:
                builder.warnings.clear()
            elif filled is not None:
                self._columns(filled)
                keys = [name for name in dict.fromkeys(builder.keys) if name in shape.names]
                if keyed and keys:
                    self._connectors(builder, shape, plan, filled, keys)
        for warning in job_warnings(builder):
            self._add(Check("warning", "warning", warning))
        if reach and plan is not None:
            self._models(read, plan)

    def _plan(self, builder: JobBuilder, agent: Any) -> AgentPlan | None:
        """The agent's plan; sources that only the cluster may have are looked at in a step of their own."""
        plan = self._step("agent", lambda: builder.compile(agent, check_skills=False))
        if plan is not None:
            models = ", ".join(f"{model.name} ({model.setup.label})" for model in plan.models) or "no model"
            self._ok("agent", f"agent {plan.agent_id}: {models}")
        return plan

    def _skills(self, read: ReadJob, graph: JobGraph, plan: AgentPlan, *, reach: bool) -> None:
        if not plan.scopes:
            self._ok("skills", "the job has no source of skills")
            return
        try:
            here = skills_here(plan, graph, remote=reach)
        except SourceError as error:
            status: Status = "error" if reach else "unknown"
            mend = "" if reach else " (TaskManagers read it when the job opens; --reach makes this an error)"
            self._add(Check("skills", status, str(error) + mend))
            return
        except SkillsError as error:
            self._add(Check("skills", "error", str(error)))
            return
        if here.not_looked_at:
            self._add(Check("skills", "unknown", f"not looked at without --reach: {', '.join(here.not_looked_at)}"))
        for diagnostic in here.diagnostics:
            if diagnostic.severity != "info":
                place = f"{diagnostic.skill or diagnostic.path}: " if diagnostic.skill or diagnostic.path else ""
                self._add(Check("skills", "warning", f"{place}{diagnostic.code} {diagnostic.message}"))
        for model in here.models:
            self._ok("skills", f"model {model.model}: {', '.join(model.skills) or 'none'}")

    def _columns(self, filled: RecordRows) -> None:
        for fill in (filled.output, filled.errors, filled.events):
            if fill is not None:
                self._ok("columns", f"{fill.table}: " + ", ".join(f"{c.name} ← {c}" for c in fill.columns))

    def _connectors(
        self, builder: JobBuilder, shape: TableShape, plan: AgentPlan, filled: RecordRows, keys: list[str]
    ) -> None:
        def connect() -> bool:
            builder.connect(shape, plan, filled, keys=keys)
            builder.graph.flink_plan()
            return True

        if self._step("connectors", connect):
            self._ok("connectors", "every table has its connector, and Flink can plan the job")

    def _models(self, read: ReadJob, plan: AgentPlan) -> None:
        for model in plan.models:
            started = time.monotonic()
            try:
                text = asyncio.run(_ask(model, SkillConfig(plan.options)))
            except SkillsError as error:
                self._add(Check("models", "error", f"model {model.name} ({model.setup.label}): {error}"))
                continue
            seconds = time.monotonic() - started
            self._ok("models", f"model {model.name} ({model.setup.label}) answered in {seconds:.1f} s{text}")

    def _step(self, name: str, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except DocumentError as error:
            for problem in error.problems:
                if problem.not_here is not None:
                    kind, what = problem.not_here
                    message = (
                        f"the {kind} {what!r} is not here, so the options of its table are not checked: name its jar "
                        "under 'jars', or check where it is"
                    )
                    self._add(Check(name, "unknown", message, problem))
                else:
                    self._add(Check(name, "error", str(problem), problem))
        except SkillsError as error:
            self._add(Check(name, "error", str(error)))
        return None

    def _ok(self, name: str, message: str) -> None:
        self._add(Check(name, "ok", message))

    def _add(self, check: Check) -> None:
        # The one place that everything passes: what was inserted may be in names and connectors as well.
        problem = check.problem and replace(check.problem, message=self._hide(check.problem.message))
        check = replace(check, message=self._hide(check.message), problem=problem)
        self._report.checks.append(check)
        self._note(check)


def _is_broken(read: ReadJob, *sections: str) -> bool:
    return any((section,) in read.broken for section in sections)


def _done(step: Callable[[], None]) -> bool:
    step()
    return True


async def _ask(model: ModelPlan, config: SkillConfig) -> str:
    """Ask a model for a sign of life. Raises :class:`SkillsError`."""
    timeout = min(config.get(SkillOptions.MODEL_TIMEOUT), _REACH_TIMEOUT)
    chat = create_model(model.setup, config)
    try:
        settings = {**model.setup.settings, "max_tokens": _FEW_TOKENS}
        request = ModelRequest(
            system="Answer with one word.",
            messages=[UserMessage("Are you there?")],
            settings=settings if model.setup.provider != "offline" else {},
            timeout=timeout,
        )
        try:
            response = await asyncio.wait_for(chat.request(request), timeout)
        except asyncio.TimeoutError:
            raise ConfigError(f"no answer within {timeout:g} s") from None
    finally:
        await chat.close()
    return "" if response.text.strip() or response.tool_calls else ", with nothing"
