"""Every skill on every recorded log: the expected diagnosis where it fits, and honesty where it does not."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from tests.kit.cases import read_cases
from tests.skills.running import DATA, LOGS, NAMES, diagnose, log

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
    "case", read_cases(__file__, "recorded.yaml"), ids=lambda case: f"{case['skill']}-{case['log']}"
)
def test_diagnosis(case: dict[str, Any]) -> None:
    found = result(case["skill"], case["log"])
    assert (found["component"], found["severity"]) == (case["component"], case["severity"])
    for pattern in case["diagnosis"]:
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
