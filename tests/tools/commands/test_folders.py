"""Examines the internals of tools.commands.folders and tools.runs.prepared_run on purpose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace, WorkspaceManager
from flink_skills.tools import ArgumentError
from flink_skills.tools.commands.folders import resolve_cwd
from flink_skills.tools.runs.prepared_run import Places


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
        with pytest.raises(ExecutionError, match="outside the workspace"):
            resolved(cwd, workspace)
    with pytest.raises(ExecutionError, match=r"cannot be entered|not a folder"):
        resolved("round", workspace)


@pytest.mark.parametrize("cwd", ["nowhere", "x" * 300, "d/" * 3000, "file/below"])
def test_what_cannot_be_entered_is_a_mistake_of_the_model(workspace: Workspace, cwd: str) -> None:
    (workspace.work_dir / "file").write_text("x")
    with pytest.raises(ExecutionError, match=r"cannot be entered .*WORK_DIR"):
        resolved(cwd, workspace)


def test_a_file_is_no_folder(workspace: Workspace) -> None:
    os.mkfifo(workspace.work_dir / "pipe")
    with pytest.raises(ExecutionError, match="is not a folder"):
        resolved("pipe", workspace)


@pytest.mark.skipif(os.geteuid() == 0, reason="root enters every folder")
def test_a_folder_that_a_command_has_closed(workspace: Workspace) -> None:
    (workspace.work_dir / "closed" / "inner").mkdir(parents=True)
    (workspace.work_dir / "closed").chmod(0)
    with pytest.raises(ExecutionError, match=r"cannot be entered \(Permission denied\)"):
        resolved("closed/inner", workspace)


def test_a_link_that_is_replaced_meanwhile_is_a_mistake(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.work_dir / "link").symlink_to(workspace.out_dir)

    def gone(path: object, **_: object) -> str:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    # Between the look at what it is and where it leads.
    monkeypatch.setattr(os, "readlink", gone)
    with pytest.raises(ExecutionError, match="'link' cannot be entered \\(No such file"):
        resolved("link", workspace)
    places = Places(workspace, workspace.work_dir, workspace.runs_dir, workspace.out_dir)
    with pytest.raises(ArgumentError, match="'link' cannot be entered \\(No such file"):
        places.cwd("link")


def test_a_long_chain_of_links_is_a_mistake(workspace: Workspace) -> None:
    (workspace.work_dir / "0").symlink_to(workspace.out_dir)
    for number in range(1, 1_100):
        (workspace.work_dir / str(number)).symlink_to(str(number - 1))
    with pytest.raises(ExecutionError, match="cannot be entered"):
        resolved("1099", workspace)
    places = Places(workspace, workspace.work_dir, workspace.runs_dir, workspace.out_dir)
    with pytest.raises(ArgumentError, match="cannot be entered"):
        places.cwd("1099")
