"""Every skill on every recorded log: the expected diagnosis where it fits, and honesty where it does not."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from tests.skills.running import DATA, LOGS, NAMES, diagnose, log

# Skill, log, component, severity, and patterns that the diagnosis has to contain.
EXPECTED = [
    (
        "log-triage",
        "orders-enrichment/jobmanager.log",
        "user function",
        "critical",
        [
            r"^NumberFormatException: Character ,",
            r"OrdersEnrichment\$ParseOrder\.map\(OrdersEnrichment\.java:17\)",
            r"Cannot parse the amount of order A-399: '12,50 EUR'",
            r"2 restart\(s\).*failed for good",
        ],
    ),
    (
        "log-triage",
        "ratings-scoring/jobmanager.log",
        "user function",
        "critical",
        [r"^KeyError: 'weight'", r"score\(/opt/jobs/ratings_scoring\.py:13\)"],
    ),
    (
        "log-triage",
        "sensor-gateway/jobmanager.log",
        "external system",
        "critical",
        [r"ConnectException: Connection refused", r"SensorGateway\.java:24", r"2 restart\(s\)"],
    ),
    ("log-triage", "page-views/jobmanager.log", "none", "none", [r"No incident", r"FINISHED"]),
    ("log-triage", "thumbnail-cache/jobmanager.log", "memory", "critical", [r"OutOfMemoryError"]),
    ("log-triage", "geo-lookup/taskmanager-1.log", "class path", "high", [r"ClassNotFoundException"]),
    ("log-triage", "nightly-backfill/jobmanager.log", "slots", "critical", [r"NoResourceAvailable"]),
    (
        "checkpoint-diagnosis",
        "payments-fraud-score/jobmanager.log",
        "checkpointing (alignment or slow snapshot)",
        "critical",
        [r"Checkpoint 1 timed out after 5\.0 s", r"more failed in a row than tolerated"],
    ),
    (
        "checkpoint-diagnosis",
        "inventory-sync/jobmanager.log",
        "checkpoint storage",
        "critical",
        [r"refuses writes, checkpoint\(s\) 3, 4", r"FileAlreadyExistsException"],
    ),
    (
        "checkpoint-diagnosis",
        "invoice-totals/jobmanager.log",
        "checkpoint restore",
        "critical",
        [r"cannot start from its restore point", r"savepoint-4f2a11-0c9d7e5b8a31"],
    ),
    (
        "checkpoint-diagnosis",
        "page-views/jobmanager.log",
        "none",
        "none",
        [r"\d+ completed, longest 0\.\d+ s"],
    ),
    (
        "memory-diagnosis",
        "session-profiles/taskmanager-1.log",
        "memory: heap",
        "critical",
        [r"Out of memory: heap", r"collect-events", r"process stops", r"task\.heap\.size"],
    ),
    (
        "memory-diagnosis",
        "rules-engine/taskmanager-1.log",
        "memory: metaspace",
        "critical",
        [r"Out of memory: metaspace", r"jvm-metaspace\.size"],
    ),
    (
        "memory-diagnosis",
        "thumbnail-cache/jobmanager.log",
        "memory: direct memory",
        "critical",
        [r"direct memory", r"cache-thumbnail", r"task\.off-heap\.size"],
    ),
    (
        "taskmanager-loss",
        "click-sessions/jobmanager.log",
        "TaskManager",
        "high",
        [r"TaskManager taskmanager-2 lost", r"restart\(s\)"],
    ),
    (
        "taskmanager-loss",
        "visitor-counts/jobmanager.log",
        "TaskManager",
        "high",
        [r"TaskManager taskmanager-2 silent until its heartbeat timed out"],
    ),
    (
        "taskmanager-loss",
        "visitor-counts/taskmanager-2.log",
        "TaskManager",
        "high",
        [r"silent until its heartbeat timed out", r"its own log is silent for \d\.\d s"],
    ),
    (
        "taskmanager-loss",
        "session-profiles/jobmanager.log",
        "TaskManager",
        "high",
        [r"TaskManager taskmanager-1 lost", r"1[0-9]\.\d s after the first failed connection"],
    ),
    (
        "slot-shortage",
        "nightly-backfill/jobmanager.log",
        "slots",
        "critical",
        [r"needs 8, the cluster gave 2 \(6 missing\)", r"failed for good"],
    ),
    (
        "slot-shortage",
        "session-profiles/jobmanager.log",
        "slots",
        "high",
        [r"needs 1, the cluster gave 0", r"a TaskManager went away before"],
    ),
    (
        "classpath-diagnosis",
        "geo-lookup/taskmanager-1.log",
        "class path",
        "critical",
        [
            r"Class com\.example\.geo\.RegionIndex is missing",
            r"GeoLookup\$ToRegion\.map\(GeoLookup\.java:15\)",
        ],
    ),
    (
        "classpath-diagnosis",
        "kafka-ingest/client.log",
        "class path",
        "critical",
        [r"No factory for 'kafka'", r"kafka_ingest\.py:\d+"],
    ),
]
# Where a skill has nothing to say although the log is not healthy: one pair for each skill.
SILENT = [
    ("checkpoint-diagnosis", "kafka-ingest/client.log"),
    ("memory-diagnosis", "orders-enrichment/jobmanager.log"),
    ("taskmanager-loss", "orders-enrichment/jobmanager.log"),
    ("slot-shortage", "click-sessions/jobmanager.log"),
    ("classpath-diagnosis", "sensor-gateway/jobmanager.log"),
]


@cache
def result(skill: str, source: str) -> dict[str, Any]:
    return diagnose(skill, {"job": "j", "source": source, "lines": log(source).splitlines()})


@pytest.mark.parametrize(
    ("skill", "source", "component", "severity", "patterns"),
    EXPECTED,
    ids=[f"{e[0]}-{e[1]}" for e in EXPECTED],
)
def test_diagnosis(skill: str, source: str, component: str, severity: str, patterns: list[str]) -> None:
    found = result(skill, source)
    assert (found["component"], found["severity"]) == (component, severity)
    for pattern in patterns:
        assert re.search(pattern, found["diagnosis"]), found["diagnosis"]


@pytest.mark.parametrize("source", LOGS)
@pytest.mark.parametrize("skill", NAMES)
def test_evidence_is_a_line_of_the_log(skill: str, source: str) -> None:
    found = result(skill, source)
    assert found["evidence"] in {line.strip() for line in log(source).splitlines()}
    assert found["severity"] in {"critical", "high", "warning", "none"}
    assert found["next_steps"] and all(isinstance(step, str) and step for step in found["next_steps"])
    # A placeholder that was not filled in.
    assert not any("{" in step or "None" in step for step in found["next_steps"])


@pytest.mark.parametrize("skill", NAMES)
def test_a_healthy_job_has_no_incident(skill: str) -> None:
    assert result(skill, "page-views/jobmanager.log")["severity"] == "none"


@pytest.mark.parametrize(("skill", "source"), SILENT)
def test_a_skill_does_not_invent(skill: str, source: str) -> None:
    assert result(skill, source)["severity"] == "none"


@pytest.mark.parametrize("skill", NAMES)
def test_plain_text_gives_the_same_as_an_event(skill: str) -> None:
    source = "session-profiles/jobmanager.log"
    assert diagnose(skill, log(source)) == result(skill, source)


def test_every_log_has_a_skill_that_diagnoses_it() -> None:
    failed = [source for source in LOGS if source != "page-views/jobmanager.log"]
    assert failed
    for source in failed:
        assert any(result(skill, source)["severity"] != "none" for skill in NAMES), source


def test_triage_hands_over_to_a_skill_that_exists() -> None:
    named = {result("log-triage", source).get("see_skill") for source in LOGS} - {None}
    assert len(named) == len(NAMES) - 1
    assert named < set(NAMES)


@pytest.mark.parametrize("source", LOGS)
def test_a_log_is_short_and_neutral(source: str) -> None:
    text = log(source)
    assert len(text.splitlines()) <= 400
    assert (DATA / source).stat().st_size <= 60_000
    for name in (
        r"(?<![\w-])/tmp/",
        r"/home/",
        r"/root",
        r"/Users/",
        r"site-packages/(?!pyflink|py4j|apache_beam)",
    ):
        assert not re.search(name, text), name


def test_counts_of_checkpoints() -> None:
    found = result("checkpoint-diagnosis", "payments-fraud-score/jobmanager.log")
    text = log("payments-fraud-score/jobmanager.log")
    assert found["failed"] == text.count("expired before completing.\n") - text.count(
        "CheckpointException: Checkpoint expired before completing.\n"
    )
    assert found["failed_after_seconds"] == pytest.approx(5.0, abs=0.2)
    assert found["restarts"] == text.count("switched from state RUNNING to RESTARTING")


def test_known_connectors_are_listed() -> None:
    known = result("classpath-diagnosis", "kafka-ingest/client.log")["known"]
    assert {"datagen", "filesystem"} <= set(known)
    assert json.dumps(known).count("org.") == 0
