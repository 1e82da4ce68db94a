"""An output table that takes upserts, which no connector of Flink's own distribution does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyflink.version
import pytest

from tests.faults.jars import connector

pytestmark = pytest.mark.flink

JOB = """\
name: upserting
jars: ['{jar}']
flink: {{execution.checkpointing.interval: 10 s{option}}}
options: {{skills.shell.enabled: false}}
agent: {{name: clerk, model: offline}}
tables: |
  CREATE TABLE orders (id STRING, customer STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '5');
  CREATE TABLE last (customer STRING, answer STRING, PRIMARY KEY (customer) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'last', 'properties.bootstrap.servers' = '127.0.0.1:1',
    'key.format' = 'json', 'value.format' = 'json');
input: {{table: orders, key: customer}}
output: {{table: last}}
"""


def checked(folder: Path, option: str = "") -> subprocess.CompletedProcess[str]:
    """In a process of its own: a JVM that has the connector once has it for all tests that follow."""
    file = folder / "job.yaml"
    file.write_text(JOB.format(jar=connector(), option=option))
    words = [sys.executable, "-m", "flink_skills.cli", "run", str(file), "--check"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)


def test_an_output_with_a_primary_key_can_be_planned(tmp_path: Path) -> None:
    done = checked(tmp_path)
    assert done.returncode == 0, done


def test_who_asks_for_flinks_check_has_it(tmp_path: Path) -> None:
    done = checked(tmp_path, ", table.exec.sink.require-on-conflict: true")
    if pyflink.version.__version__.startswith("2.2"):
        assert done.returncode == 0, "this version has no such check"
    else:
        assert done.returncode != 0
        assert "ON CONFLICT" in done.stdout + done.stderr
