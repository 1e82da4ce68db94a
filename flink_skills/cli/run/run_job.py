"""``flink-skills run JOB.yaml``: run, check or explain a job file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flink_skills.agents.declare.route import Route
from flink_skills.cli.shared_options import display_path
from flink_skills.cli.terminal_output import print_error, print_json, print_line, print_note
from flink_skills.documents.document import DocumentError
from flink_skills.errors import SkillsError, counted
from flink_skills.job.explaining import explain_job
from flink_skills.job.job_checks import Check, CheckReport, check_job
from flink_skills.job.sizing import Load
from flink_skills.job.wait_answers import Approvals

DONE, FAILED, SOME_ERRORS = 0, 1, 3
_SYMBOLS = {
    "ok": ("✓", "green"),
    "error": ("✗", "bold red"),
    "warning": ("!", "yellow"),
    "unknown": ("?", "cyan"),
}
# Labels for encodings without the symbols.
_ASCII_LABELS = {"✓": "ok     ", "✗": "ERROR  ", "!": "warning", "?": "unknown"}


def execute(path: Path, assignments: tuple[str, ...], failed: Path | None) -> int:
    """Run a job file in a MiniCluster, and return the exit code.

    Args:
        path: Job file.
        assignments: Values of ``--set``.
        failed: File of error records to rerun. None runs the job on its input.
    """
    from flink_skills.job.job_main import run_job_file

    if sys.stderr.isatty():
        print_note(f"{path}: checking the file and starting Java")
    try:
        has_failures = run_job_file(
            path,
            assignments,
            local=True,
            failed=failed,
            warn=lambda message: print_error(f"warning: {message}"),
            summarize=print_note,
        )
    except DocumentError:
        raise
    except SkillsError as error:
        if not _is_job_failure(error):
            raise
        print_error(f"the job failed: {error}")
        return FAILED
    return SOME_ERRORS if has_failures else DONE


def _is_job_failure(error: SkillsError) -> bool:
    """Return True if a job was submitted and failed. Without Flink no job can have been submitted."""
    try:
        from flink_skills.flink.flink_failures import JobFailedError
    except ImportError:
        return False
    return isinstance(error, JobFailedError)


def check(path: Path, assignments: tuple[str, ...], *, reach: bool, as_json: bool) -> int:
    """Check a job file and print the results. Return the exit code: 0, or 1 if there is an error."""
    report = check_job(path, assignments, reach=reach, note=None if as_json else _print_check)
    if as_json:
        print_json(report.to_json())
    else:
        _print_summary(report)
    return DONE if report.sound else FAILED


def _print_check(result: Check) -> None:
    symbol, style = _SYMBOLS[result.status]
    try:
        symbol.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        symbol = _ASCII_LABELS[symbol]
    for number, line in enumerate(result.message.splitlines() or [""]):
        if number == 0:
            print_line((symbol, style), f" {result.name}: {line}")
        else:
            print_line(f"  {line}")


def _print_summary(report: CheckReport) -> None:
    counts = {status: sum(result.status == status for result in report.checks) for status in _SYMBOLS}
    verdict = "found no errors" if counts["unknown"] else "the job can be submitted"
    parts = [counted(counts["error"], "error")] if counts["error"] else [verdict]
    if counts["warning"]:
        parts.append(counted(counts["warning"], "warning"))
    if counts["unknown"]:
        parts.append(f"{counts['unknown']} not checkable on this host")
    print_line(", ".join(parts))


def explain(
    path: Path, assignments: tuple[str, ...], *, reach: bool, flink_plan: bool, load: str | None, as_json: bool
) -> int:
    """Print the structure of a job, and return the exit code.

    Args:
        path: Job file.
        assignments: Values of ``--set``.
        reach: Whether to download skills from URLs and connect to MCP servers.
        flink_plan: Whether to add the execution plan of Flink.
        load: Value of ``--load``. The output then includes the required resources. None omits them.
        as_json: Whether to print JSON.
    """
    parsed_load = None if load is None else Load.parse(load)
    explanation = explain_job(path, assignments, reach=reach, flink_plan=flink_plan, load=parsed_load)
    if as_json:
        print_json(explanation)
        return 0
    print_line(("job ", ""), (explanation["job"], "bold"))
    stages = explanation.get("agents", {"": explanation})
    for stage in stages.values():
        _print_stage(stage)
    if explanation["control"] is not None:
        print_line(("control ", "bold"), explanation["control"])
    for name in explanation["names"]:
        if name["problem"] is None:
            print_line(("names ", "bold"), f"{name['in']}: {name['name']} → {', '.join(name['matches'])}")
    _print_checkpoints(explanation)
    if "size" in explanation:
        _print_size(explanation["size"])
    for warning in explanation["warnings"]:
        print_line(("! ", "yellow"), warning)
    if flink_plan:
        print_line(("Execution plan of Flink", "bold"))
        print_line(json.dumps(explanation["flink"], ensure_ascii=False))
    return 0


def _print_stage(stage: Mapping[str, Any]) -> None:
    _print_input(stage["input"])
    _print_agent(stage["agent"])
    if (answers := stage["answers"]) is not None:
        print_line(("answers ", "bold"), str(answers["from"]))
        print_line(f"  key: {', '.join(answers['key'])}; wait: {answers['wait_id']}")
    for approvals in stage["approvals"]:
        print_line(("approval ", "bold"), str(Approvals(**approvals)))
    for role in ("output", "errors", "events", "waits"):
        if stage[role] is not None:
            print_line((f"{role} ", "bold"), stage[role]["table"])
            for name, column in stage[role]["columns"].items():
                print_line(f"  {name} {column['type']} ← {column['from']}")
    if stage["next"]:
        print_line(("output ", "bold"), f"events of {', '.join(f'agent {name}' for name in stage['next'])}")
    _print_state(stage["state"])


def _print_input(source: Mapping[str, Any]) -> None:
    print_line(("input ", "bold"), str(source["from"]))
    print_line(f"  key: {', '.join(source['key'])}; event time: {'yes' if source['event_time'] else 'no'}")
    print_line("  columns: " + ", ".join(f"{name} {sql}" for name, sql in source["columns"].items()))


def _print_agent(agent: Mapping[str, Any]) -> None:
    print_line(("agent ", "bold"), f"{agent['id']} (uid {agent['uid']}), session per {agent['session']}")
    for server in agent["mcp_servers"]:
        mode = "required" if server["required"] else "optional; the job starts without its tools if it is unavailable"
        print_line(f"  MCP server {server['name']} ({server['at']}): {mode}")
        if server["problem"]:
            print_line(("    ! ", "yellow"), server["problem"])
    _print_models(agent)


def _print_models(agent: Mapping[str, Any]) -> None:
    for scope in agent["sources"]:
        for kind in ("paths", "resources", "urls"):
            for source in scope.get(kind, ()):
                print_line(f"  skills of the {scope['level']}: {display_path(source)}")
        if scope.get("skills"):
            print_line(f"  skills of the {scope['level']}, created in code: {', '.join(scope['skills'])}")
    if agent["skill_names"] is not None:
        print_line(f"  skill_names: {', '.join(agent['skill_names']) or 'none'}")
    if agent["unknown"]:
        print_line(("  ? ", "cyan"), agent["unknown"])
    for name, model in agent["models"].items():
        fallback = f", then {', '.join(model['fallback'])}" if model["fallback"] else ""
        print_line(f"  model {name}: {model['model']}{fallback}")
        if model["skills"] is None:
            names = model["skill_names"]
            skills = "determined when the job starts" if names is None else ", ".join(names) or "none"
            print_line(f"    skills: {skills}")
            continue
        print_line(f"    skills: {', '.join(model['skills']) or 'none'}")
        print_line(f"    tools: {', '.join(model['tools']) or 'none'}")
        print_line(
            f"    sent with every event: {model['system_chars']} characters of system prompt, {model['tool_chars']} of "
            f"tools, about {model['tokens']} tokens"
        )
    if agent["route"] is not None:
        print_line(f"  route {Route.parse(agent['route']).described()}")
    for tool, sub_agent in agent["agents"].items():
        print_line((f"agent tool {tool} ", "bold"), sub_agent["id"])
        _print_models(sub_agent)


def _print_state(state: Mapping[str, Any]) -> None:
    ttl = f"removed after {state['session_ttl_s']:g} s without events" if state["session_ttl_s"] else "never removed"
    stored = "conversation and state" if state["session"] == "key" else "state"
    print_line(("state ", "bold"), f"per key: {stored} ({ttl}), unfinished turns, queued events")


def _print_checkpoints(explanation: Mapping[str, Any]) -> None:
    checkpoints = explanation["checkpoints"]
    interval = f"every {checkpoints['interval']}" if checkpoints["interval"] else "none"
    directory = checkpoints["dir"] or "the memory of the JobManager"
    restart = checkpoints["restart"] or "default"
    print_line(("checkpoints ", "bold"), f"{interval}, in {directory}, restart strategy {restart}")
    if explanation["options"]:
        print_line(("options ", "bold"))
        for key, value in explanation["options"].items():
            print_line(f"  {key}: {value}")


def _print_size(size: Mapping[str, Any]) -> None:
    print_line(
        ("size ", "bold"),
        f"{_format_number(size['in_flight'])} turns in flight of {_format_number(size['turn_seconds'])} s, "
        f"{_format_number(size['cpu_ms_per_turn'])} ms of CPU time each: {_format_number(size['cores'])} cores",
    )
    slots = counted(size["slots"] // size["task_managers"], "slot")
    print_line(
        f"  {counted(size['task_managers'], 'TaskManager')} with {slots} and "
        f"{counted(size['workers'], 'worker')} each: "
        f"parallelism {size['slots']}, skills.worker.max-in-flight {size['max_in_flight']:,}, {size['worker_mb']:,} MB "
        f"per worker, {size['memory_mb']:,} MB per TaskManager"
    )
    print_line(
        f"  load on the provider: {_format_number(size['requests_per_minute'])} requests and "
        f"{_format_number(size['tokens_per_minute'])} tokens per minute"
    )
    if size["state_mb"]:
        print_line(f"  {_format_number(size['state_mb'])} MB of conversations in Flink state")
    for problem in size["problems"]:
        print_line(("  ! ", "yellow"), problem)


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
