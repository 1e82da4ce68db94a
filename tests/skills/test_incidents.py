"""The incidents cut from the recorded logs: reproducible, complete, in order, and each finds its skill."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from flink_skills.models import SkillIndex
from tests.skills.running import DATA, EXAMPLE, LOGS, NAMES, SKILLS, diagnose, load_module

module = load_module(EXAMPLE / "incidents.py")
EVENTS: list[dict[str, Any]] = module.load_incidents(DATA)

# The skill for each job; where the processes of one job see different things, by the place in the job's order.
WANTED: dict[str, str | list[str]] = {
    "click-sessions": "taskmanager-loss",
    "geo-lookup": "classpath-diagnosis",
    "inventory-sync": "checkpoint-diagnosis",
    "invoice-totals": "checkpoint-diagnosis",
    "kafka-ingest": "classpath-diagnosis",
    "nightly-backfill": "slot-shortage",
    "orders-enrichment": "log-triage",
    "page-views": "log-triage",
    "payments-fraud-score": "checkpoint-diagnosis",
    "ratings-scoring": "log-triage",
    "rules-engine": ["memory-diagnosis", "taskmanager-loss"],
    "sensor-gateway": "log-triage",
    "session-profiles": ["memory-diagnosis", "taskmanager-loss", "slot-shortage"],
    "thumbnail-cache": "memory-diagnosis",
    "visitor-counts": "taskmanager-loss",
}


def name_of(event: dict[str, Any]) -> str:
    return f"{event['job']}-{event['incident']}"


def wanted(event: dict[str, Any]) -> str:
    skills = WANTED[event["job"]]
    return skills if isinstance(skills, str) else skills[int(event["incident"].split("-")[0]) - 1]


def test_the_file_is_what_the_logs_give() -> None:
    assert (EXAMPLE / "incidents.jsonl").read_text(encoding="utf-8") == module.to_jsonl(EVENTS)


def test_every_log_and_every_job_is_there() -> None:
    assert {event["source"] for event in EVENTS} == set(LOGS)
    assert {event["job"] for event in EVENTS} == set(WANTED)


@pytest.mark.parametrize("event", EVENTS, ids=name_of)
def test_an_event(event: dict[str, Any]) -> None:
    assert list(event) == ["job", "incident", "flink", "source", "lines"]
    assert 1 <= len(event["lines"]) <= 80
    whole = (DATA / event["source"]).read_text(encoding="utf-8").splitlines()
    assert any(whole[n : n + len(event["lines"])] == event["lines"] for n in range(len(whole)))


def test_the_incidents_of_a_job_are_numbered_in_order() -> None:
    for before, after in pairwise(EVENTS):
        number = int(after["incident"].split("-")[0])
        assert number == (int(before["incident"].split("-")[0]) + 1 if before["job"] == after["job"] else 1)
    several = {event["job"] for event in EVENTS if event["incident"].startswith("2-")}
    assert len(several) >= 4


def test_only_the_healthy_job_has_no_failure() -> None:
    assert [e["job"] for e in EVENTS if e["incident"].endswith("no-failure")] == ["page-views"]


@pytest.mark.parametrize("event", EVENTS, ids=name_of)
def test_the_fitting_skill_diagnoses_it(event: dict[str, Any]) -> None:
    found = diagnose(wanted(event), event)
    assert found["evidence"] in {line.strip() for line in event["lines"]}
    assert (found["severity"] == "none") == (event["job"] == "page-views")


def test_the_descriptions_lead_to_the_fitting_skill() -> None:
    menu = []
    for name in NAMES:
        text = (SKILLS / name / "SKILL.md").read_text(encoding="utf-8")
        menu.append((name, yaml.safe_load(text.split("---\n")[1])["description"]))
    for order in (menu, menu[::-1]):
        index = SkillIndex(order)
        chosen = {name_of(event): index.best(json.dumps(event, ensure_ascii=False)) for event in EVENTS}
        assert chosen == {name_of(event): wanted(event) for event in EVENTS}


def test_a_log_that_recovers_in_between_is_two_incidents() -> None:
    state = "Job a (0123456789abcdef0123456789abcdef) switched from state"
    text = [
        "2026-03-01 03:00:00,000 INFO  a [] - start",
        "2026-03-01 03:00:01,000 WARN  a [] - Task failed",
        "java.lang.IllegalStateException: first",
        f"2026-03-01 03:00:02,000 INFO  a [] - {state} RESTARTING to RUNNING.",
        "2026-03-01 03:00:03,000 WARN  a [] - Task failed",
        "java.io.UncheckedIOException: second",
        "Caused by: java.net.SocketTimeoutException: third",
    ]
    cuts = module.cut_log(text)
    assert [cut.slug for cut in cuts] == ["illegal-state-exception", "socket-timeout-exception"]
    assert cuts[0].lines[-1].endswith("to RUNNING.") and cuts[1].lines[-1] == text[-1]


def test_a_long_trace_keeps_its_innermost_exception() -> None:
    frames = [f"\tat com.example.F.f{n}(F.java:{n})" for n in range(200)]
    text = ["2026-03-01 03:00:01,000 ERROR a [] - x", "java.lang.RuntimeException: outer", *frames]
    text.append("Caused by: java.lang.ArithmeticException: / by zero")
    (cut,) = module.cut_log(text)
    assert cut.lines[-1] == text[-1] and len(cut.lines) == 80


def test_a_folder_without_logs_has_no_incidents(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    assert module.load_incidents(tmp_path) == []
