from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import Workspace, WorkspaceManager, remove_tree
from flink_skills.execution.workspace import folder_name
from flink_skills.execution.workspace.workspace_inputs import name_inputs
from flink_skills.manager import AgentSkillManager
from tests.execution.workspace.conftest import LARGE, Skill, dig


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.row("H4", "H2")
def test_staged_copy_is_read_only_and_complete(manager: WorkspaceManager, source: Path, tmp_path: Path) -> None:
    copy = manager.for_key("k").stage(Skill("log-triage", str(source), "d1"))
    assert copy == manager.for_key("k").skills_dir / "log-triage"
    assert (copy / "SKILL.md").read_text() == "Do it."
    assert mode(copy) == mode(copy / "scripts") == 0o500
    assert mode(copy / "SKILL.md") == 0o400
    assert mode(copy / "scripts" / "run.sh") == 0o500
    assert (copy / "scripts" / "again.sh").readlink() == Path("run.sh")
    for name in ("escape", "absolute", "dangling", ".git", "pipe"):
        assert not os.path.lexists(copy / name), name
    links = {name: (copy / name).resolve() for name in ("out", "work", "inputs")}
    workspace = manager.for_key("k")
    assert links == {"out": workspace.out_dir, "work": workspace.work_dir, "inputs": workspace.inputs_dir}


@pytest.mark.row("H2")
def test_entries_of_the_skill_win_over_links(manager: WorkspaceManager, source: Path) -> None:
    (source / "out").mkdir()
    (source / "out" / "template.txt").write_text("t")
    copy = manager.for_key("k").stage(Skill("s", str(source), "d1"))
    assert not (copy / "out").is_symlink()
    assert (copy / "out" / "template.txt").read_text() == "t"


def test_generated_files_tests_and_proofs_are_not_staged(manager: WorkspaceManager, source: Path) -> None:
    excluded = ("scripts/__pycache__/a.pyc", "node_modules/b/c.js", "env/pyvenv.cfg", "scripts/.a.swp")
    for path in (*excluded, "evals/evals.json", "skill.oms.sig", "LICENSE"):
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text("x")
    (source / "tool").symlink_to("node_modules/b/c.js")
    (source / "answers").symlink_to("evals/evals.json")
    copy = manager.for_key("k").stage(Skill("s", str(source), "d1"))
    assert (copy / "scripts" / "run.sh").exists()
    assert (copy / "LICENSE").exists()
    names = (
        "scripts/__pycache__",
        "node_modules",
        "env",
        "scripts/.a.swp",
        "tool",
        "evals",
        "skill.oms.sig",
        "answers",
    )
    for name in names:
        assert not os.path.lexists(copy / name), name


@pytest.mark.row("H5")
def test_staged_once_per_digest(manager: WorkspaceManager, source: Path) -> None:
    workspace = manager.for_key("k")
    first = workspace.stage(Skill("s", str(source), "d1")).stat().st_ino
    (source / "SKILL.md").write_text("changed")
    assert workspace.stage(Skill("s", str(source), "d1")).stat().st_ino == first
    (source / "scripts" / "run.sh").unlink()
    copy = workspace.stage(Skill("s", str(source), "d2"))
    assert (copy / "SKILL.md").read_text() == "changed"
    assert not (copy / "scripts" / "run.sh").exists()
    assert [path.name for path in workspace.skills_dir.iterdir()] == ["s"]


@pytest.mark.row("H5")
def test_staged_again_after_somebody_removed_it(manager: WorkspaceManager, source: Path) -> None:
    workspace = manager.for_key("k")
    remove_tree(workspace.stage(Skill("s", str(source), "d1")))
    assert (workspace.stage(Skill("s", str(source), "d1")) / "SKILL.md").exists()


def test_concurrent_staging_copies_once(manager: WorkspaceManager, source: Path) -> None:
    found = []

    def stage() -> None:
        found.append(manager.for_key("k").stage(Skill("s", str(source), "d1")).stat().st_ino)

    workspace = manager.for_key("k")  # kept, so that all threads share its lock
    threads = [threading.Thread(target=stage) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in workspace.skills_dir.iterdir()] == ["s"]


