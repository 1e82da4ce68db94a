"""``flink-skills run JOB.yaml --explain``: what a job will be, as plain data without secrets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink_skills.agents.plan.plan import operator_uid
from flink_skills.agents.plan.sealing import public_options
from flink_skills.errors import SkillsError
from flink_skills.job.agent_building import AgentBuilder
from flink_skills.job.agent_tables import require
from flink_skills.job.building import JobBuilder, effective_options, job_warnings
from flink_skills.job.job_reading import ReadJob, read_job
from flink_skills.job.sizing import Load, size_of
from flink_skills.job.skills_and_servers import declared_servers, reached_servers, visible_skills
from flink_skills.job.stages import Stage
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.telemetry.activity import map_strings
from flink_skills.tools.tool_names import NameMatch

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan
    from flink_skills.agents.rows.columns import TableFill
    from flink_skills.flink.job_graph import JobGraph

_CHECKPOINTS = {
    "interval": "execution.checkpointing.interval",
    "mode": "execution.checkpointing.mode",
    "dir": "execution.checkpointing.dir",
    "savepoint_dir": "execution.checkpointing.savepoint-dir",
    "state_backend": "state.backend.type",
    "restart": "restart-strategy.type",
}


def explain_job(
    path: str | Path,
    assignments: Iterable[str] = (),
    *,
    reach: bool = False,
    flink_plan: bool = False,
    load: Load | None = None,
) -> dict[str, Any]:
    """Return a description of the job of a file as JSON-like data, without the values of references.

    Args:
        path: The job file.
        assignments: ``KEY=VALUE`` arguments, which override the file.
        reach: Load the skills of URLs, too, and connect to MCP servers.
        flink_plan: Add Flink's own plan, for which all connectors must be here.
        load: Add the size for this load.

    Raises:
        DocumentError: The file has problems.
    """
    read = read_job(path, assignments)
    with read.hiding():
        found = _explained(read, reach=reach, flink_plan=flink_plan, load=load)
    explained: dict[str, Any] = map_strings(found, read.references.hide)
    return explained


def _explained(read: ReadJob, *, reach: bool, flink_plan: bool, load: Load | None) -> dict[str, Any]:
    builder = JobBuilder(read, local=True)
    graph = builder.prepare(check_skills=False)
    agents = {each.stage.name: _stage(each, graph, reach=reach) for each in builder.agents}
    builder.read_skill_names(remote=reach)
    builder.check_names()  # again, because servers were reached
    found: dict[str, Any] = {
        "job": read.job.name,
        "file": str(read.file),
        "tables": [statement.title for statement in read.statements],
        # A job with one agent has its sections at the top, as its file has.
        **agents.get("", {"agents": agents}),
        "control": None if read.job.control is None else read.job.control.table or read.job.control.query,
        "checkpoints": {name: graph.option(key) for name, key in _CHECKPOINTS.items()},
        "options": public_options(effective_options(graph).to_json()),
        "names": [_name(match) for match in builder.name_matches()],
        "warnings": job_warnings(builder),
    }
    if load is not None:
        found["size"] = size_of(load, options=_places(graph)).to_json()
    if flink_plan:
        builder.connect({})
        found["flink"] = graph.flink_plan()
    return found


def _places(graph: JobGraph) -> dict[str, int]:
    """Return the number of subtasks, and how many turns each of them holds."""
    return {
        "slots": int(graph.option("parallelism.default") or 1),
        "max_in_flight": effective_options(graph).get(SkillOptions.WORKER_MAX_IN_FLIGHT),
    }


def _stage(each: AgentBuilder, graph: JobGraph, *, reach: bool) -> dict[str, Any]:
    stage = each.stage
    shape, plan = require(each.shape, "find_input"), require(each.plan, "compile")
    filled = each.fill_tables(shape)
    source = stage.table or stage.query or ", ".join(f"agent {name}" for name in stage.sources)
    return {
        "input": {
            "from": source,
            "key": each.keys,
            "event_time": shape.has_rowtime,
            "columns": dict(shape.columns),
        },
        "agent": {
            "uid": operator_uid(stage.name or plan.operator_name),
            **_agent(plan, graph, reach=reach),
            "mcp_servers": _servers(each, reach=reach),
        },
        "output": _table(filled.output),
        "next": list(filled.next),
        "errors": _table(filled.errors),
        "events": _table(filled.events),
        "answers": _answers(stage),
        "approvals": [asdict(approvals) for approvals in each.approvals()],
        "waits": _table(filled.waits),
        "state": _state(plan),
    }


def _answers(stage: Stage) -> dict[str, Any] | None:
    answers = stage.answers
    if answers is None:
        return None
    return {"from": answers.table or answers.query, "key": list(stage.answer_keys), "wait_id": answers.wait_id}


def _agent(plan: AgentPlan, graph: JobGraph, *, reach: bool) -> dict[str, Any]:
    described = plan.describe()
    models: dict[str, dict[str, Any]] = {
        model.name: {
            "model": model.setup.label,
            "fallback": [each.name for each in model.fallback],
            "skill_names": plan.filter_of(model),
            "skills": None,
        }
        for model in plan.models
    }
    unknown: str | None = None
    try:
        visible = visible_skills(plan, graph, remote=reach)
    except SkillsError as error:
        unknown = str(error)
    else:
        if visible.unread_sources:
            unknown = f"unchecked without --reach: {', '.join(visible.unread_sources)}"
        for model in visible.models:
            models[model.model] |= {
                "skills": list(model.skills),
                "tools": list(model.tools),
                "system_chars": model.system_chars,
                "tool_chars": model.tool_chars,
                "tokens": model.tokens,
            }
    return {
        "id": plan.agent_id,
        "session": plan.session,
        "skill_names": described["skill_names"],
        "sources": described["sources"],
        "models": models,
        "route": None if plan.route is None else plan.route.to_json(),
        "agents": {name: _agent(callee, graph, reach=reach) for name, callee in plan.agents.items()},
        "unknown": unknown,
    }


def _name(match: NameMatch) -> dict[str, Any]:
    use = match.use
    return {"in": use.place, "name": use.pattern, "matches": list(match.names), "problem": match.problem or None}


def _servers(each: AgentBuilder, *, reach: bool) -> list[dict[str, Any]]:
    servers = reached_servers(each.named) if reach else declared_servers(require(each.source, "load").agent)
    return [
        {
            "name": server.name,
            "at": server.shown,
            "required": server.required,
            "problem": server.problem,
            "tried": reach,
        }
        for server in servers
    ]


def _table(fill: TableFill | None) -> dict[str, Any] | None:
    if fill is None:
        return None
    return {
        "table": fill.table,
        "columns": {column.name: {"type": str(column.of), "from": str(column)} for column in fill.columns},
    }


def _state(plan: AgentPlan) -> dict[str, Any]:
    config = SkillConfig(plan.options)
    return {
        "session": plan.session,
        "session_ttl_s": config.get(SkillOptions.SESSION_TTL),
        "max_pending": config.get(SkillOptions.WORKER_MAX_PENDING),
        "max_in_flight": config.get(SkillOptions.WORKER_MAX_IN_FLIGHT),
    }
