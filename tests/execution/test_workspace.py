from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import WorkspaceManager
from flink_skills.execution.environment import base_environment, passed_on
from flink_skills.execution.removal import remove_tree
from flink_skills.execution.staging import folder_name


@dataclass
class Skill:
    name: str
    path: str | None
    digest: str
    instructions: str = ""
    resources: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[WorkspaceManager]:
    manager = WorkspaceManager(tmp_path / "workspaces")
    yield manager
    manager.close()
    assert not manager.root.exists()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A skill's folder with what skills have, and what they should not have."""
    folder = tmp_path / "source"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("Do it.")
    (folder / "scripts" / "run.sh").write_text("#!/bin/sh\necho run\n")
    (folder / "scripts" / "run.sh").chmod(0o755)
    (folder / "scripts" / "again.sh").symlink_to("run.sh")
    (tmp_path / "outside").write_text("not part of the skill")
    (folder / "escape").symlink_to("../outside")
    (folder / "absolute").symlink_to(folder / "SKILL.md")
    (folder / "dangling").symlink_to("../../nowhere")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]")
    os.mkfifo(folder / "pipe")
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_nothing_is_made_before_it_is_needed(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    assert not manager.root.exists()
    workspace.ensure()
    assert mode(workspace.root) == 0o700
    names = {path.name for path in workspace.root.iterdir() if not path.name.startswith(".")}
    assert names == {"skills", "work", "out", "runs", "tmp"}
    assert workspace.inputs_dir == workspace.root / "work" / "inputs"
    assert workspace.inputs_dir.is_dir()


def test_a_key_has_one_workspace_and_its_name_tells_nothing(manager: WorkspaceManager) -> None:
    odd = "../../etc/passwd\0\n/\ud800"
    roots = {manager.for_key(text).root for text in ("a", "b", odd, "x" * 10_000)}
    assert len(roots) == 4
    assert all(root.parent == manager.root and root.name.startswith("ws_") for root in roots)
    assert manager.for_key("a").root == WorkspaceManager(manager.root).for_key("a").root
    first = manager.for_key("a")
    assert manager.for_key("a") is first


def test_relative_root_is_refused_with_the_absolute_one() -> None:
    with pytest.raises(ConfigError, match=str(Path.cwd() / "here")):
        WorkspaceManager("here")


def test_a_foreign_folder_of_that_name_is_refused(manager: WorkspaceManager, tmp_path: Path) -> None:
    workspace = manager.for_key("k")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    manager.root.mkdir()
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


def test_event_that_cannot_be_written_names_the_file(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    (workspace.inputs_dir / "event.json").mkdir()
    with pytest.raises(ExecutionError, match=r"event\.json"):
        workspace.write_event(b"{}")


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


def test_entries_of_the_skill_win_over_links(manager: WorkspaceManager, source: Path) -> None:
    (source / "out").mkdir()
    (source / "out" / "template.txt").write_text("t")
    copy = manager.for_key("k").stage(Skill("s", str(source), "d1"))
    assert not (copy / "out").is_symlink()
    assert (copy / "out" / "template.txt").read_text() == "t"


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
        "HOME": workspace.root,
        "TMPDIR": workspace.tmp_dir,
        "SKILL_NAME": "log-triage",
        "FLINK_SKILLS_CALL_ID": "call-7",
    }
    assert {name: env[name] for name in expected} == {name: str(value) for name, value in expected.items()}
    allowed = {*expected, "PATH", "LANG", "LANGUAGE", "TZ"}
    assert [name for name in env if name not in allowed and not name.startswith("LC_")] == []


def test_environment_allowlist() -> None:
    source = {
        "PATH": "/bin",
        "SECRET": "s",
        "LC_ALL": "de",
        "PYTHONPATH": "/x",
        "LD_PRELOAD": "x",
        "REGION": "eu",
    }
    assert base_environment(source) == {"PATH": "/bin", "LC_ALL": "de", "LANG": "C.UTF-8"}
    assert base_environment({"PATH": "/bin"}, "/opt/py/bin/python")["PATH"] == "/bin:/opt/py/bin"
    assert base_environment({}, sys.executable)["PATH"].startswith(os.defpath)
    assert passed_on(source, ["REGION", "ABSENT"]) == {"REGION": "eu"}


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "BASH_ENV", "GIT_SSH_COMMAND", "JAVA_TOOL_OPTIONS"])
def test_variables_that_change_what_programs_load_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        passed_on({name: "x"}, [name])


def test_run_folders(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    empty, used = workspace.new_run(), workspace.new_run()
    (used / "log").write_text("x")
    workspace.end_run(empty)
    workspace.end_run(used)
    assert list(workspace.runs_dir.iterdir()) == [used]


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
    assert [path.name for path in manager.root.iterdir()] == [other.root.name]
    assert (outside / "kept").read_text() == "kept"
    assert mode(outside) == 0o555
    workspace.remove()
    workspace.ensure()
    assert workspace.work_dir.is_dir()


def test_removal_of_a_tree_deeper_than_the_stack_and_the_descriptors(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(3000):  # more than Python recurses, and with a path longer than the kernel takes
        os.mkdir("a-name-of-some-length", dir_fd=folder)
        inner = os.open("a-name-of-some-length", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    remove_tree(top)
    assert list(tmp_path.iterdir()) == []


def test_removing_at_the_same_time(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for key in range(20):
        workspace = WorkspaceManager(root).for_key(str(key))
        workspace.ensure()
        for name in range(20):
            (workspace.work_dir / str(name)).mkdir()
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
