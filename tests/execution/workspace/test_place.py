"""A file is placed in a workspace whole or not at all, at the requested path, and is recorded.

Examines the internals of execution.workspace.metadata on purpose.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace, WorkspaceManager, remove_tree
from flink_skills.execution.workspace import WorkspacePathError, default_place
from flink_skills.execution.workspace import metadata as workspace_metadata

from .conftest import Skill

RECORD = {"from": "artifact://a.txt", "resolved": "artifact://a.txt@1", "version": "1"}


@pytest.fixture
def workspace(manager: WorkspaceManager) -> Workspace:
    workspace = manager.for_key("k")
    workspace.ensure()
    return workspace


@pytest.fixture
def granted(tmp_path: Path) -> Path:
    """A folder of the machine that a job grants; its path is real."""
    folder = Path(os.path.realpath(tmp_path)) / "granted"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "sub" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    return folder


def metadata(workspace: Workspace) -> dict[str, Any]:
    return dict(json.loads((workspace.root / "metadata.json").read_text()))


def nothing_left(workspace: Workspace) -> bool:
    return not [path.name for path in workspace.root.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("to", "place"),
    [
        ("work/inputs/a.txt", "work/inputs/a.txt"),
        ("inputs/a.txt", "work/inputs/a.txt"),
        ("inputs\\sub\\a.txt", "work/inputs/sub/a.txt"),
        ("./work//x/y/ü z.txt", "work/x/y/ü z.txt"),
        ("work/$(id)", "work/$(id)"),
    ],
)
@pytest.mark.row("F8")
def test_places(workspace: Workspace, to: str, place: str) -> None:
    placed = workspace.place(to, data=b"new", record=RECORD)
    assert (placed.to, placed.path, placed.size_bytes, placed.files) == (place, workspace.root / place, 3, 1)
    assert placed.path.read_bytes() == b"new"
    assert placed.path.stat().st_mode & 0o777 == 0o600
    assert nothing_left(workspace)


@pytest.mark.row("F8")
def test_default_places() -> None:
    assert default_place("reports/a.txt") == "work/inputs/a.txt"
    assert default_place("C:\\reports\\a.txt") == "work/inputs/a.txt"
    assert default_place("/") == default_place("") == "work/inputs/input"


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("out/a", "invalid"),
        ("skills/s/SKILL.md", "invalid"),
        ("/work/a", "invalid"),
        ("work/../out/a", "invalid"),
        ("work", "invalid"),
        ("work/.", "invalid"),
        ("inputs", "invalid"),
        ("inputs/event.json", "taken"),
        ("inputs/event.json/x", "taken"),
        ("", "invalid"),
    ],
)
@pytest.mark.row("F8")
def test_what_is_no_place(workspace: Workspace, to: str, reason: str) -> None:
    with pytest.raises(WorkspacePathError) as refused:
        workspace.place(to, data=b"", record=RECORD)
    assert refused.value.reason == reason


def test_names_of_the_jobs_inputs_are_taken(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    manager = WorkspaceManager(tmp_path / "w", inputs=(str(tmp_path / "conf.d"),))
    workspace = manager.for_key("k")
    assert workspace.input_names == {"event.json", "conf.d"}
    with pytest.raises(WorkspacePathError, match="input of the job"):
        workspace.place("inputs/conf.d", data=b"", record=RECORD)
    workspace.place("work/conf.d", data=b"", record=RECORD)
    assert [entry["to"] for entry in metadata(workspace)["inputs"]] == ["work/inputs/conf.d", "work/conf.d"]
    workspace.release()
    # What the job grants has changed: its record is replaced, what was placed is still known.
    again = WorkspaceManager(tmp_path / "w").for_key("k")
    again.ensure()
    again.place("work/b", data=b"", record=RECORD)
    assert [entry["to"] for entry in metadata(again)["inputs"]] == ["work/conf.d", "work/b"]
    again.release()
    manager.close()


@pytest.mark.row("H12")
def test_what_is_noted(workspace: Workspace) -> None:
    workspace.place("work/a", data=b"1", record=RECORD)
    workspace.place("work/b", data=b"1", record={"from": "event://"})
    workspace.place("work/a", data=b"2", record={**RECORD, "version": "2"})
    b, a = metadata(workspace)["inputs"]
    assert list(a) == ["from", "to", "resolved", "version", "mode", "ts"]
    assert {**a, "ts": ""} == {**RECORD, "to": "work/a", "version": "2", "mode": "copy", "ts": ""}
    assert (b["to"], b["version"], b["mode"]) == ("work/b", None, "copy")
    workspace.note_outputs({"globs": ["out/*"], "saved_as": ["x"], "versions": ["1"], "limits_hit": []})
    [output] = metadata(workspace)["outputs"]
    assert list(output) == ["globs", "saved_as", "versions", "limits_hit", "ts"]
    assert output["ts"] >= a["ts"]


@pytest.mark.row("H12")
def test_records_do_not_pile_up(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_metadata, "_MAX_RECORDS", 8)
    for number in range(12):
        workspace.place(f"work/f{number}", data=b"", record=RECORD)
        workspace.note_outputs({"globs": [str(number)]})
    noted = metadata(workspace)
    assert [entry["to"] for entry in noted["inputs"]] == [f"work/f{number}" for number in range(4, 12)]
    assert [entry["globs"] for entry in noted["outputs"]] == [[str(number)] for number in range(4, 12)]


@pytest.mark.row("F7", "F9")
def test_a_file_of_the_machine(workspace: Workspace, granted: Path) -> None:
    placed = workspace.place("inputs/a", source=granted / "a.txt", record={"from": "host:///a"})
    assert placed.path.read_text() == "a"
    linked = workspace.place("inputs/b", source=granted / "a.txt", mode="link", record={"from": "host:///a"})
    assert (linked.mode, linked.path.is_symlink()) == ("copy", False)
    assert metadata(workspace)["inputs"][-1]["mode"] == "copy"


@pytest.mark.row("F7")
def test_a_folder_of_the_machine(workspace: Workspace, granted: Path) -> None:
    placed = workspace.place("work/data", source=granted, record={"from": f"host://{granted}"})
    assert sorted(path.relative_to(placed.path).as_posix() for path in placed.path.rglob("*")) == [
        "a.txt",
        "sub",
        "sub/run.sh",
    ]
    assert (placed.files, placed.skipped, placed.size_bytes) == (2, 2, 20)
    assert (placed.path / "sub" / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (placed.path / "a.txt").stat().st_mode & 0o777 == 0o600
    assert (placed.path / "sub").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["link", "through/a.txt", "pipe", "none", "a.txt/x", "../granted/a.txt"])
def test_what_of_the_machine_is_refused(workspace: Workspace, granted: Path, name: str) -> None:
    (granted / "through").symlink_to(granted)
    with pytest.raises(WorkspacePathError) as refused:
        workspace.place("work/a", source=granted / name, record={"from": "host:///"})
    assert refused.value.reason in ("no-file", "invalid", "missing")
    assert list(workspace.work_dir.iterdir()) == [workspace.inputs_dir]
    assert nothing_left(workspace)


@pytest.mark.row("F9")
def test_links_inside(workspace: Workspace) -> None:
    (workspace.out_dir / "sub").mkdir()
    (workspace.out_dir / "sub" / "a.txt").write_text("linked")
    placed = workspace.place(
        "work/x/a.txt", source=workspace.out_dir / "sub" / "a.txt", mode="link", record={"from": "workspace://out/a"}
    )
    assert (placed.mode, placed.size_bytes) == ("link", 6)
    assert str(placed.path.readlink()) == "../../out/sub/a.txt"
    assert placed.path.read_text() == "linked"
    (workspace.out_dir / "b.txt").write_text("four")
    (workspace.out_dir / "c.txt").symlink_to("b.txt")
    folder = workspace.place("inputs/f", source=workspace.out_dir, mode="link", record={"from": "workspace://out"})
    assert folder.size_bytes == 10
    assert (folder.path / "sub" / "a.txt").read_text() == "linked"
    with pytest.raises(WorkspacePathError, match="does not exist"):
        workspace.place("work/y", source=workspace.out_dir / "none", mode="link", record={"from": "workspace://"})


@pytest.mark.row("F7")
def test_the_folder_of_a_skill(workspace: Workspace) -> None:
    staged = workspace.stage(Skill("s", None, "d1", "Do it.", {"assets/a.csv": "1", "run.sh": "#!/bin/sh\n"}))
    (staged / ".venv" / "lib").mkdir()
    placed = workspace.place("work/s", source=staged, record={"from": "skill://s"})
    assert sorted(path.relative_to(placed.path).as_posix() for path in placed.path.rglob("*")) == [
        "SKILL.md",
        "assets",
        "assets/a.csv",
        "run.sh",
    ]
    assert (placed.path / "run.sh").stat().st_mode & 0o100
    one = workspace.place("inputs/a.csv", source=staged / "assets" / "a.csv", record={"from": "skill://s/assets/a.csv"})
    assert one.path.read_text() == "1"


def test_what_is_there_is_replaced(workspace: Workspace, granted: Path) -> None:
    workspace.place("work/a", data=b"1", record=RECORD)
    workspace.place("work/a", data=b"22", record=RECORD)
    assert (workspace.work_dir / "a").read_bytes() == b"22"
    (workspace.work_dir / "a").unlink()
    (workspace.work_dir / "a").symlink_to(granted / "a.txt")
    workspace.place("work/a", data=b"333", record=RECORD)
    assert (workspace.work_dir / "a").read_bytes() == b"333"
    assert (granted / "a.txt").read_text() == "a"
    workspace.place("work/data", source=granted, record=RECORD)
    (workspace.work_dir / "data" / "more").touch()
    workspace.place("work/data", source=granted, record=RECORD)
    assert not (workspace.work_dir / "data" / "more").exists()


def test_folders_of_commands_are_not_replaced(workspace: Workspace, granted: Path) -> None:
    (workspace.work_dir / "mine").mkdir()
    (workspace.work_dir / "mine" / "result").write_text("mine")
    (workspace.work_dir / "file").write_text("mine")
    (workspace.work_dir / "link").symlink_to("../out")
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("work/mine", {"data": b"x"}),
        ("work/mine", {"source": granted}),
        ("work/mine", {"source": workspace.work_dir / "file", "mode": "link"}),
        ("work/file/x", {"data": b"x"}),
        ("work/link/x", {"data": b"x"}),
    ]
    for to, what in attempts:
        with pytest.raises(WorkspacePathError) as refused:
            workspace.place(to, record=RECORD, **what)
        assert refused.value.reason == "taken", to
    assert (workspace.work_dir / "mine" / "result").read_text() == "mine"
    assert (workspace.work_dir / "file").read_text() == "mine"
    assert nothing_left(workspace)
    workspace.place("work/mine", data=b"x", record=RECORD, replace=True)
    assert (workspace.work_dir / "mine").read_bytes() == b"x"


def test_limits_of_a_copy(workspace: Workspace, granted: Path) -> None:
    with (granted / "huge").open("wb") as file:
        file.truncate(1 << 40)
    for source in (granted, granted / "huge"):
        with pytest.raises(WorkspacePathError, match="more than 1000000 bytes") as refused:
            workspace.place("work/a", source=source, record=RECORD, max_bytes=1_000_000)
        assert refused.value.reason == "too-large"
    with pytest.raises(WorkspacePathError, match="more than 3 files"):
        workspace.place("work/a", source=granted, record=RECORD, max_files=3)
    assert list(workspace.work_dir.iterdir()) == [workspace.inputs_dir]
    assert nothing_left(workspace)


def test_a_file_that_grows_while_it_is_copied_ends_at_the_limit(workspace: Workspace) -> None:
    growing = workspace.out_dir / "log"
    growing.write_bytes(b"x")
    stop = threading.Event()

    def grow() -> None:
        with growing.open("ab") as file:
            while not stop.is_set() and file.tell() < 1 << 30:
                file.write(bytes(1 << 20))

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with pytest.raises(WorkspacePathError, match="more than 50000000 bytes"):
            while True:  # until it has grown enough
                workspace.place("work/a", source=growing, record=RECORD, max_bytes=50_000_000)
    finally:
        stop.set()
        writer.join()


def test_a_failure_in_the_middle_leaves_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.place("work/a", data=b"before", record=RECORD)

    def fail(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(ExecutionError, match=r"work/a .*No space left"):
        patched.setattr(os, "write", fail)
        workspace.place("work/a", data=b"after", record=RECORD)
    assert (workspace.work_dir / "a").read_bytes() == b"before"
    assert nothing_left(workspace)
    assert len(metadata(workspace)["inputs"]) == 1


def test_either_data_or_a_source(workspace: Workspace) -> None:
    with pytest.raises(ValueError, match="either"):
        workspace.place("work/a", record=RECORD)
    with pytest.raises(ValueError, match="either"):
        workspace.place("work/a", data=b"", source=workspace.out_dir, record=RECORD)


def test_what_commands_do_to_the_folders_on_the_way(workspace: Workspace, tmp_path: Path) -> None:
    """A thread replaces a folder by a link to elsewhere while files are put there: none arrives elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder, aside = workspace.work_dir / "sub", workspace.tmp_dir / "aside"
    folder.mkdir()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            try:
                folder.rename(aside)
                folder.symlink_to(elsewhere)
                folder.unlink()
                aside.rename(folder)
            except OSError:  # the worker has put its own folder there
                remove_tree(aside)
                folder.mkdir(exist_ok=True) if not folder.is_symlink() else folder.unlink(missing_ok=True)

    swapper = threading.Thread(target=swap)
    swapper.start()
    done = tries = 0
    deadline = time.monotonic() + 60
    try:
        while (tries < 400 or not done) and time.monotonic() < deadline:
            tries += 1
            try:
                workspace.place("work/sub/a", data=b"x", record=RECORD)
                done += 1
            except ExecutionError:
                continue
    finally:
        stop.set()
        swapper.join()
    assert done
    assert list(elsewhere.iterdir()) == []
