"""Where a job's workspaces are, and what the next job does with what a killed one left."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flink_skills.execution import WorkspaceManager
from flink_skills.execution.workspace import open_workspaces
from flink_skills.options import SkillConfig
from tests.kit.aging import age_workspace

from .conftest import dig


def opened(scratch: Path, agent: str = "agent", **options: object) -> WorkspaceManager:
    config = SkillConfig({f"skills.workspace.{name}": value for name, value in options.items()})
    return open_workspaces(config, agent_id=agent, scratch_dir=str(scratch))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "flink-skills-job1-42"
    folder.mkdir(mode=0o700)
    return folder


def test_in_the_scratch_folder(scratch: Path) -> None:
    manager = opened(scratch)
    other = opened(scratch, "other")
    assert manager.root.parent == other.root.parent == scratch / "workspaces"
    assert manager.root != other.root
    assert manager.for_key("k").root != other.for_key("k").root
    manager.for_key("k").ensure()
    other.for_key("k").ensure()
    manager.close()
    assert [path.name for path in (scratch / "workspaces").iterdir()] == [other.root.name]
    other.close()
    assert list(scratch.iterdir()) == []  # the folder itself is removed by whoever made it


def test_below_the_folder_of_the_option(scratch: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen" / "deeper"
    manager = opened(scratch, dir=str(chosen))
    assert manager.root.parent == chosen / scratch.name / "workspaces"
    manager.for_key("k").ensure()
    assert (chosen / scratch.name).stat().st_mode & 0o077 == 0
    manager.close()
    assert list(chosen.iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_options_arrive(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "table").write_text("a")
    manager = opened(scratch, inputs=str(tmp_path / "table"), ttl="1 ms")
    workspace = manager.for_key("k")
    workspace.ensure()
    assert (workspace.inputs_dir / "table").read_text() == "a"
    workspace.release()
    age_workspace(workspace.root, 60)
    assert manager.sweep() == 1
    manager.close()


_WORKER = """
import sys
from flink_skills.execution.workspace import open_workspaces
from flink_skills.options import SkillConfig
from tests.kit.aging import age_workspace
config = SkillConfig({"skills.workspace.dir": sys.argv[1]})
manager = open_workspaces(config, agent_id="agent", scratch_dir=sys.argv[2])
manager.for_key("k").write_event(b"{}")
print(manager.root, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The folder of a worker that was killed, in which its commands left what is hard to remove."""
    root = _start_worker(tmp_path / "chosen", tmp_path / "flink-skills-killed-1", kill=True)
    work = next(root.glob("ws_*")) / "work"
    dig(work, 2000, "a-name-of-some-length")
    os.mkfifo(work / "pipe")
    (work / "link").symlink_to(tmp_path)
    return root


def _start_worker(chosen: Path, scratch: Path, *, kill: bool) -> Path:
    command = [sys.executable, "-c", _WORKER, str(chosen), str(scratch)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        root = Path(worker.stdout.readline().strip())
        if kill:
            worker.kill()
    return root


def test_the_next_job_removes_what_a_killed_one_left(
    killed: Path, scratch: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert killed.is_dir()
    with caplog.at_level(logging.INFO, "flink_skills.workspace"):
        manager = opened(scratch, dir=str(tmp_path / "chosen"))
    assert list((tmp_path / "chosen").iterdir()) == []
    assert "flink-skills-killed-1" in caplog.text
    manager.for_key("k").ensure()
    manager.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chosen", scratch.name]


def test_a_worker_of_the_same_job_that_was_killed_is_replaced(tmp_path: Path) -> None:
    scratch = tmp_path / "flink-skills-job-1"
    root = _start_worker(tmp_path / "chosen", scratch, kill=True)
    manager = opened(scratch, dir=str(tmp_path / "chosen"))
    assert manager.root == root
    workspace = manager.for_key("k")
    workspace.ensure()
    manager.close()
    assert list((tmp_path / "chosen").iterdir()) == []


def test_jobs_that_live_and_folders_of_others_stay(scratch: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    living = opened(tmp_path / "flink-skills-living-1", dir=str(chosen))
    living.for_key("k").write_event(b"{}")
    dead = opened(tmp_path / "flink-skills-living-1", "another", dir=str(chosen))
    dead.for_key("k").ensure()
    dead_root = dead.root
    del dead  # its locks go with it
    (chosen / "reports" / "workspaces" / "x").mkdir(parents=True)
    (chosen / "flink-skills-link").symlink_to(chosen / "reports")
    (chosen / "flink-skills-file").write_text("x")
    (chosen / "flink-skills-mine").mkdir()
    (chosen / "flink-skills-mine" / "notes").write_text("x")
    manager = opened(scratch, dir=str(chosen))
    manager.for_key("k").ensure()
    assert (living.for_key("k").inputs_dir / "event.json").exists()
    assert not dead_root.exists()
    assert (chosen / "reports" / "workspaces" / "x").is_dir()
    assert (chosen / "flink-skills-mine" / "notes").exists()
    assert (chosen / "flink-skills-file").exists()
    manager.close()
    living.close()


def test_a_folder_that_is_not_there_yet_has_nothing_to_remove(scratch: Path, tmp_path: Path) -> None:
    manager = opened(scratch, dir=str(tmp_path / "not" / "yet"))
    assert not (tmp_path / "not").exists()
    manager.for_key("k").ensure()
    manager.close()
