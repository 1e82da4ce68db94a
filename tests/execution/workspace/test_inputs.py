"""The worker writes to a workspace after commands ran; their files do not redirect or block it.

Examines the internals of execution.workspace.inputs on purpose.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError
from flink_skills.execution import Workspace, WorkspaceManager, remove_tree
from flink_skills.execution.workspace.workspace_inputs import name_inputs

from .conftest import Skill


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "kept").write_text("kept")
    return folder


def _link_to_file(workspace: Workspace, outside: Path) -> None:
    (workspace.inputs_dir / "event.json").unlink()
    (workspace.inputs_dir / "event.json").symlink_to(outside / "kept")


def _pipe(workspace: Workspace, outside: Path) -> None:
    (workspace.inputs_dir / "event.json").unlink()
    os.mkfifo(workspace.inputs_dir / "event.json")


def _folder(workspace: Workspace, outside: Path) -> None:
    (workspace.inputs_dir / "event.json").unlink()
    (workspace.inputs_dir / "event.json" / "inner").mkdir(parents=True)
    (workspace.inputs_dir / "event.json").chmod(0)


def _link_in_place_of(*names: str) -> Callable[[Workspace, Path], None]:
    def plant(workspace: Workspace, outside: Path) -> None:
        remove_tree(workspace.root.joinpath(*names))
        workspace.root.joinpath(*names).symlink_to(outside)

    return plant


def _file_in_place_of_work(workspace: Workspace, outside: Path) -> None:
    remove_tree(workspace.work_dir)
    workspace.work_dir.write_text("a file")


def _pipe_in_place_of_inputs(workspace: Workspace, outside: Path) -> None:
    remove_tree(workspace.inputs_dir)
    os.mkfifo(workspace.inputs_dir)


def _closed(workspace: Workspace, outside: Path) -> None:
    workspace.inputs_dir.chmod(0)
    workspace.work_dir.chmod(0)


def _gone(workspace: Workspace, outside: Path) -> None:
    remove_tree(workspace.work_dir)


@pytest.mark.parametrize(
    "plant",
    [
        _link_to_file,
        _pipe,
        _folder,
        _link_in_place_of("work", "inputs"),
        _link_in_place_of("work"),
        _file_in_place_of_work,
        _pipe_in_place_of_inputs,
        _closed,
        _gone,
    ],
)
def test_the_event_is_written_whatever_a_command_left(
    manager: WorkspaceManager, outside: Path, plant: Callable[[Workspace, Path], None]
) -> None:
    workspace = manager.for_key("k")
    workspace.write_event(b"{}")
    plant(workspace, outside)
    workspace.write_event(b'{"n": 2}')
    event = workspace.inputs_dir / "event.json"
    assert event.resolve() == event
    assert event.read_bytes() == b'{"n": 2}'
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("kept", "kept")]


@pytest.mark.parametrize("name", ["runs", "skills", "out", "tmp", "home"])
def test_other_folders_are_put_right_too(manager: WorkspaceManager, outside: Path, name: str) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    _link_in_place_of(name)(workspace, outside)
    run = workspace.new_run()
    workspace.stage(Skill("s", None, "d1", "Do it."))
    assert (workspace.root / name).resolve() == workspace.root / name
    assert run.parent == workspace.runs_dir
    assert [path.name for path in outside.iterdir()] == ["kept"]


def test_a_run_ends_in_its_own_workspace(manager: WorkspaceManager, outside: Path) -> None:
    workspace = manager.for_key("k")
    run = workspace.new_run()
    _link_in_place_of("runs")(workspace, outside)
    (outside / run.name).mkdir()
    workspace.end_run(run)
    assert (outside / run.name).is_dir()


@pytest.mark.row("H10", "H12")
def test_inputs_of_the_job_are_linked(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "tables.csv").write_text("a,b")
    (tmp_path / "current").symlink_to("tables.csv")
    inputs = (str(outside), str(tmp_path / "current"))
    manager = WorkspaceManager(tmp_path / "root", inputs=inputs)
    workspace = manager.for_key("k")
    workspace.ensure()
    assert (workspace.inputs_dir / "outside" / "kept").read_text() == "kept"
    assert (workspace.inputs_dir / "current").read_text() == "a,b"
    assert {str(outside), str(tmp_path / "tables.csv")} < set(workspace.readable)
    record = json.loads((workspace.root / "metadata.json").read_text())["inputs"][1]
    assert record.pop("ts")
    assert record == {
        "from": f"host://{tmp_path}/current",
        "to": "work/inputs/current",
        "resolved": f"{tmp_path}/tables.csv",
        "version": None,
        "mode": "link",
    }
    manager.close()
    assert (outside / "kept").read_text() == "kept"


def test_inputs_follow_what_is_mounted_anew_and_win_over_what_commands_planted(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "v2").mkdir()
    (tmp_path / "current").symlink_to(outside)
    manager = WorkspaceManager(tmp_path / "root", inputs=(str(tmp_path / "current"),))
    workspace = manager.for_key("k")
    workspace.ensure()
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("v2")
    workspace.ensure()
    assert (workspace.inputs_dir / "current").readlink() == tmp_path / "v2"
    assert str(tmp_path / "v2") in workspace.readable
    assert json.loads((workspace.root / "metadata.json").read_text())["inputs"][0]["resolved"] == f"{tmp_path}/v2"
    (workspace.inputs_dir / "current").unlink()
    (workspace.inputs_dir / "current").mkdir()
    (workspace.inputs_dir / "current" / "forged").write_text("x")
    workspace.ensure()
    assert (workspace.inputs_dir / "current").readlink() == tmp_path / "v2"
    manager.close()


def test_names_of_inputs(tmp_path: Path) -> None:
    paths = []
    for name in ("a/data.csv", "b/data.csv", "c/data.csv", "event.json", ".env", "x/.env", "d/plain", "e/plain"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        paths.append(str(path))
    names = [given.name for given in name_inputs(tuple(paths))]
    assert names == [
        "data.csv",
        "data-2.csv",
        "data-3.csv",
        "event-2.json",
        ".env",
        ".env-2",
        "plain",
        "plain-2",
    ]


@pytest.mark.row("H10")
def test_an_input_that_is_missing_is_said_at_open(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"skills\.workspace\.inputs: '.*/nowhere' does not exist"):
        WorkspaceManager(tmp_path / "root", inputs=(str(tmp_path / "nowhere"),))
