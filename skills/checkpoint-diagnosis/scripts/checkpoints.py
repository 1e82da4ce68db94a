"""Follows each checkpoint of a Flink log from its trigger to its end and says why those failed that did."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field

# Nothing may be written into a skill's folder while it is in use.
sys.dont_write_bytecode = True

from flink_log import Entry, Failure, advice, chain, entries, job_states, read_event, report

_TRIGGER = re.compile(r"Triggering (?:checkpoint|savepoint) (\d+)")
_COMPLETE = re.compile(r"Completed (?:checkpoint|savepoint) (\d+) .*?, checkpointDuration=(\d+) ms")
_EXPIRE = re.compile(r"Checkpoint (\d+) of job \S+ expired before completing")
_FAIL = re.compile(
    r"Failed to trigger or complete checkpoint (\d+)|Declined? checkpoint (\d+) by task"
    r"|Triggering Checkpoint (\d+) for job \S+ failed"
)
# Not failures of a checkpoint: the job is starting, or stops for another reason.
_BENIGN = re.compile(r"Coordinator is (?:suspending|shutting down)|required tasks are (?:currently |not )")
_RESTORE = re.compile(
    r"Cannot find checkpoint or savepoint|Failed to rollback to checkpoint"
    r"|Cannot map checkpoint/savepoint state|StateMigrationException|Could not restore"
    r"|new (?:key|state|namespace) serializer .*must (?:not )?be"
)
_STORAGE = re.compile(
    r"IO-problem|Could not (?:flush|materialize|open output)|Mkdirs failed"
    r"|(?:FileAlreadyExists|AccessDenied|NoSuchFile|FileNotFound|AmazonS3|FileSystem|IO)Exception"
)
_GONE = re.compile(r"RecipientUnreachable|AskTimeout|no longer reachable|TaskExecutor is shutting down")


@dataclass
class Attempt:
    """One checkpoint: how it began and ended, and the exceptions that were logged for it."""

    number: int
    trigger: Entry | None = None
    end: Entry | None = None
    outcome: str = "open"
    duration: float | None = None
    failures: list[Failure] = field(default_factory=list)


def attempts(log: list[Entry]) -> list[Attempt]:
    """The checkpoints of the log in the order in which they appear."""
    found: dict[int, Attempt] = {}

    def numbered(text: str) -> Attempt:
        return found.setdefault(int(text), Attempt(int(text)))

    for entry in log:
        if match := _COMPLETE.search(entry.message):
            attempt = numbered(match[1])
            attempt.outcome, attempt.end, attempt.duration = "completed", entry, int(match[2]) / 1000
        elif match := _EXPIRE.search(entry.message):
            attempt = numbered(match[1])
            attempt.outcome, attempt.end = "expired", entry
            attempt.duration = entry.seconds_since(attempt.trigger) if attempt.trigger else None
        elif match := _FAIL.search(entry.message):
            attempt = numbered(next(group for group in match.groups() if group))
            attempt.failures = attempt.failures or chain(entry)
            if attempt.outcome == "open":
                benign = _BENIGN.search("\n".join([entry.message, *(f.line for f in attempt.failures)]))
                attempt.outcome, attempt.end = "stopped" if benign else "failed", entry
        elif match := _TRIGGER.search(entry.message):
            numbered(match[1]).trigger = entry
    return list(found.values())


def restore_failure(log: list[Entry]) -> tuple[Failure, str] | None:
    """The innermost exception of a start that failed on its state or its storage, and the kind of advice."""
    for entry in log:
        failures = chain(entry)
        text = "\n".join(failure.line for failure in failures)
        if "Failed to create checkpoint storage" in text:
            return failures[-1], "no storage"
        if _RESTORE.search(text):
            return failures[-1], "missing" if "Cannot find" in text else "incompatible"
    return None


def explain(bad: list[Attempt]) -> tuple[str, str, str, str]:
    """Diagnosis, evidence, component and kind of advice for failed checkpoints."""
    root = bad[0].failures[-1] if bad[0].failures else None
    evidence = bad[0].end.line if bad[0].end else ""
    text = "\n".join([f.line for a in bad for f in a.failures] + [a.end.message for a in bad if a.end])
    numbers = ", ".join(str(a.number) for a in bad)
    if expired := next((a for a in bad if a.outcome == "expired"), None):
        after = f" after {expired.duration:.1f} s" if expired.duration is not None else ""
        what = f"Checkpoint {expired.number} timed out{after} (expired before completing; affected: {numbers})"
        return (
            what,
            expired.end.line if expired.end else evidence,
            "checkpointing (alignment or slow snapshot)",
            "expired",
        )
    if _GONE.search(text):
        what = f"Checkpoint(s) {numbers} failed because a TaskManager did not answer: {root}"
        return what, evidence, "TaskManager", "gone"
    if root and _STORAGE.search(text):
        what = f"Checkpoint storage refuses writes, checkpoint(s) {numbers}: {root}"
        return what, root.line, "checkpoint storage", "storage"
    what = f"Checkpoint(s) {numbers} failed: {root or 'no cause in this log'}"
    return what, root.line if root else evidence, "checkpointing", "unknown"


def main() -> None:
    event = read_event()
    lines = event["lines"]
    log = entries(lines)
    seen = attempts(log)
    done = [a for a in seen if a.outcome == "completed"]
    bad = [a for a in seen if a.outcome in ("expired", "failed")]
    durations = [a.duration for a in done if a.duration is not None]
    counts = {
        "completed": len(done),
        "failed": len(bad),
        "longest_completed_seconds": max(durations, default=None),
        "failed_after_seconds": next((a.duration for a in bad if a.duration is not None), None),
        "restarts": sum(new == "RESTARTING" for _, _, new in job_states(log)),
    }
    if lost := restore_failure(log):
        failure, kind = lost
        what = "without its checkpoint storage" if kind == "no storage" else "from its restore point"
        diagnosis = f"The job cannot start {what}: {failure}"
        report(diagnosis, failure.line, "checkpoint restore", "critical", advice(kind), **counts)
    elif bad:
        diagnosis, evidence, component, kind = explain(bad)
        if over := any("Exceeded checkpoint tolerable failure threshold" in line for line in lines):
            diagnosis += "; more failed in a row than tolerated, so Flink failed the job"
        report(diagnosis, evidence, component, "critical" if over else "high", advice(kind), **counts)
    else:
        last = done[-1].end if done else None
        what = f"{len(done)} completed, longest {max(durations):.2f} s" if durations else "none in this log"
        evidence = last.line if last else lines[-1]
        report(f"No checkpoint problem: {what}.", evidence, "none", "none", advice("none"), **counts)


if __name__ == "__main__":
    main()
