"""``flink-skills sessions``: what a savepoint and a checkpoint say of the keys of a job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

import flink_skills.cli
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.cluster.planted import rows_below
from tests.cluster.test_job_files import COUNTING, place
from tests.kit.cluster import StandaloneCluster, wait_until

pytestmark = pytest.mark.cluster

DEADLINE = 240

T = TypeVar("T")


class Sessions:
    """The command, in this process: a process with a JVM takes 10 s for each call."""

    def __init__(self, patch: pytest.MonkeyPatch, output: pytest.CaptureFixture[str]) -> None:
        self._patch, self._output = patch, output

    def run(self, *words: str) -> tuple[int, str, str]:
        """Return its exit code and what it wrote to stdout and stderr."""
        self._output.readouterr()
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", ["flink-skills", "sessions", *words])
            code = flink_skills.cli.main()
        return code, *self._output.readouterr()

    def read(self, *words: str) -> dict[str, dict[str, Any]]:
        """Return what it says of each key."""
        code, stdout, stderr = self.run(*words, "--format", "json")
        assert code == 0, stderr
        return {of["key"]: of for of in map(json.loads, stdout.splitlines())}


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sessions:
    return Sessions(monkeypatch, capsys)


def left(cluster: StandaloneCluster, folder: Path, stop: Callable[[str], T], **flink: str) -> T:
    """Runs a job until the order c1 waits for its model, and c2 for c1; then ``stop`` does with it what it does."""
    answers = [Rule(Reply(latency=600), last_user='"c1"'), Rule(Reply("It is done."))]
    with ScriptedModelServer(answers) as server:
        job = yaml.safe_load(COUNTING)
        model = {"clazz": "openai-compatible:scripted", "base_url": server.url}
        job["agent"] = {"name": "counter", "session": "key", "chat_model_setups": {"main": model}}
        for name, value in flink.items():
            job["options" if name.startswith("skills.") else "flink"][name] = value
        file = folder / "job.yaml"
        file.write_text(yaml.safe_dump(job))
        place(folder / "orders", "one.json", "a1", "a2", "b1", "c1", "c2")
        words = ("run", "-d", *cluster.interpreters, "-pym", "flink_skills.job", "--config", str(file))
        id_ = cluster.submitted(cluster.client(*words, deadline=DEADLINE))
        # They can be seen once a checkpoint has them.
        wait_until(lambda: len(rows_below(folder / "turns")) == 3, DEADLINE, "three orders to be answered")
        return stop(id_)


def look(sessions: Sessions, location: str) -> None:
    found = sessions.read(location)
    assert {key: of["turns"] for key, of in found.items()} == {"a": 2, "b": 1, "c": 0}
    (conversation,) = found["a"]["conversations"]
    assert [message["role"] for message in conversation["messages"]] == ["user", "assistant"] * 2
    assert [of["event"]["id"] for of in found["c"]["unfinished"]] == ["c1", "c2"]


@pytest.mark.both_versions
def test_a_savepoint_says_what_an_agent_knew(cluster: StandaloneCluster, tmp_path: Path, sessions: Sessions) -> None:
    location = left(cluster, tmp_path, lambda job: cluster.stop_with_savepoint(job, deadline=DEADLINE))
    look(sessions, location)
    assert list(sessions.read(location, "--key", "a")) == ["a"]
    command = [sys.executable, "-m", "flink_skills.cli", "sessions", location, "--key", "a"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert 'key "a", 2 turns' in told.stdout
    assert '"id": "a2"' in told.stdout
    for words, code, said in [
        ((location, "--key", "z"), 1, "agent counter has no key 'z'"),
        ((location, "--agent", "countr"), 2, "did you mean 'counter'?"),
        ((f"{location}x",), 2, f"{location}x"),
    ]:
        ended, _, stderr = sessions.run(*words)
        assert ended == code, stderr
        assert said in stderr
        assert "Traceback" not in stderr


def test_so_do_files_of_rocksdb_and_state_with_a_time_to_live(
    cluster: StandaloneCluster, tmp_path: Path, sessions: Sessions
) -> None:
    def stop(job: str) -> tuple[str, str]:
        native = cluster.savepoint(job, native=True, deadline=DEADLINE)
        checkpoint = cluster.checkpoints(job)[-1].location
        cluster.cancel(job)
        return native, checkpoint

    options = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "skills.session.ttl": "1 h",
    }
    native, checkpoint = left(cluster, tmp_path, stop, **options)
    look(sessions, native)
    look(sessions, checkpoint)
