"""Skills from a bucket, a jar and a folder in one job on two TaskManagers: who sees what, and what is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.sources import remove_tree
from tests.flink.buckets import SECRET, CountedBucket, counted_bucket
from tests.flink.skill_files import pack, write_skill
from tests.kit.cluster import StandaloneCluster, wait_until

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
SEEN = {
    "plain": "everything=s3-a+s3-b+jar-a+jar-b,mixed=s3-a+jar-b",
    "folder": "everything=s3-a+s3-b+jar-a+jar-b+dir-a+dir-b,mixed=s3-b+dir-a",
}


@pytest.fixture(autouse=True)
def all_slots_and_no_store(cluster: StandaloneCluster) -> Iterator[None]:
    """Both TaskManagers for this job alone. The store outlives jobs on purpose; here it would be in the way of tests
    that look for what jobs leave."""
    for job in cluster.rest("/jobs")["jobs"]:
        if job["status"] not in ("FINISHED", "CANCELED", "FAILED"):
            cluster.cancel(job["id"], 120)
    wait_until(lambda: free_slots(cluster) == (2, 4), 120, "two TaskManagers with all their slots free")
    yield
    for store in cluster.temporary_dir.glob("*/flink-skills-store-*"):
        remove_tree(str(store))


def free_slots(cluster: StandaloneCluster) -> tuple[int, int]:
    overview = cluster.rest("/overview")
    return overview["taskmanagers"], overview["slots-available"]


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as made:
        yield made


class Job:
    """Submits the job over and over, and reads what it wrote."""

    def __init__(self, cluster: StandaloneCluster, folder: Path, url: str) -> None:
        self._cluster, self._folder, self._url = cluster, folder, url
        made = {name: write_skill(folder / f"made-{name[:-2]}", name) for name in ("jar-a", "jar-b", "dir-a", "dir-b")}
        self._jar = pack(folder / "skills.jar", [made["jar-a"], made["jar-b"]], below="skills")
        self._runs = 0

    def run(self, *options: str) -> str:
        """Run it to its end and check what its agents saw."""
        self._runs += 1
        results, seen = self._folder / f"results-{self._runs}", self._folder / f"seen-{self._runs}"
        seen.mkdir()
        job = self._cluster.submit(
            HERE / "job_sources.py",
            *("--url", self._url, "--jar", str(self._jar), "--folder", str(self._folder / "made-dir")),
            *("--results", str(results), "--seen", str(seen), *options),
            python_files=[HERE / "source_agents.py"],
        )
        self._cluster.wait(job, "FINISHED", 180)
        lines = [line for file in results.glob("*/part-*") for line in file.read_text().splitlines()]
        assert sorted(lines) == sorted(
            f"{agent},e{number},{seen}" for agent, seen in SEEN.items() for number in range(40)
        )
        return job


def test_a_zip_is_fetched_once_by_each_task_manager_and_not_again_after_a_restart(
    cluster: StandaloneCluster, bucket: CountedBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skills = [write_skill(tmp_path / "made", name) for name in ("s3-a", "s3-b")]
    url = bucket.put("all.zip", pack(tmp_path / "all.zip", skills, below="skills").read_bytes())
    monkeypatch.setenv("TEST_SOURCE_OPTIONS", bucket.options)
    job = Job(cluster, tmp_path, url)

    # Two processes for each of two agents on each TaskManager, opened twice because the job fails once.
    first = job.run("--crash", str(tmp_path / "crashed"))
    assert cluster.restarts(first) == 1
    assert bucket.downloads("all.zip") == 2, "one for each TaskManager"
    asked = len(bucket.proxy.requests)
    second = job.run()
    assert bucket.downloads("all.zip") == 2
    assert len(bucket.proxy.requests) > asked, "the server was asked whether it has changed"

    # What the job needs to get in is nowhere to be read.
    for number in cluster.task_managers():
        assert SECRET not in cluster.log(number)
    assert SECRET not in cluster.log()
    for submitted in (first, second):
        for path in ("", "/plan", "/config", "/exceptions", "/jobmanager/config"):
            assert SECRET not in str(cluster.rest(f"/jobs/{submitted}{path}"))
    said = "".join(cluster.log(number) for number in cluster.task_managers())
    assert "agent plain is open: 4 skills from 2 sources (0 failed)" in said
    assert "agent folder is open: 6 skills from 3 sources (0 failed)" in said
    wait_until(lambda: not cluster.worker_pids(), 10, "the agent workers to end with the job")
