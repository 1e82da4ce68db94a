"""The spans of a job in a mini cluster, as a viewer has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.testing import ScriptedModelServer
from tests.flink.desk_model import DeskModel, desk_cases, write_desk_skills
from tests.kit.passable import passable_folder
from tests.observability.phoenix import phoenix

pytestmark = [pytest.mark.viewer, pytest.mark.flink]

JOB_SECONDS = 240


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """Those of two turns of one key."""
    model = DeskModel(desk_cases(f"asks-{uuid.uuid4().hex}"))
    with (
        phoenix(tmp_path_factory.mktemp("phoenix")) as viewer,
        passable_folder() as folder,
        ScriptedModelServer(model) as server,
    ):
        write_desk_skills(folder)
        options = {
            "skills.artifacts.dir": (folder / "artifacts").as_uri(),
            "skills.store.dir": str(folder / "store"),
            "skills.trace.exporter": "otlp",
            "skills.trace.content": "full",
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.observability.job", str(folder), server.url, json.dumps(options)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": viewer.url, "OTEL_SERVICE_NAME": "front-desk"},
            timeout=JOB_SECONDS,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert json.loads(done.stdout.splitlines()[-1]) == [2]
        yield viewer.wait_for(2)


def test_each_turn_is_one_tree(spans: list[dict[str, Any]]) -> None:
    by_id = {span["context"]["span_id"]: span for span in spans}
    roots = [span for span in spans if span["parent_id"] is None]
    assert [span["name"] for span in roots] == ["invoke_agent front-desk"] * 2
    assert len({span["context"]["trace_id"] for span in roots}) == 2
    for span in spans:
        if span["parent_id"] is not None:
            parent = by_id[span["parent_id"]]
            assert parent["context"]["trace_id"] == span["context"]["trace_id"]
            assert parent["start_time"] <= span["start_time"]


def test_the_viewer_knows_agents_models_and_tools(spans: list[dict[str, Any]]) -> None:
    kinds = Counter((span["span_kind"], span["name"]) for span in spans)
    assert kinds["AGENT", "invoke_agent front-desk"] == 2
    assert kinds["AGENT", "invoke_agent librarian"] == 1
    assert kinds["LLM", "chat scripted"] >= 12
    for name in ("skill_load", "skill_run", "weigh", "look_up", "skill_exec"):
        assert kinds["TOOL", f"execute_tool {name}"] >= 1, name
    assert not [span["name"] for span in spans if span["status_code"] == "ERROR"]


def test_skills_and_contents_can_be_read(spans: list[dict[str, Any]]) -> None:
    [load] = [span for span in spans if span["name"] == "execute_tool skill_load"]
    assert load["attributes"]["flink_skills.skill.name"] == "ledger"
    assert len(load["attributes"]["flink_skills.skill.digest"]) == 64
    [event] = [event for event in load["events"] if event["attributes"]["flink_skills.skill.action"] == "activate"]
    assert event["attributes"]["flink_skills.skill.digest"] == load["attributes"]["flink_skills.skill.digest"]
    commands = [span for span in spans if span["name"].startswith("command ")]
    skilled = [span["attributes"].get("flink_skills.skill.name") for span in commands]
    assert skilled and set(skilled) <= {"ledger", None}
    weigh = next(span for span in spans if span["name"] == "execute_tool weigh")
    assert "12345" in json.dumps(weigh["attributes"])
    chat = next(span for span in spans if span["name"] == "chat scripted")
    assert "You are the front desk." in json.dumps(chat["attributes"])
