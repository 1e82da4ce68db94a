"""Skills from a bucket, a jar and a folder in one job of a mini cluster: who sees what, and what is fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyflink.common import Types

from flink_skills import AgentsExecutionEnvironment, SkillOptions
from tests.cluster.source_agents import JobSkillsOnly, WithFolder
from tests.flink.buckets import SECRET, CountedBucket, counted_bucket
from tests.flink.running import collect, flink_environment
from tests.flink.skill_files import pack, write_skill

pytestmark = pytest.mark.flink


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as made:
        yield made


@pytest.mark.row("B15", "B13", "B18")
def test_skills_of_a_bucket_a_jar_and_a_folder_by_agent_and_model(tmp_path: Path, bucket: CountedBucket) -> None:
    made = {name: write_skill(tmp_path / f"of-{name[:-2]}", name) for name in ("s3-a", "s3-b", "jar-a", "jar-b")}
    folder = write_skill(tmp_path / "folder", "dir-a").parent
    write_skill(folder, "dir-b")
    jar = pack(tmp_path / "job.jar", [made["jar-a"], made["jar-b"]], below="skills")
    archive = pack(tmp_path / "all.zip", [made["s3-a"], made["s3-b"]], below="skills")
    url = bucket.put("all.zip", archive.read_bytes())

    def run() -> tuple[list[str], dict[str, dict[str, list[str]]]]:
        env = flink_environment(
            {
                "skills.store.dir": str(tmp_path / "store"),
                "skills.source.allow-http": "true",
                "skills.source.allow-private": "true",
                "skills.worker.processes": "2",
            },
            parallelism=2,
        )
        env.add_jars(jar.as_uri())
        agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
        agents_env.add_skills_from_urls([url]).add_skills_from_resources(["skills"])
        agents_env.get_config().set(SkillOptions.SOURCE_OPTIONS, bucket.options)
        events = env.from_collection([("x",), ("y",)], Types.ROW_NAMED(["id"], [Types.STRING()]))
        keyed = agents_env.from_datastream(events, "id")
        outputs = [keyed.apply(agent).to_datastream() for agent in (JobSkillsOnly(), WithFolder(str(folder)))]
        plan = agents_env.get_execution_plan()
        assert SECRET not in plan
        effective = {
            agent["agent"]: {name: model["effective_skills"] for name, model in agent["models"].items()}
            for agent in json.loads(plan)["agents"]
        }
        return sorted(collect(*outputs)), effective

    records, effective = run()
    of_job = ["jar-a", "jar-b", "s3-a", "s3-b"]
    assert effective == {
        "plain": {"everything": of_job, "mixed": ["jar-b", "s3-a"]},
        "folder": {"everything": ["dir-a", "dir-b", *of_job], "mixed": ["dir-a", "s3-b"]},
    }
    assert records == [
        *(f"folder,{e},everything=s3-a+s3-b+jar-a+jar-b+dir-a+dir-b,mixed=s3-b+dir-a" for e in "xy"),
        *(f"plain,{e},everything=s3-a+s3-b+jar-a+jar-b,mixed=s3-a+jar-b" for e in "xy"),
    ]
    # By the client, two agents in two processes and their slots, all on one machine with one store.
    assert bucket.downloads("all.zip") == 1
    asked = len(bucket.proxy.requests)
    assert run() == (records, effective)
    assert bucket.downloads("all.zip") == 1
    assert len(bucket.proxy.requests) > asked, "the server was asked whether it has changed"
