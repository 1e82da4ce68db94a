"""Says how a TaskManager was lost (killed, frozen, shut down or cut off), and at what cost."""

from __future__ import annotations

import itertools
import re
import sys

# Nothing may be written into a skill's folder while it is in use.
sys.dont_write_bytecode = True

from flink_log import Entry, advice, chain, entries, job_states, read_event, report

_ID = r"(?P<id>[\w.:-]*[\w-])"
# How it was lost, as the JobManager (or, for the last, the TaskManager itself) says it.
_SIGNS = {
    "frozen": re.compile(rf"[Hh]eartbeat of TaskManager with id {_ID}(?:\([^)]*\))? timed out"),
    "killed": re.compile(rf"TaskManager with id {_ID}(?:\([^)]*\))? is no longer reachable"),
    "shut down": re.compile(rf"(?:Closing TaskExecutor connection {_ID} because: )?The TaskExecutor is shutting down"),
    "cut off": re.compile(r"[Hh]eartbeat of (?:ResourceManager|JobManager) with id \S+ timed out"),
}
_TEXT = {
    "frozen": "silent until its heartbeat timed out (pause of the process or the network)",
    "killed": "lost: its process is gone or unreachable",
    "shut down": "ended by itself",
    "cut off": "lost its connection to the JobManager",
}
_REGISTER = re.compile(rf"Registering TaskManager with ResourceID {_ID} ")
_PEER = re.compile(r"Connection unexpectedly closed by remote task manager '[^']*\[ (?P<id>\S+) \]")
_TRANSPORT = re.compile(
    r"Association with remote system \[pekko\S*@(?P<id>[\w.:-]+)"
    r"|RecipientUnreachableException.*?to recipient \[Actor\[\S*?@(?P<to>[\w.:-]+)"
    r"|RemoteTransportException|AskTimeoutException|[Dd]isassociated"
)
# A gap in a log that is otherwise busy; shorter ones are normal between two checkpoints.
_PAUSE_SECONDS = 5.0


def first(log: list[Entry], pattern: re.Pattern[str]) -> tuple[Entry, str | None] | None:
    """The first entry with the pattern in its message or its traces, and the id it names."""
    for entry in log:
        for text in [entry.message, *(failure.line for failure in chain(entry))]:
            if match := pattern.search(text):
                groups = match.groupdict()
                return entry, groups.get("id") or groups.get("to")
    return None


def longest_pause(log: list[Entry]) -> tuple[float, Entry] | None:
    """The longest silence between two entries that follow each other, and the entry that ended it."""
    pairs = itertools.pairwise(log)
    gaps = [(gap, after) for before, after in pairs if (gap := after.seconds_since(before)) is not None]
    return max(gaps, key=lambda item: item[0], default=None)


def main() -> None:
    event = read_event()
    log = entries(event["lines"])
    order = {id(entry): n for n, entry in enumerate(log)}
    transport, peer = first(log, _TRANSPORT), first(log, _PEER)
    found = {how: sign for how, pattern in _SIGNS.items() if (sign := first(log, pattern))}
    # A peer's connection breaks first, and its message knows the name.
    if set(found) <= {"killed"} and (sign := peer or found.get("killed") or transport):
        found = {"killed": sign}
    if not found:
        report("No lost TaskManager in this log.", event["lines"][-1], "none", "none", advice("none"))
        return
    # Of several signs the earliest is the cause: what follows is how the others find out.
    how, (entry, name) = min(found.items(), key=lambda item: order[id(item[1][0])])
    since = order[id(entry)]
    name = name or next((n for _, n in found.values() if n), None)
    pause = None
    if how == "cut off":
        # Seen from the TaskManager. It does not name itself, but its log file usually does; and if it was the
        # one that was silent, it was frozen. (The JobManager's silence says nothing about the TaskManager.)
        own = re.search(r"([^/\\]+?)(?:\.log|\.out)?$", event["source"])
        name = name or (own[1] if own else None)
        pause = longest_pause(log[: since + 1])
        pause = pause if pause and pause[0] >= _PAUSE_SECONDS else None
        how = "frozen" if pause else how
    back = next((e for e in log[since:] if (m := _REGISTER.search(e.message)) and m["id"] == name), None)
    states = [(e, new) for e, _, new in job_states(log) if order[id(e)] >= since]
    down = next((e for e, new in states if new == "RESTARTING"), None)
    up = next((e for e, new in reversed(states) if new == "RUNNING"), None)
    restarts = sum(new == "RESTARTING" for _, new in states)
    over = any(new in ("FAILED", "FAILING") for _, new in states)
    delay = entry.seconds_since(transport[0]) if transport else None
    parts = [f"TaskManager {name or '(unnamed)'} {_TEXT[how]}"]
    if pause:
        parts.append(f"its own log is silent for {pause[0]:.1f} s before {pause[1].line[:23]}")
    if delay and delay >= 1:
        parts.append(f"noticed {delay:.1f} s after the first failed connection")
    if back:
        after = back.seconds_since(entry) or 0
        parts.append(f"it registered again after {after:.1f} s, so the process had survived")
    if restarts or over:
        parts.append(f"{restarts} restart(s) of the job" + (", then it failed for good" if over else ""))
    report(
        "; ".join(parts),
        entry.line,
        "TaskManager",
        "critical" if over else "high",
        advice(how) + (advice("again") if restarts > 1 else []),
        taskmanager=name,
        how=how,
        first_seen=entry.time.isoformat(sep=" ") if entry.time else None,
        restarts=restarts,
        down_seconds=up.seconds_since(down) if down and up else None,
        came_back=bool(back),
    )


if __name__ == "__main__":
    main()
