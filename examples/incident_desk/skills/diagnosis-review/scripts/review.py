"""Checks a diagnosis against the log lines of its incident. Reads the event from standard input, prints a verdict."""

from __future__ import annotations

import json
import sys
from typing import Any

SEVERITIES = ("critical", "high", "warning", "none")


def review(event: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict: whether the diagnosis is approved, why, and its severity and text."""
    try:
        found = json.loads(event.get("diagnosis") or "")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return verdict(found={}, problem="there is no diagnosis")
    lines = " ".join(" ".join(event.get("lines") or []).split())
    evidence = " ".join(str(found.get("evidence", "")).split())
    if not evidence or evidence not in lines:
        return verdict(found, "the evidence is not in the log")
    if found.get("severity") not in SEVERITIES:
        return verdict(found, f"the severity is none of {', '.join(SEVERITIES)}")
    if found["severity"] != "none" and not found.get("next_steps"):
        return verdict(found, "there are no next steps")
    return verdict(found)


def verdict(found: dict[str, Any], problem: str = "") -> dict[str, Any]:
    """Return the verdict on a diagnosis, with the problem that rejects it."""
    return {
        "approved": not problem,
        "reason": problem or "the evidence is in the log",
        "severity": str(found.get("severity", "unknown")),
        "diagnosis": str(found.get("diagnosis", "")),
    }


if __name__ == "__main__":
    print(json.dumps(review(json.load(sys.stdin))))