def test_skill_in_memory(manager: WorkspaceManager) -> None:
    skill = Skill("s", None, "d1", "Do it.", {"scripts/a.sh": "#!/bin/sh\n", "ref.md": "text"})
    copy = manager.for_key("k").stage(skill)
    assert (copy / "SKILL.md").read_text() == "Do it."
    assert (copy / "ref.md").read_text() == "text"
    assert mode(copy / "scripts" / "a.sh") == 0o500


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", "a//b", "."])
def test_resource_paths_cannot_leave_the_skill(manager: WorkspaceManager, path: str) -> None:
    workspace = manager.for_key("k")
    with pytest.raises(ExecutionError, match="plain relative path"):
        workspace.stage(Skill("s", None, "d1", "", {path: "text"}))
    assert list(workspace.skills_dir.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/etc", "..", ".hidden", "a/b", "ein name", "日本", "x" * 300])
def test_names_that_could_be_paths_become_hashes(manager: WorkspaceManager, source: Path, name: str) -> None:
    copy = manager.for_key("k").stage(Skill(name, str(source), "d1"))
    assert copy.parent == manager.for_key("k").skills_dir
    assert copy.name == folder_name(name)
    assert copy.name.startswith("skill-")


def test_missing_source_is_named_and_leaves_nothing(manager: WorkspaceManager, tmp_path: Path) -> None:
    workspace = manager.for_key("k")
    with pytest.raises(ExecutionError, match="gone-skill"):
        workspace.stage(Skill("gone-skill", str(tmp_path / "nowhere"), "d1"))
    assert list(workspace.skills_dir.iterdir()) == []


def test_an_earlier_worker_has_staged_it(manager: WorkspaceManager, source: Path) -> None:
    skill = Skill("s", str(source), "d1")
    inode = manager.for_key("k").stage(skill).stat().st_ino
    again = WorkspaceManager(manager.root)
    assert again.for_key("k").stage(skill).stat().st_ino == inode
    again.close()


def test_what_a_killed_worker_was_about_to_stage_goes(manager: WorkspaceManager, source: Path) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    (workspace.skills_dir / ".new-0123").mkdir()
    workspace.stage(Skill("s", str(source), "d1"))
    assert [path.name for path in workspace.skills_dir.iterdir()] == ["s"]


def test_a_failed_copy_leaves_the_earlier_one(manager: WorkspaceManager, source: Path, tmp_path: Path) -> None:
    workspace = manager.for_key("k")
    workspace.stage(Skill("s", str(source), "d1"))
    with pytest.raises(ExecutionError, match="nowhere"):
        workspace.stage(Skill("s", str(tmp_path / "nowhere"), "d2"))
    assert (workspace.skills_dir / "s" / "SKILL.md").read_text() == "Do it."
    assert [path.name for path in workspace.skills_dir.iterdir()] == ["s"]


def test_a_copy_is_what_the_digest_was_taken_of(manager: WorkspaceManager, tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "triage"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: triage\ndescription: Finds causes.\n---\nRun run.sh.\n")
    (folder / "run.sh").write_text("echo one\n")
    skills = AgentSkillManager(paths=[str(folder.parent)], store_dir=str(tmp_path / "store"))
    (skill,) = skills.load_skills()
    assert skill.digest
    (folder / "run.sh").write_text("echo two\n")
    for share in (False, True):
        manager.share_files = share
        workspace = manager.for_key(f"k{share}")
        with pytest.raises(ExecutionError, match=r"'triage': the file 'run.sh' in .* has changed"):
            workspace.stage(skill)
        assert list(workspace.skills_dir.iterdir()) == []
    (folder / "run.sh").write_text("echo one\n")
    assert (manager.for_key("k").stage(skill) / "run.sh").read_text() == "echo one\n"
    skills.close()


def test_a_skill_deeper_than_the_stack(manager: WorkspaceManager, tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    dig(folder, 1500)
    copy = manager.for_key("k").stage(Skill("s", str(folder), "d1"))
    assert mode(copy.joinpath(*"d" * 1500)) == 0o500
    remove_tree(folder)


@pytest.mark.row("H6", "H2")
def test_a_virtual_environment_is_active_and_outlives_a_new_version(manager: WorkspaceManager, source: Path) -> None:
    workspace = manager.for_key("k")
    copy = workspace.stage(Skill("s", str(source), "d1"))
    assert "VIRTUAL_ENV" not in workspace.env("s", "c", "/r")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=copy, check=False, capture_output=True, timeout=60
    )
    assert made.returncode == 0, made.stderr
    for digest in ("d1", "d2"):
        copy = workspace.stage(Skill("s", str(source), digest))
        env = workspace.env("s", "c", "/r")
        assert env["VIRTUAL_ENV"] == str(copy / ".venv")
        assert env["PATH"].split(":")[0] == str(copy / ".venv" / "bin")
        prefix = subprocess.run(
            ["/bin/sh", "-c", "python -c 'import sys; print(sys.prefix)'"], env=env, check=True, capture_output=True
        ).stdout
        assert prefix.decode().strip() == str(copy / ".venv")
        assert mode(copy) == 0o500
        assert str(copy / ".venv") in workspace.writable
    assert "VIRTUAL_ENV" not in workspace.env(None, "c", "/r")


def test_only_the_skill_itself_writes_its_virtual_environment(manager: WorkspaceManager, source: Path) -> None:
    workspace = manager.for_key("k")
    copies = [workspace.stage(Skill(name, str(source), "d1")) for name in ("a", "b")]
    first, second = (str(copy / ".venv") for copy in copies)
    assert {first, second} <= set(workspace.writable)
    assert first in workspace.writable_for("a")
    assert second not in workspace.writable_for("a")
    assert not {first, second} & set(workspace.writable_for(None))
    assert str(workspace.work_dir) in workspace.writable_for(None)


@pytest.mark.row("H6")
def test_programs_of_a_skill_come_last_on_the_path(manager: WorkspaceManager, source: Path) -> None:
    (source / "bin").mkdir()
    (source / "bin" / "sh").write_text("#!/bin/sh\n")
    workspace = manager.for_key("k")
    copy = workspace.stage(Skill("s", str(source), "d1"))
    assert workspace.env("s", "c", "/r")["PATH"].split(":")[-1] == str(copy / "bin")
    assert str(copy / "bin") not in workspace.env("other", "c", "/r")["PATH"]


def test_a_virtual_environment_of_the_author_is_not_staged(manager: WorkspaceManager, source: Path) -> None:
    (source / ".venv" / "bin").mkdir(parents=True)
    (source / ".venv" / "bin" / "python").write_text("#!/bin/sh\n")
    manager.share_files = True
    workspace = manager.for_key("k")
    copy = workspace.stage(Skill("s", str(source), "d1"))
    assert list((copy / ".venv").iterdir()) == []
    assert str(copy / ".venv") in workspace.writable


def test_a_hostile_virtual_environment_stops_no_new_version(manager: WorkspaceManager, source: Path) -> None:
    workspace = manager.for_key("k")
    copy = workspace.stage(Skill("s", str(source), "d1"))
    os.mkfifo(copy / ".venv" / "pipe")
    (copy / ".venv" / "link").symlink_to("/etc")
    dig(copy / ".venv", 3000, "a-name-of-some-length")
    (copy / ".venv").chmod(0)
    copy = workspace.stage(Skill("s", str(source), "d2"))
    assert sorted(path.name for path in (copy / ".venv").iterdir()) == ["a-name-of-some-length", "link", "pipe"]
    assert mode(Path("/etc")) == 0o755


@pytest.mark.row("H12")
@pytest.mark.parametrize("size", [1, LARGE])
def test_metadata_names_what_is_staged(manager: WorkspaceManager, source: Path, size: int) -> None:
    (source / "model.bin").write_bytes(b"m" * size)
    manager.share_files = True
    workspace = manager.for_key("k")
    workspace.stage(Skill("ein name", str(source), "d1"))
    data = json.loads((workspace.root / "metadata.json").read_text())
    record = data["skills"]["ein name"]
    staged_at = record.pop("staged_at")
    assert record == {
        "name": "ein name",
        "rel_path": "skills/skill-" + hashlib.sha256(b"ein name").hexdigest()[:16],
        "digest": "d1",
        "mounted": size == LARGE,
        "venv": True,
    }
    assert data["created_at"] <= staged_at <= data["updated_at"] <= data["last_access"]


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
