"""Tells which memory of a Flink process ran out, how large it was, and which option governs it."""

from __future__ import annotations

import re
import sys

# Nothing may be written into a skill's folder while it is in use.
sys.dont_write_bytecode = True

from flink_log import advice, entries, job_states, read_event, report

# Kind of memory, how the failure names it, and the option that governs it; the first that fits decides.
_KINDS = (
    ("metaspace", r"Metaspace", "taskmanager.memory.jvm-metaspace.size"),
    (
        "direct memory",
        r"Direct buffer memory|direct out-of-memory|Cannot reserve \d+ bytes of direct",
        "taskmanager.memory.task.off-heap.size",
    ),
    (
        "native threads",
        r"unable to create (?:new )?native thread",
        "the limits of the host (ulimit -u, pids.max)",
    ),
    (
        "network buffers",
        r"Insufficient number of network buffers",
        "taskmanager.memory.network.fraction / .max",
    ),
    (
        "container memory",
        r"OOMKilled|exit (?:code|status)\D{0,5}137|beyond .*memory limit|Exceeded memory limit"
        r"|Out of memory: Killed process",
        "taskmanager.memory.jvm-overhead.fraction / .max",
    ),
    ("heap (collector)", r"GC overhead limit exceeded", "taskmanager.memory.task.heap.size"),
    (
        "heap",
        r"Java heap space|heap space-related|Requested array size exceeds VM limit",
        "taskmanager.memory.task.heap.size",
    ),
)
# A class name or an option that contains the word is no failure: the kinds count in such lines only.
_SIGN = re.compile(r"OutOfMemoryError|" + "|".join(pattern for kind, pattern, _ in _KINDS if kind != "metaspace"))
# The process goes: a fatal error, or its shutdown hooks at work.
_ENDED = re.compile(
    r"Stopping the process|is shutting down|FATAL|[Ff]atal error|- Shutting down (?:TaskExecutor|BLOB cache)"
)
_SIZES = {
    "heap": r"taskHeapMemory=([\d.]+\w+)|JVM Heap: +([\d.]+\w+)|-Xmx(\d+)",
    "metaspace": r"JVM Metaspace: +([\d.]+\w+)|MaxMetaspaceSize=(\d+)|jvm-metaspace\.size[=,: ]+(\d+\w*)",
    "direct memory": r"MaxDirectMemorySize=(\d+)|taskOffHeapMemory=([\d.]+ ?\w+)",
}
_TASK = re.compile(r"(?:^|- )(\S.*?) \(\d+/\d+\).*to FAILED")
_THREAD = re.compile(r"[Tt]hread '([^']+)'")


def size_in(lines: list[str], kind: str) -> str | None:
    """What the log says about the configured size of this memory, if anything."""
    pattern = _SIZES.get(kind.partition(" (")[0])
    for line in lines if pattern else []:
        if match := re.search(pattern or "", line):
            return next(group for group in match.groups() if group)
    return None


def which(signs: list[str]) -> tuple[str, str, str]:
    """Kind of memory, governing option and evidence; the first line that says which memory it was wins."""
    for line in signs:
        for kind, pattern, option in _KINDS:
            if re.search(pattern, line):
                return kind, option, line
    return "unknown memory", "taskmanager.memory.process.size", signs[0]


def main() -> None:
    event = read_event()
    lines = event["lines"]
    log = entries(lines)
    signs = [line for line in lines if _SIGN.search(line)]
    if not signs:
        report("No sign of exhausted memory in this log.", lines[-1], "none", "none", advice("none"))
        return
    kind, option, evidence = which(signs)
    size = size_in(lines, kind)
    threads = sorted({match[1] for line in lines if (match := _THREAD.search(line))})
    task = next((match[1] for entry in log if (match := _TASK.search(entry.message))), None)
    ended = any(_ENDED.search(line) for line in lines)
    over = any("Recovery is suppressed" in line for line in lines)
    parts = [f"Out of memory: {kind}" + (f" (configured: {size})" if size else "")]
    if task:
        parts.append(f"in task '{task}'")
    if ended:
        parts.append("the process stops because of it, so every job on this TaskManager is hit")
    parts.append(f"governed by {option}")
    report(
        "; ".join(parts),
        evidence,
        f"memory: {kind}",
        "critical" if ended or over else "high",
        advice(kind),
        memory=kind,
        option=option,
        configured=size,
        occurrences=len(signs),
        threads_hit=threads,
        process_ended=ended,
        restarts=sum(new == "RESTARTING" for _, _, new in job_states(log)),
    )


if __name__ == "__main__":
    main()
