"""Skills inside jars: client and TaskManager find the same in them, and refuse the same."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import AgentsExecutionEnvironment, SourceError
from flink_skills.flink import client_resources
from flink_skills.skill import Limits
from tests.flink.agents import Offerings
from tests.flink.running import collect, failure_of, flink_environment
from tests.flink.skill_files import pack, write_skill

pytestmark = pytest.mark.flink


def jar_of(target: Path, entries: dict[str, bytes | str]) -> Path:
    with zipfile.ZipFile(target, "w") as jar:
        for name, data in entries.items():
            jar.writestr(name, data)
    return target


def skill_text(name: str) -> str:
    return f"---\nname: {name}\ndescription: The skill {name}.\n---\nSay {name}.\n"


def apply(jars: list[Path], names: list[str], tmp_path: Path, **options: str) -> Any:
    env = flink_environment({"skills.store.dir": str(tmp_path / "store"), **options})
    env.add_jars(*(jar.as_uri() for jar in jars))
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.add_skills_from_resources(names)
    events = env.from_collection(["x"], Types.STRING())
    return agents_env, agents_env.from_datastream(events, lambda event: event).apply(Offerings).to_datastream()


@pytest.mark.row("B13", "B19")
@pytest.mark.both_versions
def test_client_and_task_manager_find_the_same_in_real_jars(tmp_path: Path) -> None:
    """With and without entries for folders, in several jars, with a folder around, as a zip, and a single skill."""
    made = tmp_path / "made"
    skills = {name: write_skill(made, name) for name in ("entries", "bare", "wrapped", "twice", "alone", "zipped")}
    other = write_skill(tmp_path / "other", "twice", body="Not the first one.")
    inner = pack(tmp_path / "skills.zip", [skills["zipped"]], below="folder/inside")
    with_zip = tmp_path / "with zip+plus.jar"
    with zipfile.ZipFile(with_zip, "w") as jar:
        jar.write(inner, "conf/skills.zip")
        jar.write(skills["alone"] / "SKILL.md", "conf/alone/SKILL.md")
    jars = [
        pack(tmp_path / "a.jar", [skills["entries"], skills["twice"]], below="skills", directories=True),
        pack(tmp_path / "b.jar", [skills["bare"], other], below="skills"),
        pack(tmp_path / "c.jar", [skills["wrapped"]], below="skills/around/it", directories=True),
        jar_of(tmp_path / "d.jar", {"other/skills/no/SKILL.md": skill_text("no"), "skillsX/no": ""}),
        with_zip,
        jar_of(tmp_path / "empty.jar", {"META-INF/MANIFEST.MF": ""}),
    ]
    agents_env, stream = apply(jars, ["skills", "conf/skills.zip", "conf/alone/"], tmp_path)
    (agent,) = json.loads(agents_env.get_execution_plan())["agents"]
    (record,) = collect(stream)
    assert record["names"] == sorted(skills)
    assert agent["models"]["model"]["effective_skills"] == sorted(skills)
    # The first jar of the class path wins, there and here.
    assert record["bodies"]["twice"].startswith("Say hello.")
    # A path in a conversation is right after a restart: it depends on the content alone.
    assert all(str(tmp_path / "store") in path for path in record["paths"].values())


@pytest.mark.parametrize("hostile", ["skills/../../evil/SKILL.md", "skills/a/./../../../b", "skills/a\\..\\..\\evil"])
def test_a_jar_with_a_hostile_entry_is_refused_at_submit_and_at_open(tmp_path: Path, hostile: str) -> None:
    jar = jar_of(tmp_path / "a.jar", {"skills/good/SKILL.md": skill_text("good"), hostile: "x"})
    with pytest.raises(SourceError, match="resource:skills") as refused:
        apply([jar], ["skills"], tmp_path)
    assert not refused.value.retryable
    _, stream = apply([jar], ["skills"], tmp_path, **{"skills.validate-on-submit": "never"})
    assert failure_of(stream) == str(refused.value)
    assert not list(tmp_path.parent.rglob("evil"))


@pytest.mark.parametrize(
    ("option", "value"),
    [("skills.limits.entries", "2"), ("skills.limits.file", "2 kb"), ("skills.limits.total", "2 kb")],
)
def test_a_jar_that_passes_a_limit_is_refused_at_submit_and_at_open(tmp_path: Path, option: str, value: str) -> None:
    entries = {"skills/a/SKILL.md": skill_text("a"), "skills/a/one": b"1" * 3000, "skills/a/two": b"2"}
    jar = jar_of(tmp_path / "a.jar", {"other": b"3" * 10_000, **entries})
    with pytest.raises(SourceError) as refused:
        apply([jar], ["skills"], tmp_path, **{option: value})
    assert option in str(refused.value)
    assert str(jar) in str(refused.value)
    _, stream = apply([jar], ["skills"], tmp_path, **{option: value, "skills.validate-on-submit": "never"})
    assert option in failure_of(stream)


def test_a_resource_that_no_jar_has_is_said_at_submit(tmp_path: Path) -> None:
    jar = jar_of(tmp_path / "a.jar", {"skill/a/SKILL.md": skill_text("a")})
    with pytest.raises(SourceError, match="resource:skills: the job JAR has no such folder or file"):
        apply([jar], ["skills"], tmp_path)


def test_the_copies_of_a_jar_are_the_same_whatever_its_order(tmp_path: Path) -> None:
    entries = {"skills/b/SKILL.md": "b", "skills/a/SKILL.md": "a", "skills/a/x": "x"}
    one = jar_of(tmp_path / "one.jar", entries)
    two = jar_of(tmp_path / "two.jar", {"skills/": "", **dict(reversed(entries.items()))})
    with client_resources([one, two], ["skills"]) as found:
        first, second = (Path(path).read_bytes() for path in found["skills"])
    assert first == second


def test_damaged_entries_and_files_that_are_no_archives(tmp_path: Path) -> None:
    jar = jar_of(tmp_path / "a.jar", {"skills/a/SKILL.md": skill_text("a")})
    data = jar.read_bytes()
    no_jar = tmp_path / "notes.txt"
    no_jar.write_text("no archive")
    with client_resources([no_jar, tmp_path / "missing.jar", jar], ["skills"]) as found:
        assert len(found["skills"]) == 1
    jar.write_bytes(data.replace(b"Say a.", b"Say b.", 1))
    with pytest.raises(SourceError, match="is damaged"), client_resources([jar], ["skills"]):
        pass
    with (
        pytest.raises(SourceError, match=r"skills\.limits\.entries"),
        client_resources([jar], ["skills"], Limits(entries=0)),
    ):
        pass
