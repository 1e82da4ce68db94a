"""What the scripts say to logs that were not recorded: other failures, broken text, no text."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.skills.running import LOGS, NAMES, SKILLS, diagnose, log, run

STAMP = "2026-03-01 03:00:{second:02d},000 {level:<5} org.apache.flink.X [] - {message}"


def lines(*messages: tuple[str, str] | str) -> str:
    """A log with one statement a second; a plain string is a continuation line."""
    text = []
    for second, message in enumerate(messages):
        if isinstance(message, str):
            text.append(message)
        else:
            text.append(STAMP.format(second=second, level=message[0], message=message[1]))
    return "\n".join(text)


CASES: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "memory-diagnosis",
        lines(("INFO", "Container c_1 exited with exit code 137, reason OOMKilled")),
        {"memory": "container memory"},
        "jvm-overhead",
    ),
    (
        "memory-diagnosis",
        lines(("ERROR", "Task failed"), "java.lang.OutOfMemoryError: GC overhead limit exceeded"),
        {"memory": "heap (collector)"},
        "heap",
    ),
    (
        "memory-diagnosis",
        lines(("INFO", "JVM Metaspace:      256.000mb"), ("ERROR", "x"), "java.lang.OutOfMemoryError: Metaspace"),
        {"memory": "metaspace", "configured": "256.000mb"},
        "configured: 256",
    ),
    (
        "memory-diagnosis",
        lines(
            ("WARN", "x"),
            "java.io.IOException: Insufficient number of network buffers: required 9, but only 2",
        ),
        {"memory": "network buffers"},
        "network",
    ),
    (
        "classpath-diagnosis",
        lines(
            ("ERROR", "x"),
            "org.apache.flink.table.api.ValidationException: Could not find any factory for identifier 'kafak' that"
            " implements 'org.apache.flink.table.factories.DynamicTableFactory' in the classpath.",
            "",
            "Available factory identifiers are:",
            "",
            "blackhole",
            "kafka",
            "\tat org.apache.flink.table.factories.FactoryUtil.discoverFactory(FactoryUtil.java:1)",
        ),
        {"missing": "kafak", "known": ["blackhole", "kafka"]},
        "'kafak'",
    ),
    (
        "classpath-diagnosis",
        lines(
            ("ERROR", "x"),
            "java.lang.NoSuchMethodError: 'void com.google.common.base.Preconditions.check(boolean)'",
        ),
        {"severity": "critical"},
        "Two versions",
    ),
    (
        "classpath-diagnosis",
        lines(
            ("ERROR", "x"),
            "java.lang.UnsupportedClassVersionError: com/example/Job has been compiled by a more recent version of the "
            "Java Runtime (class file version 65.0), this version of the Java Runtime only recognizes class file "
            "versions up to 61.0",
        ),
        {"missing": "com/example/Job"},
        "compiled for Java 21, the process runs Java 17",
    ),
    (
        "classpath-diagnosis",
        lines(
            ("ERROR", "x"),
            "java.lang.ClassCastException: class com.example.Order cannot be cast to class com.example.Order "
            "(com.example.Order is in unnamed module of loader 'app')",
        ),
        {"missing": "com.example.Order"},
        "loaded twice",
    ),
    (
        "classpath-diagnosis",
        lines(("ERROR", "x"), "ModuleNotFoundError: No module named 'pandas'"),
        {"missing": "pandas"},
        "Python module pandas",
    ),
    (
        "taskmanager-loss",
        lines(
            ("INFO", "Closing TaskExecutor connection tm-7 because: The TaskExecutor is shutting down."),
            ("INFO", "Job a (0123456789abcdef0123456789abcdef) switched from state RUNNING to RESTARTING."),
            ("INFO", "Job a (0123456789abcdef0123456789abcdef) switched from state RESTARTING to RUNNING."),
        ),
        {"how": "shut down", "taskmanager": "tm-7", "restarts": 1, "down_seconds": 1.0},
        "ended by itself",
    ),
    (
        "taskmanager-loss",
        lines(("INFO", "a"), ("INFO", "b"), ("INFO", "The heartbeat of ResourceManager with id 0af3 timed out.")),
        {"how": "cut off"},
        "lost its connection",
    ),
    (
        "taskmanager-loss",
        lines(
            ("INFO", "Heartbeat of TaskManager with id tm-1 timed out."),
            (
                "INFO",
                "Registering TaskManager with ResourceID tm-1 (pekko.tcp://flink@a:1/x) at ResourceManager",
            ),
        ),
        {"how": "frozen", "came_back": True},
        "registered again after 1.0 s",
    ),
    (
        "checkpoint-diagnosis",
        lines(
            ("INFO", "Triggering checkpoint 7 (type=x) @ 1 for job a."),
            (
                "INFO",
                "Completed checkpoint 7 for job a (10 bytes, checkpointDuration=1500 ms, finalizationTime=1 ms).",
            ),
        ),
        {"severity": "none", "completed": 1, "longest_completed_seconds": 1.5},
        "1 completed, longest 1.50 s",
    ),
    (
        "checkpoint-diagnosis",
        lines(
            ("INFO", "x"),
            "java.lang.IllegalStateException: Failed to rollback to checkpoint/savepoint s3://b/sp. Cannot map "
            "checkpoint/savepoint state for operator 5af3 to the new program",
        ),
        {"component": "checkpoint restore"},
        "cannot start from its restore point",
    ),
    (
        "checkpoint-diagnosis",
        lines(
            (
                "WARN",
                "Failed to trigger or complete checkpoint 4 for job a. (0 consecutive failed attempts so far)",
            ),
            "org.apache.flink.runtime.checkpoint.CheckpointException: Checkpoint Coordinator is suspending.",
        ),
        {"severity": "none", "failed": 0},
        "No checkpoint problem",
    ),
    (
        "log-triage",
        lines(("ERROR", "boom"), "java.lang.NullPointerException", "\tat com.acme.Fn.map(Fn.java:3)"),
        {"component": "user function", "place": "com.acme.Fn.map(Fn.java:3)"},
        "NullPointerException",
    ),
]


@pytest.mark.parametrize(("skill", "text", "fields", "part"), CASES, ids=[f"{c[0]}-{c[3]}" for c in CASES])
def test_other_failures(skill: str, text: str, fields: dict[str, Any], part: str) -> None:
    found = diagnose(skill, text)
    assert {name: found.get(name) for name in fields} == fields
    assert part in found["diagnosis"]


def test_a_misspelt_connector_gets_the_near_name() -> None:
    text = next(case[1] for case in CASES if case[3] == "'kafak'")
    assert "kafka" in diagnose("classpath-diagnosis", text)["next_steps"][0]


@pytest.mark.parametrize("skill", NAMES)
@pytest.mark.parametrize("nothing", [b"", b" \n\t\n", b"{}", b"[]", b"null", b'{"lines": []}', b'{"lines": ["", " "]}'])
def test_no_input_is_an_error_without_a_traceback(skill: str, nothing: bytes) -> None:
    done = run(skill, nothing)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"standard input" in done.stderr and not done.stdout


GARBAGE = {
    "binary": bytes(range(256)) * 40,
    "nested": b"[" * 200_000,
    "numbers": b'{"lines": [1, null, {"a": [2]}], "source": 7, "job": []}',
    "a word": b"hello",
    "one long line": b"Source (1/1) (" * 70_000,
    "odd time": b"2026-99-99 99:99:99,999 ERROR a [] - x",
    "bom and crlf": "\ufeff2026-03-01 03:00:00,000 INFO  a [] - fine\r\nmore\r\n".encode(),
}


@pytest.mark.parametrize("skill", NAMES)
@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_no_incident(skill: str, text: bytes) -> None:
    done = run(skill, text)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    # The one ERROR line with an impossible time is an ERROR all the same.
    expected = "warning" if skill == "log-triage" and b"ERROR" in text else "none"
    assert found["severity"] == expected


@pytest.mark.parametrize("skill", NAMES)
def test_logs_cut_or_shuffled_anywhere(skill: str) -> None:
    chance = random.Random(20260301)
    for source in LOGS:
        text = log(source)
        start = chance.randrange(len(text))
        piece = text[start : start + chance.randrange(1, 9000)].splitlines() or ["x"]
        if chance.random() < 0.5:
            chance.shuffle(piece)
        done = run(skill, json.dumps({"source": source, "lines": piece}).encode())
        assert done.returncode in (0, 2) and b"Traceback" not in done.stderr, (source, start, done.stderr)


@pytest.mark.parametrize("skill", NAMES)
def test_a_long_log(skill: str) -> None:
    text = log("orders-enrichment/jobmanager.log") * 100
    assert diagnose(skill, text)["diagnosis"]


@pytest.mark.parametrize("skill", NAMES)
def test_a_skill_works_alone_and_leaves_nothing_behind(skill: str, tmp_path: Path) -> None:
    folder = tmp_path / skill
    shutil.copytree(SKILLS / skill, folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(folder.rglob("*"))
    done = run(skill, log("page-views/jobmanager.log").encode(), skill_folder=folder)
    assert done.returncode == 0, done.stderr.decode()
    assert sorted(folder.rglob("*")) == before
