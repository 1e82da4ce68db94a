"""What the scripts say to logs that were not recorded: other failures, broken text, no text."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cases import read_cases
from tests.skills.running import LOGS, NAMES, SKILLS, diagnose, log, run

CASES = read_cases(__file__, "failures.yaml")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['skill']}-{case['diagnosis']}")
def test_other_failures(case: dict[str, Any]) -> None:
    found = diagnose(case["skill"], case["log"])
    assert {name: found.get(name) for name in case["fields"]} == case["fields"]
    assert case["diagnosis"] in found["diagnosis"]


def test_a_misspelt_connector_gets_the_near_name() -> None:
    text = next(case["log"] for case in CASES if case["diagnosis"] == "'kafak'")
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
