"""Where a job's workspaces are, and what the next job does with what a killed one left."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flink_skills.execution import WorkspaceManager, remove_tree
from flink_skills.execution.workspace import open_workspaces
from flink_skills.execution.workspace.safe_files import set_aside
from flink_skills.options import SkillConfig
from tests.execution.workspace.conftest import Skill, dig
from tests.kit.aging import age_workspace


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


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_removal_takes_everything_and_follows_no_link(manager: WorkspaceManager, tmp_path: Path, source: Path) -> None:
    outside = tmp_path / "outside-folder"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    outside.chmod(0o555)
    workspace = manager.for_key("k")
    workspace.stage(Skill("s", str(source), "d1"))
    (workspace.work_dir / "link").symlink_to(outside)
    (workspace.work_dir / "dir-link").symlink_to(outside, target_is_directory=True)
    sealed = workspace.work_dir / "sealed" / "inner"
    sealed.mkdir(parents=True)
    (sealed / "file").write_text("x")
    os.mkfifo(sealed / "pipe")
    sealed.chmod(0)
    sealed.parent.chmod(0)
    other = manager.for_key("other")
    other.ensure()
    workspace.remove()
    assert [path.name for path in manager.root.glob("ws_*")] == [other.root.name]
    assert (outside / "kept").read_text() == "kept"
    assert mode(outside) == 0o555
    workspace.remove()
    workspace.ensure()
    assert workspace.work_dir.is_dir()


def test_removal_of_a_tree_deeper_than_the_stack_and_the_descriptors(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    dig(top, 3000, "a-name-of-some-length")  # more than Python recurses, with a path longer than the kernel takes
    remove_tree(top)
    assert list(tmp_path.iterdir()) == []


def test_removing_at_the_same_time(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for key in range(20):
        workspace = WorkspaceManager(root).for_key(str(key))
        workspace.ensure()
        for name in range(20):
            (workspace.work_dir / str(name)).mkdir()
    del workspace
    errors: list[Exception] = []

    def close() -> None:
        try:
            WorkspaceManager(root).close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    WorkspaceManager(root).close()
    assert errors == []
    assert not root.exists()


def test_close_leaves_what_is_not_ours(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    manager = WorkspaceManager(root)
    manager.for_key("k").ensure()
    manager.close()
    assert [path.name for path in root.iterdir()] == ["notes.txt"]


def test_close_takes_workspaces_of_a_crashed_worker(tmp_path: Path) -> None:
    WorkspaceManager(tmp_path / "root").for_key("k").write_event(b"{}")
    WorkspaceManager(tmp_path / "root").close()
    assert not (tmp_path / "root").exists()


def test_close_leaves_what_another_worker_uses(tmp_path: Path) -> None:
    one, two = WorkspaceManager(tmp_path / "root"), WorkspaceManager(tmp_path / "root")
    workspace = two.for_key("k")
    workspace.write_event(b"{}")
    one.for_key("other").ensure()
    one.close()
    assert (workspace.inputs_dir / "event.json").exists()
    two.close()
    assert not (tmp_path / "root").exists()


def test_a_workspace_that_was_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    manager = WorkspaceManager(tmp_path / "root")
    workspace = manager.for_key("k")
    workspace.stage(Skill("s", None, "d1", "Do it."))
    remove_tree(tmp_path / "root")
    workspace.write_event(b"{}")
    assert workspace.writable == tuple(str(workspace.root / name) for name in ("work", "out", "runs", "tmp", "home"))
    assert (workspace.stage(Skill("s", None, "d1", "Do it.")) / "SKILL.md").read_text() == "Do it."
    manager.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folders", [10, pytest.param(100, marks=pytest.mark.nightly)])
def test_a_thousand_files_in_each_of_many_folders(tmp_path: Path, folders: int) -> None:
    manager = WorkspaceManager(tmp_path / "root")
    workspace = manager.for_key("k")
    workspace.ensure()
    for number in range(folders):
        folder = workspace.out_dir / str(number)
        folder.mkdir()
        file = folder / "file"
        file.touch()  # the others are links to it, which are quicker to make
        for name in range(999):
            os.link(file, folder / str(name))
        folder.chmod(0)
    manager.close()
    assert list(tmp_path.iterdir()) == []


def test_files_and_links_in_place_of_a_tree_are_removed_as_such(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    (tmp_path / "link").symlink_to(kept)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "nothing"):
        remove_tree(tmp_path / name)
    assert set_aside(tmp_path / "nothing") is None
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").read_text() == "kept"
