"""``flink-skills waits``: waiting turns in a savepoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flink_skills.cli
from tests.flink.stoppable import DEADLINE, Place, Stoppable
from tests.flink.test_waits_stop import Asker, place, start
from tests.golden.restore import SAVEPOINTS, WAITS, savepoints
from tests.kit.flink_rest import wait_until

pytestmark = pytest.mark.flink

__all__ = ["place", "start"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command in this process: exit code, stdout and stderr."""

    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["flink-skills", "waits", *words])
            code = flink_skills.cli.main()
        return code, *capsys.readouterr()

    return command


@pytest.mark.row("K15")
@pytest.mark.both_versions
def test_each_wait_without_an_answer_is_shown_with_its_question(run: Run) -> None:
    location = str(savepoints(WAITS)[0])
    code, text, _ = run(location)
    assert code == 0
    assert text.splitlines()[-2:] == ["6 turns waiting, 6 waits", "1 answer without a question"]
    assert 'asker "tool" turn 1, approval of refund, ' in text
    code, stdout, _ = run(location, "--format", "json")
    found = {wait["key"]: wait for wait in map(json.loads, stdout.splitlines())}
    assert list(found) == sorted(found, key=lambda key: found[key]["since"])
    assert found["one"]["payload"] == {"item": "coat"}
    assert (found["tool"]["kind"], found["tool"]["arguments"]) == ("approval", {"item": "gloves"})
    assert (found["two"]["name"], found["two"]["deadline"]) == ("legal", None), "the other vote has an answer"
    assert found["nap"]["kind"] == "sleep"
    assert found["nap"]["deadline"] - found["nap"]["since"] == 300_000


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--key", "one"], 0, "1 turn waiting, 1 wait"),
        (["--key", "zero"], 1, "The key 'zero' does not exist in"),
        (["--agent", "askr"], 2, "did you mean 'asker'?"),
    ],
)
def test_one_key_and_mistakes(run: Run, words: list[str], code: int, said: str) -> None:
    ended, stdout, stderr = run(str(savepoints(WAITS)[-1]), *words)
    assert (ended, said in stdout + stderr) == (code, True), stdout + stderr


def test_a_savepoint_of_a_job_that_never_waited(run: Run) -> None:
    assert run(str(savepoints(SAVEPOINTS)[-1]))[:2] == (0, "0 turns waiting, 0 waits\n")


def test_turns_that_others_have_overtaken(run: Run, place: Place, start: Callable[..., Stoppable]) -> None:
    place.send("a1", "a2", "b1")
    options: dict[str, Any] = {"skills.turn.when-waiting": "next", "state.backend.type": "rocksdb"}
    agent = Asker(place)
    agent.session = "event"
    job = start(agent, options=options)
    place.wait_for("first", "a1", "a2", "b1")
    location = job.stop()
    code, stdout, stderr = run(location, "--format", "json")
    assert code == 0, stderr
    waits = [json.loads(line) for line in stdout.splitlines()]
    assert sorted((wait["key"], wait["turn"], wait["name"]) for wait in waits) == [
        ("a", 1, "vote"),
        ("a", 2, "vote"),
        ("b", 1, "vote"),
    ]


def test_a_retained_incremental_checkpoint(
    run: Run, place: Place, start: Callable[..., Stoppable], tmp_path: Path
) -> None:
    place.send("a1", "b1")
    job = start(
        Asker(place),
        options={
            "state.backend.type": "rocksdb",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.dir": (tmp_path / "checkpoints").as_uri(),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        },
    )
    place.wait_for("first", "a1", "b1")

    def newest() -> int:
        return max((int(folder.name[4:]) for folder in tmp_path.glob("checkpoints/*/chk-*")), default=0)

    # The first new checkpoint can have begun before the turns waited.
    end = newest() + 3
    wait_until(lambda: newest() >= end, DEADLINE, "checkpoints of the waiting turns")
    job.close()
    (location,) = tmp_path.glob("checkpoints/*/chk-*/_metadata")
    code, stdout, stderr = run(str(location.parent), "--format", "json")
    assert code == 0, stderr
    assert sorted(json.loads(line)["key"] for line in stdout.splitlines()) == ["a", "b"]
