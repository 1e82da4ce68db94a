"""Finds what failed first in a Flink log: the root exception, its place, and what the job did next."""

from __future__ import annotations

import re
import sys

# Nothing may be written into a skill's folder while it is in use.
sys.dont_write_bytecode = True

from flink_log import Entry, Failure, advice, chain, entries, job_states, read_event, report

_TASK = re.compile(r"(?P<task>\S.*?) \(\d+/\d+\)(?:#\d+)? \(.*switched from \w+ to FAILED")
# What the root exception (or the entry) says about the component, and the skill that knows more about it.
_KINDS = (
    (
        r"OutOfMemoryError|GC overhead limit|Insufficient number of network buffers",
        "memory",
        "memory-diagnosis",
    ),
    (
        r"NoClassDefFound|ClassNotFound|NoSuchMethod|NoSuchField|LinkageError|UnsupportedClassVersion"
        r"|Could not find any factory|ModuleNotFoundError",
        "class path",
        "classpath-diagnosis",
    ),
    (r"NoResourceAvailable|minimum required resources", "slots", "slot-shortage"),
    (
        r"[Hh]eartbeat of |no longer reachable|RemoteTransport|RecipientUnreachable|is shutting down"
        r"|PartitionNotFound|JobMasterException",
        "TaskManager",
        "taskmanager-loss",
    ),
    (
        r"Checkpoint(?:Exception| expired)|checkpoint tolerable failure|savepoint file|StateMigration",
        "checkpointing",
        "checkpoint-diagnosis",
    ),
    (
        r"Connect(?:ion)?Exception|ConnectTimeout|UnknownHost|NoRouteToHost|SocketTimeout|SSLHandshake"
        r"|Connection refused|ConnectionRefusedError",
        "external system",
        None,
    ),
    (
        r"AccessDenied|Permission denied|Unauthorized|Forbidden|AuthenticationException|SaslException",
        "external system (credentials)",
        None,
    ),
    (r"ValidationException|TableException|SqlParser", "job definition (SQL)", None),
)


def kind(text: str) -> tuple[str | None, str | None]:
    """The component and the more special skill for a piece of log text."""
    found = ((component, skill) for pattern, component, skill in _KINDS if re.search(pattern, text))
    return next(found, (None, None))


def first_failure(log: list[Entry]) -> tuple[Entry, list[Failure]] | None:
    """The first entry with an exception, else the first ERROR, else the first WARN."""
    for entry in log:
        if failures := chain(entry):
            return entry, failures
    for level in (("ERROR", "FATAL"), ("WARN",)):
        if loud := next((entry for entry in log if entry.level in level), None):
            return loud, []
    return None


def place(failures: list[Failure]) -> str | None:
    """Where the user's code stands in the trace: in the root exception first, then in what wraps it."""
    return next((frame for failure in reversed(failures) if (frame := failure.user_frame())), None)


def next_steps(component: str, skill: str | None, where: str | None, over: bool) -> list[str]:
    """What to do, the most useful first."""
    name = component.partition(" (cred")[0]
    name = "special" if skill else name if name in ("external system", "user function") else "other"
    if component.startswith("job definition"):
        name = component
    return advice(name, skill=skill, where=where) + (advice("stopped") if over else [])


def main() -> None:
    event = read_event()
    lines = event["lines"]
    log = entries(lines)
    states = job_states(log)
    found = first_failure(log)
    if found is None:
        last = states[-1][0].line if states else lines[-1]
        state = f" The job's last state is {states[-1][2]}." if states else ""
        diagnosis = f"No incident: no exception, ERROR or WARN in {len(lines)} lines.{state}"
        report(diagnosis, last, "none", "none", advice("none"))
        return
    entry, failures = found
    root = failures[-1] if failures else None
    # A final failure repeats the exception below "Recovery is suppressed": the same failure, not one more.
    chains = [c for e in log if (c := chain(e)) and not any("Recovery is suppressed" in f.message for f in c)]
    same = [c for c in chains if root and (c[-1].type, c[-1].message) == (root.type, root.message)]
    where = place(failures)
    task = _TASK.search(entry.message)
    component, skill = kind(root.line if root else "")
    if component is None:
        component, skill = kind("\n".join([entry.message, *(f.line for f in failures)]))
    component = component or ("user function" if where else "Flink runtime")
    restarts = sum(new == "RESTARTING" for _, _, new in states)
    over = any(new in ("FAILED", "FAILING") for _, _, new in states)
    over = over or any("Recovery is suppressed" in line for line in lines)
    parts = [str(root) if root else entry.message]
    if where:
        parts.append(f"thrown at {where}")
    if task:
        parts.append(f"in task '{task['task'].split(' - ')[-1]}'")
    if len(failures) > 1 and failures[0].message and failures[0].type != failures[-1].type:
        parts.append(f"reported as {failures[0]}")
    if restarts or over:
        parts.append(f"{restarts} restart(s) in this log" + (", then the job failed for good" if over else ""))
    report(
        "; ".join(parts),
        root.line if root else entry.line,
        component,
        "critical" if over else "high" if failures else "warning",
        next_steps(component, skill, where, over),
        root_cause=root.type if root else None,
        place=where,
        first_seen=entry.time.isoformat(sep=" ") if entry.time else None,
        occurrences=len(same) or None,
        restarts=restarts,
        seconds_observed=log[-1].seconds_since(log[0]),
        see_skill=skill,
    )


if __name__ == "__main__":
    main()
