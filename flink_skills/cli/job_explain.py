"""``flink-skills run JOB.yaml --explain``: what a job will be, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flink_skills.agents.route import Route
from flink_skills.cli.output import counted, print_json, print_line
from flink_skills.cli.places import near_path
from flink_skills.job.explaining import explain_job
from flink_skills.job.sizing import Load

__all__ = ["explain"]


def explain(
    path: Path, assignments: tuple[str, ...], *, reach: bool, flink_plan: bool, load: str | None, as_json: bool
) -> int:
    """Print what the job of a file will be, and with ``load`` what it needs for that load. Return the exit code."""
    given = None if load is None else Load.parse(load)
    found = explain_job(path, assignments, reach=reach, flink_plan=flink_plan, load=given)
    if as_json:
        print_json(found)
        return 0
    print_line(("job ", ""), (found["job"], "bold"))
    stages = found.get("agents", {"": found})
    for stage in stages.values():
        _stage(stage)
    _checkpoints(found)
    if "size" in found:
        _size(found["size"])
    for warning in found["warnings"]:
        print_line(("! ", "yellow"), warning)
    if flink_plan:
        print_line(("Flink's plan", "bold"))
        print_line(json.dumps(found["flink"], ensure_ascii=False))
    return 0


def _stage(stage: Mapping[str, Any]) -> None:
    _input(stage["input"])
    _agent(stage["agent"])
    for role in ("output", "errors", "events"):
        if stage[role] is not None:
            print_line((f"{role} ", "bold"), stage[role]["table"])
            for name, column in stage[role]["columns"].items():
                print_line(f"  {name} {column['type']} ← {column['from']}")
    if stage["next"]:
        print_line(("output ", "bold"), f"events of {', '.join(f'agent {name}' for name in stage['next'])}")
    _state(stage["state"])


def _input(given: Mapping[str, Any]) -> None:
    print_line(("input ", "bold"), str(given["from"]))
    print_line(f"  key: {', '.join(given['key'])}; event time: {'yes' if given['event_time'] else 'no'}")
    print_line("  columns: " + ", ".join(f"{name} {sql}" for name, sql in given["columns"].items()))


def _agent(agent: Mapping[str, Any]) -> None:
    print_line(("agent ", "bold"), f"{agent['id']} (uid {agent['uid']}), session per {agent['session']}")
    for server in agent["mcp_servers"]:
        manner = "required" if server["required"] else "optional: the job opens without its tools if it is down"
        print_line(f"  MCP server {server['name']} ({server['at']}): {manner}")
        if server["problem"]:
            print_line(("    ! ", "yellow"), server["problem"])
    _models(agent)


def _models(agent: Mapping[str, Any]) -> None:
    for scope in agent["sources"]:
        for kind in ("paths", "resources", "urls"):
            for source in scope.get(kind, ()):
                print_line(f"  skills of the {scope['level']}: {near_path(source)}")
        if scope.get("skills"):
            print_line(f"  skills of the {scope['level']}, made in code: {', '.join(scope['skills'])}")
    if agent["skill_names"] is not None:
        print_line(f"  skill_names: {', '.join(agent['skill_names']) or 'none'}")
    if agent["unknown"]:
        print_line(("  ? ", "cyan"), agent["unknown"])
    for name, model in agent["models"].items():
        fallback = f", then {', '.join(model['fallback'])}" if model["fallback"] else ""
        print_line(f"  model {name}: {model['model']}{fallback}")
        if model["skills"] is None:
            filtered = model["skill_names"]
            known = "known when the job opens" if filtered is None else ", ".join(filtered) or "none"
            print_line(f"    skills: {known}")
            continue
        print_line(f"    skills: {', '.join(model['skills']) or 'none'}")
        print_line(f"    tools: {', '.join(model['tools']) or 'none'}")
        print_line(
            f"    sent with every event: {model['system_chars']} characters of system text, {model['tool_chars']} of "
            f"tools, about {model['tokens']} tokens"
        )
    if agent["route"] is not None:
        print_line(f"  route {Route.parse(agent['route']).described()}")
    for tool, callee in agent["agents"].items():
        print_line((f"agent tool {tool} ", "bold"), callee["id"])
        _models(callee)


def _state(state: Mapping[str, Any]) -> None:
    ttl = f"{state['session_ttl_s']:g} s" if state["session_ttl_s"] else "never"
    kept = "its conversation and state" if state["session"] == "key" else "its state"
    print_line(
        ("state ", "bold"), f"of each key: {kept} (forgotten when idle for: {ttl}), turns under way, queued events"
    )


def _checkpoints(found: Mapping[str, Any]) -> None:
    checkpoints = found["checkpoints"]
    every = f"every {checkpoints['interval']}" if checkpoints["interval"] else "none"
    where = checkpoints["dir"] or "the memory of the JobManager"
    print_line(("checkpoints ", "bold"), f"{every}, in {where}, restart {checkpoints['restart'] or 'by default'}")
    if found["options"]:
        print_line(("options ", "bold"))
        for key, value in found["options"].items():
            print_line(f"  {key}: {value}")


def _size(size: Mapping[str, Any]) -> None:
    print_line(
        ("size ", "bold"),
        f"{_number(size['in_flight'])} turns in flight of {_number(size['turn_seconds'])} s, "
        f"{_number(size['cpu_ms_per_turn'])} ms of CPU time each: {_number(size['cores'])} cores",
    )
    each = counted(size["slots"] // size["task_managers"], "slot")
    print_line(
        f"  {counted(size['task_managers'], 'TaskManager')} with {each} and {counted(size['workers'], 'worker')} each: "
        f"parallelism {size['slots']}, skills.worker.max-in-flight {size['max_in_flight']:,}, {size['worker_mb']:,} MB "
        f"for a worker, {size['memory_mb']:,} MB for a TaskManager"
    )
    print_line(
        f"  asks the provider for {_number(size['requests_per_minute'])} requests and "
        f"{_number(size['tokens_per_minute'])} tokens a minute"
    )
    if size["state_mb"]:
        print_line(f"  {_number(size['state_mb'])} MB of conversations in Flink's state")
    for problem in size["problems"]:
        print_line(("  ! ", "yellow"), problem)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
