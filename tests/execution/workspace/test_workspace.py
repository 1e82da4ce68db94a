from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import WorkspaceManager


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.row("H1")
def test_nothing_is_made_before_it_is_needed(manager: WorkspaceManager) -> None:
    assert not manager.root.exists()
    workspace = manager.for_key("k")
    assert [path.name for path in manager.root.iterdir()] == [".names"]
    workspace.ensure()
    assert mode(workspace.root) == 0o700
    names = {path.name for path in workspace.root.iterdir() if not path.name.startswith(".")}
    assert names == {"skills", "work", "out", "runs", "tmp", "home", "metadata.json"}
    assert workspace.inputs_dir == workspace.root / "work" / "inputs"
    assert workspace.inputs_dir.is_dir()


@pytest.mark.row("H7")
def test_a_key_has_one_workspace_and_its_name_tells_nothing(manager: WorkspaceManager) -> None:
    odd = "../../etc/passwd\0\n/\ud800"
    roots = {manager.for_key(text).root for text in ("a", "b", odd, "x" * 10_000)}
    assert len(roots) == 4
    assert all(root.parent == manager.root and root.name.startswith("ws_") for root in roots)
    assert manager.for_key("a").root == WorkspaceManager(manager.root).for_key("a").root
    first = manager.for_key("a")
    assert manager.for_key("a") is first


def test_nobody_without_the_job_s_secret_can_compute_the_name_of_a_workspace(
    manager: WorkspaceManager, tmp_path: Path
) -> None:
    # A command of another key knows the text of a key and the folder of all workspaces, and may not read there.
    other_job = WorkspaceManager(tmp_path / "other" / "workspaces")
    assert manager.for_key("a").root.name != other_job.for_key("a").root.name
    assert mode(manager.root / ".names") == 0o600
    other_job.close()


def test_workers_that_start_at_the_same_time_agree_on_names(tmp_path: Path) -> None:
    managers = [WorkspaceManager(tmp_path / "job") for _ in range(8)]
    with ThreadPoolExecutor(len(managers)) as pool:
        names = set(pool.map(lambda manager: manager.for_key("a").root.name, managers))
    assert len(names) == 1
    for each in managers:
        each.close()
    assert not (tmp_path / "job").exists()


def test_a_name_file_that_was_changed_is_an_error_and_no_other_workspace(manager: WorkspaceManager) -> None:
    manager.for_key("a").ensure()
    (manager.root / ".names").write_bytes(b"short")
    with pytest.raises(ExecutionError, match=r"\.names was changed while the job ran"):
        WorkspaceManager(manager.root).for_key("a")


def test_relative_root_is_refused_with_the_absolute_one() -> None:
    with pytest.raises(ConfigError, match=str(Path.cwd() / "here")):
        WorkspaceManager("here")


def test_a_foreign_folder_of_that_name_is_refused(manager: WorkspaceManager, tmp_path: Path) -> None:
    workspace = manager.for_key("k")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    workspace.root.symlink_to(elsewhere)
    with pytest.raises(ExecutionError, match="not a folder of this user"):
        workspace.write_event(b"{}")
    assert list(elsewhere.iterdir()) == []


def test_event_is_replaced_at_once(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    assert workspace.write_event(b'{"n": 1}') == workspace.inputs_dir / "event.json"
    seen = (workspace.inputs_dir / "event.json").open("rb")
    workspace.write_event(b'{"n": 2}')
    with seen:
        assert seen.read() == b'{"n": 1}'  # a reader keeps the event that it opened
    assert (workspace.inputs_dir / "event.json").read_bytes() == b'{"n": 2}'
    assert [path.name for path in workspace.inputs_dir.iterdir()] == ["event.json"]


@pytest.mark.row("H3", "A13")
def test_environment_of_a_command(manager: WorkspaceManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    workspace = WorkspaceManager(manager.root).for_key("k")
    env = workspace.env("log-triage", "call-7", workspace.runs_dir / "run_1")
    expected = {
        "WORKSPACE_DIR": workspace.root,
        "SKILLS_DIR": workspace.skills_dir,
        "WORK_DIR": workspace.work_dir,
        "OUTPUT_DIR": workspace.out_dir,
        "RUN_DIR": workspace.runs_dir / "run_1",
        "HOME": workspace.home_dir,
        "TMPDIR": workspace.tmp_dir,
        "SKILL_NAME": "log-triage",
        "FLINK_SKILLS_CALL_ID": "call-7",
    }
    assert {name: env[name] for name in expected} == {name: str(value) for name, value in expected.items()}
    allowed = {*expected, "PATH", "LANG", "LANGUAGE", "TZ"}
    assert [name for name in env if name not in allowed and not name.startswith("LC_")] == []


@pytest.mark.row("H1")
def test_run_folders(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    empty, used = workspace.new_run(), workspace.new_run()
    (used / "log").write_text("x")
    workspace.end_run(empty)
    workspace.end_run(used)
    assert list(workspace.runs_dir.iterdir()) == [used]


def test_folders_above_that_a_command_has_closed_are_opened_again(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    workspace.root.chmod(0)
    manager.root.chmod(0)
    other = manager.for_key("other")
    other.ensure()
    workspace.ensure()
    assert stat.S_IMODE(manager.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(workspace.root.stat().st_mode) == 0o700
