"""Job files for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flink_skills.documents import DocumentError
from flink_skills.job import ReadJob, read_job

PLAIN = """\
name: plain
agent: {name: plain, model: offline}
tables: |
  CREATE TABLE events (id INT, job STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
  CREATE TABLE answers (id INT, answer STRING) WITH ('connector' = 'blackhole');
  CREATE TABLE failures (id INT, error STRING) WITH ('connector' = 'blackhole');
input: {table: events, key: job}
output: {table: answers}
errors: {table: failures}
"""


def write_job(folder: Path, text: str = PLAIN, **replaced: str) -> Path:
    """A job file; each of ``replaced`` is a top-level key with what stands there instead (empty: nothing)."""
    for key, value in replaced.items():
        lines = text.splitlines(keepends=True)
        start = next((n for n, line in enumerate(lines) if line.startswith(f"{key}:")), len(lines))
        end = next((n for n in range(start + 1, len(lines)) if not lines[n].startswith(" ")), len(lines))
        text = "".join((*lines[:start], f"{key}: {value}\n" if value else "", *lines[end:]))
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def read(folder: Path, text: str = PLAIN, *assignments: str, **replaced: str) -> ReadJob:
    return read_job(write_job(folder, text, **replaced), assignments)


def problems_of(folder: Path, text: str = PLAIN, *assignments: str, **replaced: str) -> list[str]:
    """What is wrong with a job file: each problem without the folder's path."""
    try:
        read(folder, text, *assignments, **replaced)
    except DocumentError as error:
        return [str(problem).replace(f"{folder}/", "") for problem in error.problems]
    return []


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows that a job wrote as JSON files below a folder."""
    return [
        json.loads(line)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith((".", "_"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
