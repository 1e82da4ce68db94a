"""Skills from folders, zips, job jars and URLs: what is added reaches the workers."""

from __future__ import annotations

import http.server
import json
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyflink.common import Types
from pyflink.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment

from flink_skills import AgentsExecutionEnvironment, ConfigError, SkillOptions
from tests.flink.agents import Commander, Scripted
from tests.flink.running import agents_environment, collect, flink_environment
from tests.flink.skill_files import pack, write_skill

pytestmark = pytest.mark.flink

TYPE = Types.ROW_NAMED(["skill", "command"], [Types.STRING(), Types.STRING()])
UNREACHED = "http://127.0.0.1:1/v1"


class Requests(http.server.SimpleHTTPRequestHandler):
    """Serves files and keeps what was asked for."""

    asked: list[str]

    def __init__(self, *args: object, asked: list[str], **rest: object) -> None:
        self.asked = asked
        super().__init__(*args, **rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Keep pytest's output free of an access log."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A web server on loopback: its address, the folder it serves, and the paths that were asked for."""
    asked: list[str] = []
    folder = tmp_path / "web"
    folder.mkdir()
    handler = partial(Requests, asked=asked, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", folder, asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.row("B13", "B1")
@pytest.mark.both_versions
def test_every_kind_of_source_in_one_job(tmp_path: Path, web: tuple[str, Path, list[str]]) -> None:
    address, served, asked = web
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
    pack(served / "web.zip", [skills["web-zip"]])

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
        .add_skills_from_urls([f"{address}/web.zip", (made / "of-file-url").as_uri()])
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
    assert 1 <= asked.count("/web.zip") <= 2


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
    of_nothing = AgentsExecutionEnvironment.get_execution_environment()
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
    env = flink_environment(
        {
            "skills.from.paths": three["one"],
            "skills.from.resources": "packed",
            "skills.from.urls": Path(three["three"]).as_uri(),
            "pipeline.jars": jar.as_uri(),
        }
    )
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = env.from_collection([(name, "cat references/where.txt") for name in three], TYPE)
    output = agents_env.from_datastream(events, "skill").apply(Commander)
    records = collect(output.to_datastream(), output.to_datastream(tag="errors"))
    assert sorted(record.get("stdout", record.get("error")) for record in records) == [
        "this is one\n",
        "this is three\n",
        "this is two\n",
    ]
