from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import WorkspaceManager, remove_tree
from flink_skills.execution.workspace import folder_name
from flink_skills.manager import AgentSkillManager

from .conftest import LARGE, Skill, dig


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
