"""Reads an incident from standard input and takes a Flink log apart: entries, exception chains, job states.

Each skill has a copy of ``skills/flink_log.py``, so that its folder works on its own. ``make skills`` writes copies.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

_ENTRY = re.compile(
    r"^(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{3})?)\S*\s+(?:\[[^\]]*\]\s+)?"
    r"(?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s+(?P<logger>\S+)\s*(?:\[[^\]]*\])?\s*-?\s?(?P<message>.*)$"
)
_THROWABLE = re.compile(
    r"^\s*(?:Caused by: |: )?"
    r"(?P<type>(?:[A-Za-z_$][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error|Throwable|Failure)[\w$]*)"
    r"(?:: (?P<message>.*))?$"
)
_PYTHON_ERROR = re.compile(
    r"^(?P<type>(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|StopIteration))(?:: (?P<message>.*))?$"
)
_PYTHON_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_FRAME = re.compile(r"^\s+at (?P<place>[\w.$/<>@-]+\((?P<source>[^)]*)\))")
_JOB_STATE = re.compile(r"Job .+? \([0-9a-f]{32}\) switched from state (?P<old>\w+) to (?P<new>\w+)")
# Java, Flink and what Flink is built on: a frame outside is the user's own code or a library of the job.
_PLATFORM = re.compile(
    r"^(?:[\w.]+/)?(?:java|javax|jdk|sun|com\.sun|scala|akka|org\.apache\.(?:flink|pekko|beam|calcite))\."
    r"|/(?:pyflink|apache_beam|cloudpickle|py4j)/|\(<frozen "
)
_MAX_LINE = 4000  # longer ones are cut, so that patterns stay fast on any text


@dataclass
class Entry:
    """One log statement with the lines that belong to it (a stack trace, a table)."""

    line: str
    level: str = ""
    logger: str = ""
    message: str = ""
    time: datetime | None = None
    details: list[str] = field(default_factory=list)

    def seconds_since(self, earlier: Entry) -> float | None:
        """Seconds from an earlier entry to this one, or None where a time stamp is missing."""
        return (self.time - earlier.time).total_seconds() if self.time and earlier.time else None


@dataclass
class Failure:
    """One exception of a chain; `frames` are the code places, the innermost first."""

    type: str
    message: str
    line: str
    frames: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        message = self.message if len(self.message) <= 240 else self.message[:240] + " …"
        return self.type.rsplit(".", 1)[-1] + (f": {message}" if message else "")

    def user_frame(self) -> str | None:
        """The innermost frame that is neither Java's nor Flink's nor of a library Flink is built on."""
        return next((frame for frame in self.frames if not _PLATFORM.search(frame)), None)


def read_event() -> dict[str, Any]:
    """The incident on standard input: JSON with the lines of a log, or plain text. Exits with 2 when empty."""
    text = sys.stdin.buffer.read().decode("utf-8", errors="replace").lstrip("\ufeff")
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = text
    if not isinstance(event, dict):
        event = {"lines": event}
    found = next((event[name] for name in ("lines", "log", "text", "message") if event.get(name)), "")
    parts = found if isinstance(found, list) else [found]
    lines = [line[:_MAX_LINE] for part in parts for line in str(part).splitlines()]
    if not any(line.strip() for line in lines):
        print("No input: pass one incident (JSON) or a log on standard input.", file=sys.stderr)
        raise SystemExit(2)
    return {"source": str(event.get("source") or ""), "lines": lines}


def entries(lines: list[str]) -> list[Entry]:
    """Return the log statements of `lines`. Lines before the first one form an entry without a level."""
    found: list[Entry] = []
    for line in lines:
        match = _ENTRY.match(line)
        if match:
            time = None
            with suppress(ValueError):  # the 31st of February is garbage, and no reason to stop
                time = datetime.fromisoformat(match["time"].replace(",", "."))
            found.append(Entry(line, match["level"], match["logger"], match["message"].strip(), time))
        elif found:
            found[-1].details.append(line)
        else:
            found.append(Entry(line, message=line.strip()))
    return found


def chain(entry: Entry) -> list[Failure]:
    """Return the exceptions under one entry, outermost first. A Python traceback is the innermost one."""
    failures: list[Failure] = []
    python_frames: list[str] = []
    for line in ([] if entry.level else [entry.line]) + entry.details:
        if match := _PYTHON_FRAME.match(line):
            python_frames.append(f"{match['function']}({match['file']}:{match['line']})")
        elif match := _THROWABLE.match(line) or (_PYTHON_ERROR.match(line) if python_frames else None):
            failures.append(Failure(match["type"], match["message"] or "", line.strip(), python_frames[::-1]))
            python_frames = []
        elif failures and (match := _FRAME.match(line)):
            failures[-1].frames.append(match["place"])
    return failures


def job_states(log: list[Entry]) -> list[tuple[Entry, str, str]]:
    """Every change of a job's state: the entry, the old and the new state."""
    return [(entry, m["old"], m["new"]) for entry in log if (m := _JOB_STATE.search(entry.message))]


def advice(kind: str, **values: Any) -> list[str]:
    """The next steps for a kind of failure, from `assets/next_steps.json`, with `values` filled in."""
    steps = json.loads((Path(__file__).parent.parent / "assets" / "next_steps.json").read_text(encoding="utf-8"))
    return [step.format(**values) for step in steps[kind]]


def report(diagnosis: str, evidence: str, component: str, severity: str, next_steps: list[str], **more: Any) -> None:
    """Writes the result, one JSON object, to standard output."""
    result = {
        "diagnosis": diagnosis,
        "evidence": evidence.strip(),
        "component": component,
        "severity": severity,
    }
    extra = {name: value for name, value in more.items() if value not in (None, [], "")}
    print(json.dumps({**result, "next_steps": next_steps, **extra}, ensure_ascii=False, indent=2))
