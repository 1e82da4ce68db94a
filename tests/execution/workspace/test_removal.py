"""Examines the internals of execution.workspace.removal on purpose."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from flink_skills.execution import WorkspaceManager, remove_tree
from flink_skills.execution.workspace.safe_files import set_aside

from .conftest import Skill, dig


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
