"""Savepoints of this release in earlier ones: they reject the state with a message that names the fix.

``tests/golden/releases`` has a wheel with its jar for each earlier format of the state, see ``CONTRIBUTING.md``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyflink.java_gateway import get_gateway

import flink_skills
import flink_skills.cli
from flink_skills import AgentsExecutionEnvironment
from flink_skills.flink import Savepoint
from tests.golden import rollback
from tests.golden.make import DEADLINE, Sender, golden_environment, stopped
from tests.kit.flink_rest import wait_until

pytestmark = [pytest.mark.flink]

RELEASES = sorted(Path(rollback.__file__).parent.glob("releases/*.whl"))


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint of this release. Its keys have unfinished events and no session."""
    folder = tmp_path_factory.mktemp("rollback")
    with Sender(rollback.EVENTS) as events:
        env = golden_environment()
        agents = AgentsExecutionEnvironment.get_execution_environment(env)
        stream = events.stream(env, ["key", "text"])
        agents.from_datastream(stream, "key").apply(rollback.Held(str(folder / "gate"))).to_datastream().print()
        job = env.execute_async("rollback")
        events.begins.set()
        wait_until(lambda: (folder / "gate.a").exists() and (folder / "gate.b").exists(), DEADLINE, "two turns")
        return stopped(job, folder)


def _restored(release: Path, savepoint: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    gate = folder / "gate"
    gate.touch()
    return subprocess.run(
        [sys.executable, rollback.__file__, str(savepoint), str(gate)],
        # PyFlink's variables are for the processes of this process's JVM.
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYFLINK_")},
            "PYTHONPATH": str(release),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE,
        check=False,
    )


def test_this_release_continues_its_savepoint(savepoint: Path, tmp_path: Path) -> None:
    job = _restored(Path(flink_skills.__file__).parents[1], savepoint, tmp_path)
    outputs = sorted(line for line in job.stdout.splitlines() if line.startswith("output"))
    assert outputs == ["output a held 1", "output a second 2", "output b held 1", "output c new 1"], job.stderr[-3000:]


@pytest.mark.parametrize("wheel", RELEASES, ids=[wheel.stem for wheel in RELEASES])
def test_an_earlier_release_rejects_it_with_the_fix(wheel: Path, savepoint: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "release")
    job = _restored(tmp_path / "release", savepoint, tmp_path)
    assert job.returncode != 0, job.stdout
    assert "Restore with the release that wrote the savepoint" in job.stdout + job.stderr
    # No event is lost: the release has not emitted anything.
    assert "output" not in job.stdout.split()


class _HidesOneFailure:
    """The bridge of a reader. Flink hides the cause of the first failure."""

    def __init__(self, bridge: Any) -> None:
        self._bridge = bridge
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bridge, name)

    def keysIn(self, *arguments: Any) -> Any:
        self.reads += 1
        if self.reads == 1:
            flink = get_gateway().jvm.org.apache.flink
            task = flink.runtime.operators.coordination.TaskNotRunningException("Task is not running")
            flink.util.ExceptionUtils.rethrow(task)
        return self._bridge.keysIn(*arguments)


def test_a_failure_whose_cause_flink_hides_is_tried_again(savepoint: Path) -> None:
    reader = Savepoint(str(savepoint))
    reader._bridge = _HidesOneFailure(reader._bridge)
    assert {state.key for state in reader.keys("held")} == {'"a"', '"b"'}
    assert reader._bridge.reads > 1


def test_an_unknown_format_is_not_read(
    savepoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tmp_path / "later"
    shutil.copytree(savepoint, later)
    metadata = (later / "_metadata").read_bytes()
    # The marker's event: a key, a number of 8 bytes, and one byte with the version.
    marker = rb"(state format \d+.{,4}\0{8}.{,9}?\x00\x00\x00\x01)\x03"
    changed, markers = re.subn(marker, b"\\1\x7f", metadata, flags=re.DOTALL)
    assert markers == 1
    (later / "_metadata").write_bytes(changed)

    def cli(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["flink-skills", *words])
        return flink_skills.cli.main()

    assert cli("sessions", str(savepoint)) == 0
    assert '"a": 0 turns, 2 unfinished' in capsys.readouterr().out
    for command in ("sessions", "waits"):
        assert cli(command, str(later)) == 2
        assert "format version 127, and this release of flink_skills reads versions up to" in capsys.readouterr().err
    job = _restored(Path(flink_skills.__file__).parents[1], later, tmp_path)
    assert job.returncode != 0
    assert "AgentRejectedException: The keyed state of this agent has format version 127" in job.stderr
