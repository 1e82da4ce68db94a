"""The forms in which sources are declared, and kinds of sources that packages bring: they reach the workers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from pyflink.common import Types

from flink_skills import AgentsExecutionEnvironment
from tests.flink.agents import Guarded
from tests.flink.cupboard import InCupboard
from tests.flink.running import collect, flink_environment
from tests.flink.skill_files import pack, write_skill

pytestmark = pytest.mark.flink


def test_pins_and_forms_reach_the_workers(tmp_path: Path) -> None:
    """Mappings with pins: from options as Flink reads them, from code, and by their text."""
    one = pack(tmp_path / "one.zip", [write_skill(tmp_path / "made", "one")])
    pin = hashlib.sha256(one.read_bytes()).hexdigest()
    notes = tmp_path / "notes" / "plain"
    notes.mkdir(parents=True)
    (notes / "SKILL.md").write_text("# Take notes\n\nWrite them down.\n")
    env = flink_environment(
        {
            "skills.from.paths": f"[{{path: {one}, sha256: {pin}}}]",
            "skills.store.dir": str(tmp_path / "store"),
        }
    )
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.add_skills_from_paths({"path": str(notes.parent), "format": "heading"})
    stream = env.from_collection(["x"], Types.STRING())
    output = agents_env.from_datastream(stream, lambda event: event).apply(Guarded("")).to_datastream()
    (agent,) = json.loads(agents_env.get_execution_plan())["agents"]
    assert agent["sources"][0]["paths"] == [f"{one}#sha256={pin}", f"{notes.parent}#format=heading"]
    assert agent["options"]["skills.from.paths"] == [f"{one}#sha256={pin}"]
    (record,) = collect(output)
    assert record == ["one", "plain"]


def test_a_kind_of_source_of_a_third_party_is_declared_as_a_url(tmp_path: Path) -> None:
    write_skill(tmp_path / "shelf", "from-shelf")
    env = flink_environment()
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.add_skills_from_urls([f"cupboard://reader:pl4nted@cupboard{tmp_path}/shelf?key=pl4nted"])
    stream = env.from_collection(["x"], Types.STRING())
    output = agents_env.from_datastream(stream, lambda event: event).apply(InCupboard()).to_datastream()
    plan = agents_env.get_execution_plan()
    assert f"cupboard://cupboard{tmp_path}/shelf" in plan
    assert "pl4nted" not in plan
    assert collect(output) == [["from-shelf"]]
