from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.execution import WorkspaceManager

from .conftest import Skill


def read(path: Path) -> dict[str, object]:
    data = json.loads((path / "metadata.json").read_text())
    assert isinstance(data, dict)
    return data


@pytest.mark.row("H12")
def test_a_new_workspace(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    data = read(workspace.root)
    assert data["version"] == 1
    assert data["skills"] == {}
    assert data["inputs"] == data["outputs"] == []
    assert str(data["created_at"]) <= str(data["last_access"])
    assert stat.S_IMODE((workspace.root / "metadata.json").stat().st_mode) == 0o400
    assert [path.name for path in workspace.root.iterdir() if path.name.startswith(".")] == []


@pytest.mark.row("H12")
def test_the_time_of_access_is_that_of_each_use(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    seen = []
    for _ in range(3):
        workspace.write_event(b"{}")
        begun = (workspace.root / "metadata.json").stat().st_mtime_ns
        workspace.release()
        seen += [begun, (workspace.root / "metadata.json").stat().st_mtime_ns]
    assert seen == sorted(set(seen))
    assert read(workspace.root)["created_at"] != ""


def test_it_is_replaced_and_never_written_in_place(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    with (workspace.root / "metadata.json").open() as before:
        workspace.stage(Skill("s", None, "d1", "Do it."))
        assert json.load(before)["skills"] == {}
    assert list(read(workspace.root)["skills"]) == ["s"]  # type: ignore[call-overload]


@pytest.mark.row("H12")
def test_outputs_that_were_noted_stay(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    workspace.release()
    data = read(workspace.root)
    data["outputs"] = [{"globs": ["out/*.txt"], "saved_as": [], "versions": [], "limits_hit": False, "ts": "t"}]
    (workspace.root / "metadata.json").chmod(0o600)
    (workspace.root / "metadata.json").write_text(json.dumps(data))
    workspace.stage(Skill("s", None, "d1", "Do it."))
    assert read(workspace.root)["outputs"] == data["outputs"]
    assert read(workspace.root)["created_at"] == data["created_at"]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _folder(path: Path) -> None:
    path.mkdir()


def _text(text: str) -> Callable[[Path], None]:
    def plant(path: Path) -> None:
        path.write_text(text)

    return plant


@pytest.mark.parametrize(
    "plant",
    [
        _pipe,
        _link,
        _text(""),
        _text("[]"),
        _text('{"version": 2}'),
        _text('{"version": 1, "created_at": "", "updated_at": "", "last_access": "", "skills": {"s": {"digest": 1}}}'),
        _text('{"version": 1, "skills": []}'),
        _text("[" * 100_000),
        _text("\0" * (5 << 20)),
    ],
)
def test_what_is_no_metadata_is_replaced_and_skills_are_staged_anew(
    manager: WorkspaceManager, plant: Callable[[Path], None]
) -> None:
    workspace = manager.for_key("k")
    inode = workspace.stage(Skill("s", None, "d1", "Do it.")).stat().st_ino
    workspace.release()
    (workspace.root / "metadata.json").unlink()
    plant(workspace.root / "metadata.json")
    assert workspace.stage(Skill("s", None, "d1", "Do it.")).stat().st_ino != inode
    assert list(read(workspace.root)["skills"]) == ["s"]  # type: ignore[call-overload]
