from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.execution import Workspace, WorkspaceManager
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.commands.folders import resolve_cwd


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    manager = WorkspaceManager(tmp_path / "workspaces")
    workspace = manager.for_key("k")
    workspace.ensure()
    yield workspace
    manager.close()


def resolved(cwd: str, workspace: Workspace) -> Path:
    return resolve_cwd(cwd, workspace, workspace.work_dir, workspace.runs_dir, {})


@pytest.mark.parametrize(
    ("cwd", "meant"),
    [
        ("~", "home"),
        ("$HOME", "home"),
        ("$TMPDIR", "tmp"),
        ("${RUN_DIR}", "runs"),
        ("$WORKSPACE_DIR", "."),
        ("../out", "out"),
        ("inputs", "work/inputs"),
    ],
)
def test_folders_of_the_workspace(workspace: Workspace, cwd: str, meant: str) -> None:
    assert resolved(cwd, workspace) == workspace.root / meant


def test_a_folder_in_the_home_folder(workspace: Workspace) -> None:
    (workspace.home_dir / "data").mkdir()
    assert resolved("~/data", workspace) == workspace.home_dir / "data"


def test_links_are_followed_within_the_workspace_only(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.work_dir / "inside").symlink_to(workspace.out_dir)
    (workspace.work_dir / "outside").symlink_to(tmp_path)
    (workspace.work_dir / "round").symlink_to("round")
    assert resolved("inside", workspace) == workspace.out_dir
    for cwd in ("outside", "inside/../../.."):
        with pytest.raises(ArgumentError, match="outside of the workspace"):
            resolved(cwd, workspace)
    with pytest.raises(ArgumentError, match=r"cannot be entered|not a folder"):
        resolved("round", workspace)


@pytest.mark.parametrize("cwd", ["nowhere", "x" * 300, "d/" * 3000, "file/below"])
def test_what_cannot_be_entered_is_a_mistake_of_the_model(workspace: Workspace, cwd: str) -> None:
    (workspace.work_dir / "file").write_text("x")
    with pytest.raises(ArgumentError, match=r"cannot be entered .*WORK_DIR"):
        resolved(cwd, workspace)


def test_a_file_is_no_folder(workspace: Workspace) -> None:
    os.mkfifo(workspace.work_dir / "pipe")
    with pytest.raises(ArgumentError, match="is not a folder"):
        resolved("pipe", workspace)


@pytest.mark.skipif(os.geteuid() == 0, reason="root enters every folder")
def test_a_folder_that_a_command_has_closed(workspace: Workspace) -> None:
    (workspace.work_dir / "closed" / "inner").mkdir(parents=True)
    (workspace.work_dir / "closed").chmod(0)
    with pytest.raises(ArgumentError, match=r"cannot be entered \(Permission denied\)"):
        resolved("closed/inner", workspace)
