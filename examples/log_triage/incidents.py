"""Cuts the recorded logs in `data/` into incidents: one event each, keyed by job, in the order of time.

`python incidents.py` writes `incidents.jsonl` again. An event is

    {"job": "orders-enrichment", "incident": "1-number-format-exception", "flink": "2.3.0",
     "source": "orders-enrichment/jobmanager.log", "lines": [up to 80 consecutive lines]}
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

FLINK_VERSION = "2.3.0"
MAX_LINES = 80
# Lines before the failure that belong to it: what was deployed, which checkpoint was triggered.
CONTEXT_LINES = 15
# Signs further apart than this are two incidents, whatever the job's state says in between.
QUIET = timedelta(seconds=20)

_ENTRY = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (\w+) ")
_THROWN = re.compile(r"^(?:Caused by: |: )?(?:[a-z_][\w$]*\.)+(?P<type>[A-Z][\w$]*(?:Exception|Error|Throwable))\b")
_PYTHON_THROWN = re.compile(r"^(?P<type>[A-Z]\w*(?:Error|Exception))(?::|$)")
_FAILED = re.compile(r"to FAILED\b|timed out\.$|no longer reachable\.$|expired before completing")
_RECOVERED = re.compile(r"switched from state RESTARTING to RUNNING")
_JOB = re.compile(r"[Jj]ob '?(?P<name>[\w.-]+)'? \([0-9a-f]{32}\)")
# The transport complains about a peer that is gone for as long as somebody talks to it; that is no news.
_ECHO = re.compile(r"Association with remote system")


@dataclass(frozen=True)
class Statement:
    """One log statement: the half-open range of its lines."""

    start: int
    end: int
    time: datetime | None
    level: str


@dataclass(frozen=True)
class Incident:
    """A cut: when it began, what it is called after, and its lines."""

    time: datetime
    slug: str
    lines: list[str]


def load_incidents(folder: Path | str = Path(__file__).parent / "data") -> list[dict[str, Any]]:
    """The incidents of all logs in `folder/JOB/PROCESS.log`; those of one job are numbered and in order.

    >>> load_incidents()[0]["job"]
    'click-sessions'
    """
    events = []
    for job_folder in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
        texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(job_folder.glob("*.log"))}
        # A TaskManager's log knows the job by its id only, a client's not even that.
        name = next((match["name"] for text in texts.values() if (match := _JOB.search(text))), job_folder.name)
        found = [(cut, source) for source, text in texts.items() for cut in cut_log(text.splitlines())]
        found.sort(key=lambda item: (item[0].time, item[1]))
        events += [
            {
                "job": name,
                "incident": f"{number}-{cut.slug}",
                "flink": FLINK_VERSION,
                "source": f"{job_folder.name}/{source}",
                "lines": cut.lines,
            }
            for number, (cut, source) in enumerate(found, 1)
        ]
    return events


def cut_log(lines: list[str]) -> list[Incident]:
    """The incidents of one log; a log without any is one incident, named `no-failure`, of its last lines."""
    log = list(statements(lines))
    signs = [n for n, item in enumerate(log) if is_sign(item, lines)]
    if not signs:
        last = next(item for item in log if item.start >= len(lines) - MAX_LINES or item is log[-1])
        return [Incident(last.time or datetime.min, "no-failure", lines[last.start :])]
    cuts = []
    for group in groups(log, signs, lines):
        anchor = next((n for n in group if _FAILED.search(lines[log[n].start])), group[0])
        anchor = next((n for n in group if has_trace(log[n], lines)), anchor)
        after = next((n for n in range(group[-1], len(log)) if _RECOVERED.search(lines[log[n].start])), group[-1])
        # Not in the middle of a statement, and not further back than a few lines before the first sign.
        first = next(n for n in range(len(log)) if log[n].end > log[anchor].start - CONTEXT_LINES)
        start = log[min(max(first, group[0] - 5), anchor)].start
        # A long trace says last what it is about; that line has to be in.
        if thrown := first_chain(log[anchor], lines):
            start = start if thrown[-1] < start + MAX_LINES else max(log[anchor].start, thrown[-1] + 1 - MAX_LINES)
        chosen = lines[start : log[after].end][:MAX_LINES]
        cuts.append(Incident(log[anchor].time or datetime.min, slug(log[anchor], lines), chosen))
    return cuts


def statements(lines: list[str]) -> Iterator[Statement]:
    """The statements of a log; lines before the first time stamp are one without time and level."""
    starts = [n for n, line in enumerate(lines) if n == 0 or _ENTRY.match(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        match = _ENTRY.match(lines[start])
        time = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f") if match else None
        yield Statement(start, end, time, match[2] if match else "")


def has_trace(item: Statement, lines: list[str]) -> bool:
    body = lines[item.start + bool(item.level) : item.end]
    return any(_THROWN.match(line) or _PYTHON_THROWN.match(line) for line in body)


def is_sign(item: Statement, lines: list[str]) -> bool:
    """Whether a statement reports trouble."""
    return item.level in ("WARN", "ERROR", "FATAL") or has_trace(item, lines) or bool(_FAILED.search(lines[item.start]))


def groups(log: list[Statement], signs: list[int], lines: list[str]) -> Iterator[list[int]]:
    """Signs that belong together: until the job runs again, or nothing is said for a while."""
    group: list[int] = []
    for sign in signs:
        echo = log[sign].level == "WARN" and _ECHO.search(lines[log[sign].start]) is not None
        if group:
            between = range(group[-1], sign)
            recovered = any(_RECOVERED.search(lines[log[n].start]) for n in between)
            before, now = log[group[-1]].time, log[sign].time
            silent = before is not None and now is not None and now - before > QUIET
            if echo and (recovered or silent):
                continue
            if recovered or silent:
                yield group
                group = []
        group.append(sign)
    if group:
        yield group


def first_chain(item: Statement, lines: list[str]) -> list[int]:
    """The lines of a statement's first chain of exceptions, the innermost exception last."""
    found: list[int] = []
    for n in range(item.start + bool(item.level), item.end):
        if _THROWN.match(lines[n]):
            if found and not lines[n].startswith(("Caused by: ", ": ")):
                break
            found.append(n)
        elif _PYTHON_THROWN.match(lines[n]):
            # The traceback of a Python worker; what Java adds below only repeats it.
            return [*found, n]
    return found


def slug(item: Statement, lines: list[str]) -> str:
    """The innermost exception of a statement in kebab case, or the first words of its message."""
    if thrown := first_chain(item, lines):
        match = _THROWN.match(lines[thrown[-1]]) or _PYTHON_THROWN.match(lines[thrown[-1]])
        name = match["type"] if match else ""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
    words = re.findall(r"[A-Za-z]+", lines[item.start].partition(" - ")[2])
    return "-".join(words[:5]).lower() or "unknown"


def to_jsonl(events: list[dict[str, Any]]) -> str:
    """One event a line, as `incidents.jsonl` has them."""
    return "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)


if __name__ == "__main__":
    target = Path(__file__).with_name("incidents.jsonl")
    incidents = load_incidents()
    target.write_text(to_jsonl(incidents), encoding="utf-8")
    print(f"{len(incidents)} incidents in {target.name}", file=sys.stderr)
