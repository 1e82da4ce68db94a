"""An output table that takes upserts, which no connector of Flink's own distribution does."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.job.checking import check_job
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


def problems(folder: Path, option: str = "") -> list[str]:
    file = folder / "job.yaml"
    file.write_text(JOB.format(jar=connector(), option=option))
    return [check.message for check in check_job(file).checks if check.status == "error"]


def test_an_output_with_a_primary_key_can_be_planned(tmp_path: Path) -> None:
    assert problems(tmp_path) == []


def test_who_asks_for_flinks_check_has_it(tmp_path: Path) -> None:
    found = problems(tmp_path, ", table.exec.sink.require-on-conflict: true")
    import pyflink.version

    if pyflink.version.__version__.startswith("2.2"):
        assert found == [], "this version has no such check"
    else:
        assert any("ON CONFLICT" in problem for problem in found), found
