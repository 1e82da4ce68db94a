"""Compares the slots a job asked for with those the cluster had, from a JobManager's log."""

from __future__ import annotations

import re
import sys

# Nothing may be written into a skill's folder while it is in use.
sys.dont_write_bytecode = True

from flink_log import Entry, advice, entries, job_states, read_event, report

_SIGN = re.compile(
    r"NoResourceAvailableException|Could not (?:acquire the minimum required|fulfill) resource"
    r"|Not enough resources available|Slot request (?:bulk )?is not fulfillable"
    r"|Could not allocate (?:the required|all) slot"
)
_NEED = re.compile(r"numberOfRequiredSlots=(\d+)")
_REQUEST = re.compile(r"Received resource requirements from job \w+: \[(?P<list>.*)\]")
_ACQUIRED = re.compile(r"Acquired: \[(?P<list>.*?)\](?=, |$|\. )")
_LOST = re.compile(r"no longer reachable|[Hh]eartbeat of TaskManager .* timed out|Closing TaskExecutor connection")
_SUBTASK = re.compile(r"(?:^|- )\S.*? \(\d+/(?P<parallelism>\d+)\) \(")
_TASKMANAGER = re.compile(r"\s+TaskManager (\S+)$")


def slots(text: str) -> int:
    """The slots in a list of resource requirements."""
    return sum(int(number) for number in _NEED.findall(text))


def missing_slots(entry: Entry) -> int | None:
    """What the slot manager's table says is missing, or None when the entry has no table."""
    table = "\n".join([entry.message, *entry.details])
    if "Missing resources:" not in table:
        return None
    return slots(table.split("Missing resources:")[1].split("Current resources:")[0])


def supply(log: list[Entry]) -> tuple[int, int | None]:
    """Slots needed (0 when the log does not say) and slots that the job got (None when it does not say)."""
    needed = max((slots(m["list"]) for e in log if (m := _REQUEST.search(e.message))), default=0)
    acquired = max((slots(m["list"]) for e in log if (m := _ACQUIRED.search(e.message))), default=None)
    missing = max((n for e in log if (n := missing_slots(e)) is not None), default=None)
    # Without the request in the log, the widest task says what its slot sharing group needs.
    widest = max((int(m["parallelism"]) for e in log if (m := _SUBTASK.search(e.message))), default=0)
    needed = needed or max(widest, (acquired or 0) + (missing or 0))
    if acquired is None and missing is not None and needed:
        acquired = max(needed - missing, 0)
    return needed, acquired


def main() -> None:
    event = read_event()
    lines = event["lines"]
    log = entries(lines)
    sign = next((line for line in lines if _SIGN.search(line)), None)
    if sign is None:
        report("No shortage of slots in this log.", lines[-1], "none", "none", advice("none"))
        return
    needed, have = supply(log)
    lost = any(_LOST.search(entry.message) for entry in log)
    states = job_states(log)
    started = next((e for e, _, new in states if new == "RUNNING"), None)
    failed = next((e for e in log if any(_SIGN.search(text) for text in [e.message, *e.details])), None)
    waited = failed.seconds_since(started) if started and failed else None
    waited = waited if waited and waited > 0 else None
    restarts = sum(new == "RESTARTING" for _, _, new in states)
    over = any(new in ("FAILED", "FAILING") for _, _, new in states)
    what = "Not enough slots" + (f": the job needs {needed}" if needed else "")
    what += f", the cluster gave {have}" if have is not None else ""
    what += f" ({needed - have} missing)" if have is not None and needed > have else ""
    parts = [what]
    if waited:
        parts.append(f"given up after waiting {waited:.1f} s")
    if lost:
        parts.append("a TaskManager went away before")
    if restarts or over:
        parts.append(f"{restarts} restart(s) in this log" + (", then the job failed for good" if over else ""))
    report(
        "; ".join(parts),
        sign,
        "slots",
        "critical" if over else "high",
        advice("lost") + advice("always") if lost else advice("always") + advice("few"),
        needed=needed or None,
        available=have,
        taskmanagers=sorted({match[1] for line in lines if (match := _TASKMANAGER.match(line))}),
        waited_seconds=waited,
        restarts=restarts,
    )


if __name__ == "__main__":
    main()
