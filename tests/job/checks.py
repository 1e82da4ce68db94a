"""Checks of job files for the tests."""

from __future__ import annotations

from pathlib import Path

from flink_skills.job import Check, check_job
from tests.job.files import PLAIN, write_job

__all__ = ["errors", "found"]


def found(folder: Path, text: str = PLAIN, reach: bool = False, **replaced: str) -> dict[str, list[tuple[str, str]]]:
    """Status and message of all checks, by what they are about."""
    noted: list[Check] = []
    report = check_job(write_job(folder, text, **replaced), reach=reach, note=noted.append)
    assert noted == report.checks
    assert report.sound == all(check.status != "error" for check in report.checks)
    by_name: dict[str, list[tuple[str, str]]] = {}
    for check in report.checks:
        by_name.setdefault(check.name, []).append((check.status, check.message.replace(f"{folder}/", "")))
    return by_name


def errors(checks: dict[str, list[tuple[str, str]]]) -> list[str]:
    return [message for of in checks.values() for status, message in of if status == "error"]
