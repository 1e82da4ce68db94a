"""Skills from folders, zips, job jars and URLs: what is added reaches the workers."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types
from pyflink.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment

from flink_skills import AgentsExecutionEnvironment, AgentSkill, ConfigError, SkillOptions, SourceError
from flink_skills.flink import client_resources
from flink_skills.skill import Limits
from tests.flink.agents import Commander, Guarded, Offerings, Scripted
from tests.flink.cupboard import InCupboard
from tests.flink.running import agents_environment, collect, environments, failure_of, flink_environment
from tests.flink.skill_files import pack, write_skill
from tests.kit.local import local_environment
from tests.sources.web import Page, Web

pytestmark = pytest.mark.flink

TYPE = Types.ROW_NAMED(["skill", "command"], [Types.STRING(), Types.STRING()])
UNREACHED = "http://127.0.0.1:1/v1"


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


@pytest.mark.row("B13", "B1")
@pytest.mark.both_versions
def test_every_kind_of_source_in_one_job(tmp_path: Path, web: Web) -> None:
    made = tmp_path / "made"
    names = ["folder", "path-zip", "jar-entries", "jar-bare", "jar-zip", "web-zip", "file-url"]
    skills = {name: write_skill(made / f"of-{name}", name) for name in names}
    (made / "of-folder" / "broken").mkdir()
    (made / "of-folder" / "broken" / "SKILL.md").write_text("no front matter at all\n")
    path_zip = pack(tmp_path / "path.zip", [skills["path-zip"]])
    jars = [
        pack(tmp_path / "a.jar", [skills["jar-entries"]], below="skills", directories=True),
        pack(tmp_path / "b.jar", [skills["jar-bare"]], below="more/skills"),
    ]
    inner = pack(tmp_path / "skills.zip", [skills["jar-zip"]], directories=True)
    with zipfile.ZipFile(tmp_path / "c.jar", "w") as jar:
        jar.write(inner, inner.name)
    jars.append(tmp_path / "c.jar")
    web.pages["/web.zip"] = Page(pack(tmp_path / "web.zip", [skills["web-zip"]]).read_bytes())

    env = flink_environment(
        {
            "skills.source.allow-http": "true",
            "skills.source.allow-private": "true",
            "skills.store.dir": str(tmp_path / "store"),
        },
        parallelism=2,
    )
    env.add_jars(*(jar.as_uri() for jar in jars))
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    chained = (
        agents_env.add_skills_from_paths([str(made / "of-folder"), str(path_zip)])
        .add_skills_from_resources(["skills", "more/skills", "skills.zip"])
        .add_skills_from_urls([f"{web.url}/web.zip", (made / "of-file-url").as_uri()])
    )
    assert chained is agents_env
    events = env.from_collection([(name, "cat references/where.txt; echo $SKILL_NAME") for name in names], TYPE)
    output = agents_env.from_datastream(events, "skill").apply(Commander)
    records = collect(output.to_datastream(), output.to_datastream(tag="errors"))
    assert [record for record in records if record.get("error")] == []
    assert {record["skill"]: record["stdout"] for record in records} == {
        name: f"this is {name}\n{name}\n" for name in names
    }
    assert all(record["loaded"] == [record["skill"]] for record in records)
    # The client looked once, and the TaskManager, whose two slots share its worker, once more at the most.
    assert 1 <= web.count("GET") <= 2


def effective(agents_env: AgentsExecutionEnvironment) -> list[str]:
    """The effective skills of the only agent's only model, as the plan names them."""
    (agent,) = json.loads(agents_env.get_execution_plan())["agents"]
    (model,) = agent["models"].values()
    names: list[str] = model["effective_skills"]
    return names


@pytest.fixture
def three(tmp_path: Path) -> dict[str, str]:
    """Folders with a skill each."""
    return {name: str(write_skill(tmp_path / f"of-{name}", name).parent) for name in ("one", "two", "three")}


def apply_to_nothing(agents_env: AgentsExecutionEnvironment) -> AgentsExecutionEnvironment:
    env = agents_env._env
    assert env is not None
    stream = env.from_collection([("a", "b")], TYPE)
    agents_env.from_datastream(stream, "skill").apply(Scripted(UNREACHED))
    return agents_env


@pytest.mark.row("B14", "B3")
def test_options_of_flinks_configuration_are_sources_and_add_appends(three: dict[str, str]) -> None:
    agents_env = agents_environment({"skills.from.paths": f"{three['one']};{three['two']}"})
    assert agents_env.get_config().get(SkillOptions.FROM_PATHS) == (three["one"], three["two"])
    agents_env.add_skills_from_paths(three["three"])
    assert effective(apply_to_nothing(agents_env)) == ["one", "three", "two"]


@pytest.mark.row("B14")
def test_code_wins_over_flinks_configuration_and_add_appends(three: dict[str, str]) -> None:
    agents_env = agents_environment({"skills.from.paths": three["one"]})
    agents_env.get_config().set(SkillOptions.FROM_PATHS, [three["two"]])
    agents_env.add_skills_from_paths([three["three"]])
    assert effective(apply_to_nothing(agents_env)) == ["three", "two"]


@pytest.mark.row("B18")
def test_options_are_those_of_the_environment_below_a_table_environment_or_a_stream() -> None:
    env = flink_environment({"skills.turn.max-steps": "7"})
    t_env = StreamTableEnvironment.create(env)
    of_tables = AgentsExecutionEnvironment.get_execution_environment(t_env=t_env)
    assert of_tables.get_config().get(SkillOptions.TURN_MAX_STEPS) == 7
    of_nothing = local_environment()
    config = of_nothing.get_config().set(SkillOptions.TURN_TIMEOUT, "3 s")
    assert config.get(SkillOptions.TURN_MAX_STEPS) == 50
    of_nothing.from_datastream(env.from_collection([("a", "b")], TYPE), "skill")
    assert config.get(SkillOptions.TURN_MAX_STEPS) == 7
    assert config.get(SkillOptions.TURN_TIMEOUT) == 3.0
    with pytest.raises(ConfigError, match=r"StreamTableEnvironment\.create"):
        settings = EnvironmentSettings.in_streaming_mode()
        AgentsExecutionEnvironment.get_execution_environment(t_env=TableEnvironment.create(settings))


@pytest.mark.row("B3")
def test_sources_of_flinks_configuration_reach_the_workers(three: dict[str, str], tmp_path: Path) -> None:
    jar = pack(tmp_path / "a.jar", [Path(three["two"]) / "two"], below="packed")
    env, agents_env = environments(
        {
            "skills.from.paths": three["one"],
            "skills.from.resources": "packed",
            "skills.from.urls": Path(three["three"]).as_uri(),
            "pipeline.jars": jar.as_uri(),
        }
    )
    events = env.from_collection([(name, "cat references/where.txt") for name in three], TYPE)
    output = agents_env.from_datastream(events, "skill").apply(Commander)
    records = collect(output.to_datastream(), output.to_datastream(tag="errors"))
    assert sorted(record.get("stdout", record.get("error")) for record in records) == [
        "this is one\n",
        "this is three\n",
        "this is two\n",
    ]


def test_pins_and_forms_reach_the_workers(tmp_path: Path) -> None:
    """Mappings with pins: from options as Flink reads them, from code, and by their text."""
    one = pack(tmp_path / "one.zip", [write_skill(tmp_path / "made", "one")])
    pin = hashlib.sha256(one.read_bytes()).hexdigest()
    notes = tmp_path / "notes" / "plain"
    notes.mkdir(parents=True)
    (notes / "SKILL.md").write_text("# Take notes\n\nWrite them down.\n")
    env, agents_env = environments(
        {
            "skills.from.paths": f"[{{path: {one}, sha256: {pin}}}]",
            "skills.store.dir": str(tmp_path / "store"),
        }
    )
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
    env, agents_env = environments()
    agents_env.add_skills_from_urls([f"cupboard://reader:pl4nted@cupboard{tmp_path}/shelf?key=pl4nted"])
    stream = env.from_collection(["x"], Types.STRING())
    output = agents_env.from_datastream(stream, lambda event: event).apply(InCupboard()).to_datastream()
    plan = agents_env.get_execution_plan()
    assert f"cupboard://cupboard{tmp_path}/shelf" in plan
    assert "pl4nted" not in plan
    assert collect(output) == [["from-shelf"]]


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


def test_skills_made_in_code_reach_workers() -> None:
    env, agents_env = environments()
    agents_env.add_skills([AgentSkill("greet", "Says hello."), AgentSkill("part", "Says goodbye.")])
    stream = env.from_collection(["x"], Types.STRING())
    applied = agents_env.from_datastream(stream, lambda event: event).apply(Guarded(""))
    assert collect(applied.to_datastream()) == [["greet", "part"]]
