"""Views of one copy: what workspaces share, and that nothing that a command does to it stays."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.execution import WorkspaceManager

from .conftest import LARGE, NOBODY, Skill, as_root, run_as

SMALL = ("SKILL.md", "scripts/run.sh", "almost.bin")
LINKED = ("model.bin", "scripts/tool")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def manager(manager: WorkspaceManager) -> WorkspaceManager:
    manager.share_files = True
    return manager


@pytest.fixture
def skill(source: Path) -> Skill:
    (source / "almost.bin").write_bytes(b"a" * (LARGE - 1))
    (source / "model.bin").write_bytes(b"m" * LARGE)
    (source / "scripts" / "tool").write_bytes(b"#!/bin/sh\necho tool\nexit\n".ljust(2 * LARGE, b"#"))
    (source / "scripts" / "tool").chmod(0o755)
    return Skill("s", str(source), "d1")


def shared(manager: WorkspaceManager) -> Path:
    return manager.root / ".skills" / "d1" / "s" / "files"


def inodes(*folders: Path, names: tuple[str, ...] = LINKED) -> set[tuple[int, ...]]:
    """One element where ``folders`` have the same files."""
    return {tuple((folder / name).stat().st_ino for name in names) for folder in folders}


def assert_whole(copy: Path) -> None:
    """``copy`` is what was staged, and can be read and run."""
    assert (copy / "SKILL.md").read_text() == "Do it."
    assert (copy / "almost.bin").read_bytes() == b"a" * (LARGE - 1)
    assert (copy / "model.bin").read_bytes() == b"m" * LARGE
    assert (copy / "scripts" / "tool").stat().st_size == 2 * LARGE
    assert (copy / "scripts" / "again.sh").readlink() == Path("run.sh")
    assert {mode(copy / name) for name in ("SKILL.md", "almost.bin", "model.bin")} == {0o400}
    assert mode(copy) == mode(copy / "scripts") == mode(copy / "scripts/run.sh") == mode(copy / "scripts/tool") == 0o500


def test_workspaces_share_large_files_and_have_their_own_small_ones(
    manager: WorkspaceManager, skill: Skill, source: Path
) -> None:
    copies = [manager.for_key(str(key)).stage(skill) for key in range(5)]
    everything = [*copies, shared(manager)]
    assert len(inodes(*everything)) == 1
    assert len(inodes(*everything, names=SMALL)) == len(everything)
    assert (shared(manager) / "model.bin").stat().st_nlink == len(everything)
    for copy in copies:
        assert_whole(copy)
    assert len({(copy / "SKILL.md").stat().st_mtime_ns for copy in everything}) == 1
    assert not (shared(manager) / "out").is_symlink()
    assert (copies[0] / "out").resolve() == manager.for_key("0").out_dir
    (source / "SKILL.md").write_text("not read any more")
    assert_whole(manager.for_key("late").stage(skill))


@as_root
def test_workspaces_share_all_files_that_commands_do_not_own(reachable: Path, skill: Skill) -> None:
    manager = WorkspaceManager(reachable / "jobs" / "agent", user=NOBODY, top=reachable / "jobs", share_files=True)
    workspaces = [manager.for_key(str(key)) for key in range(3)]
    copies = [workspace.stage(skill) for workspace in workspaces]
    assert len(inodes(*copies, shared(manager), names=(*SMALL, *LINKED))) == 1
    before = [path.lstat() for path in sorted(copies[0].rglob("*")) if path.is_file() and not path.is_symlink()]
    attempts = "for f in SKILL.md model.bin scripts/tool; do chmod 0 $f; touch -d @1 $f; chgrp 0 $f; done 2> /dev/null"
    said = run_as(NOBODY, f"{attempts}; scripts/tool; cat SKILL.md", copies[0])
    assert said == "tool\nDo it."
    assert workspaces[1].stage(skill) == copies[1]
    after = [path.lstat() for path in sorted(copies[0].rglob("*")) if path.is_file() and not path.is_symlink()]
    assert [(a.st_ino, a.st_mode, a.st_mtime, a.st_gid) for a in after] == [
        (b.st_ino, b.st_mode, b.st_mtime, b.st_gid) for b in before
    ]
    manager.close()


@pytest.mark.parametrize("spoiled", [0o000, 0o777, 0o4500, 0o200])
def test_modes_are_put_right_before_the_next_use(manager: WorkspaceManager, skill: Skill, spoiled: int) -> None:
    workspaces = [manager.for_key(str(key)) for key in range(2)]
    copies = [workspace.stage(skill) for workspace in workspaces]
    before = inodes(copies[0])

    def spoil() -> None:
        for name in (*SMALL, *LINKED):
            (copies[0] / name).chmod(spoiled)

    spoil()
    assert workspaces[1].stage(skill) == copies[1]
    assert_whole(copies[1])
    spoil()
    new = manager.for_key("new").stage(skill)
    assert_whole(new)
    spoil()
    later = WorkspaceManager(manager.root, share_files=True)  # a worker that has just begun
    assert_whole(later.for_key("1").stage(skill))
    assert inodes(*copies, new, shared(manager)) == before
    later.close()


def _modified(path: Path) -> None:
    os.utime(path, (1, 1))


def _shortened(path: Path) -> None:
    path.chmod(0o600)
    os.truncate(path, 3)
    path.chmod(0o400)


def _replaced(path: Path) -> None:
    path.parent.chmod(0o700)
    path.unlink()
    path.symlink_to("/etc/passwd")


def _removed(path: Path) -> None:
    path.parent.chmod(0o700)
    path.unlink()


def _given_away(path: Path) -> None:
    groups = [group for group in os.getgroups() if group != path.stat().st_gid]
    if os.geteuid() != 0 and not groups:
        pytest.skip("this user is in one group only")
    os.chown(path, -1, groups[0] if groups else 1)


@pytest.mark.parametrize("spoil", [_modified, _shortened, _given_away])
def test_what_cannot_be_put_right_is_made_anew(
    manager: WorkspaceManager, skill: Skill, spoil: Callable[[Path], None]
) -> None:
    workspaces = [manager.for_key(str(key)) for key in range(3)]
    copies = [workspace.stage(skill) for workspace in workspaces]
    before = inodes(copies[0])
    (copies[1] / ".venv" / "kept").touch()
    spoil(copies[0] / "model.bin")
    for workspace in workspaces[1:]:
        assert_whole(workspace.stage(skill))
    assert (copies[1] / ".venv" / "kept").exists()
    assert inodes(copies[0]) == before
    assert_whole(manager.for_key("new").stage(skill))
    assert_whole(workspaces[0].stage(skill))
    (after,) = inodes(*copies, shared(manager))
    assert after not in before
    settled = [copy.stat().st_ino for copy in copies]
    assert [workspace.stage(skill).stat().st_ino for workspace in workspaces] == settled
    assert [path.name for path in (manager.root / ".skills" / "d1").iterdir() if path.name != "used"] == ["s"]


@pytest.mark.parametrize("spoil", [_modified, _shortened, _replaced, _removed])
@pytest.mark.parametrize("name", ["SKILL.md", "model.bin"])
def test_a_spoiled_copy_is_not_given_to_the_next_key(
    manager: WorkspaceManager, skill: Skill, spoil: Callable[[Path], None], name: str
) -> None:
    manager.for_key("k").stage(skill)
    spoil(shared(manager) / name)
    assert_whole(manager.for_key("new").stage(skill))
    assert_whole(manager.for_key("k").stage(skill))


@pytest.mark.parametrize(
    "closed", [".skills", ".skills/d1", ".skills/d1/s", ".skills/d1/s/files", ".skills/d1/s/files/scripts"]
)
def test_closed_folders_of_the_copy_are_opened(manager: WorkspaceManager, skill: Skill, closed: str) -> None:
    workspace = manager.for_key("k")
    copy = workspace.stage(skill)
    before = inodes(copy)
    (manager.root / closed).chmod(0)
    new = manager.for_key("new").stage(skill)
    assert_whole(new)
    assert mode(manager.root / closed) == 0o700
    assert inodes(copy, new) == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.chmod(0),
        lambda path: path.unlink(),
        lambda path: path.write_text("{"),
        lambda path: path.write_text('{"SKILL.md": 1}'),
        lambda path: path.write_text("[]"),
    ],
)
def test_notes_that_are_spoiled(manager: WorkspaceManager, skill: Skill, spoil: Callable[[Path], None]) -> None:
    manager.for_key("k").stage(skill)
    spoil(shared(manager).parent / "states.json")
    later = WorkspaceManager(manager.root, share_files=True)
    copies = [later.for_key(key).stage(skill) for key in ("k", "new")]
    assert len(inodes(*copies)) == 1
    for copy in copies:
        assert_whole(copy)
    later.close()


def test_a_command_that_closes_its_own_skill_harms_its_next_command_at_most(
    manager: WorkspaceManager, skill: Skill
) -> None:
    workspace = manager.for_key("k")
    copy = workspace.stage(skill)
    (copy / ".venv" / "kept").touch()
    (copy / "model.bin").chmod(0)
    os.utime(copy / "model.bin", (1, 1))
    for folder in (copy / "scripts", copy, workspace.skills_dir):
        folder.chmod(0)
    assert_whole(manager.for_key("other").stage(skill))
    assert_whole(workspace.stage(skill))
    assert (copy / ".venv" / "kept").exists()


def test_workers_agree_on_the_copy_that_one_has_made_anew(manager: WorkspaceManager, skill: Skill) -> None:
    second = WorkspaceManager(manager.root, share_files=True)
    first_copy, second_copy = manager.for_key("1").stage(skill), second.for_key("2").stage(skill)
    _modified(first_copy / "model.bin")
    manager.for_key("1").stage(skill)
    second.for_key("2").stage(skill)
    assert len(inodes(first_copy, second_copy, shared(manager))) == 1
    assert_whole(second_copy)
    second.close()


def test_new_keys_while_a_command_spoils_what_is_shared(manager: WorkspaceManager, skill: Skill) -> None:
    spoiling = manager.for_key("spoiling").stage(skill)
    ended = threading.Event()

    def spoil() -> None:
        while not ended.is_set():
            for path in (spoiling / "model.bin", shared(manager) / "SKILL.md", shared(manager) / "scripts"):
                try:
                    path.chmod(0)
                except OSError:  # it is made anew just now, or closed
                    continue

    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        copies = [manager.for_key(str(key)).stage(skill) for key in range(30)]
    finally:
        ended.set()
        thread.join()
    for key, copy in enumerate(copies):
        assert {mode(copy / name) for name in ("SKILL.md", "almost.bin")} == {0o400}
        assert_whole(manager.for_key(str(key)).stage(skill))


def test_a_file_that_cannot_be_linked_is_copied(
    manager: WorkspaceManager, skill: Skill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more_links(source: str, to: str, **more: object) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    monkeypatch.setattr(os, "link", no_more_links)
    workspace = manager.for_key("k")
    copy = workspace.stage(skill)
    assert_whole(copy)
    assert (copy / "model.bin").stat().st_nlink == 1
    staged = copy.stat().st_ino
    assert workspace.stage(skill).stat().st_ino == staged  # a copy will do: it is not made again and again


def test_a_view_is_none_for_a_worker_that_does_not_share(manager: WorkspaceManager, skill: Skill) -> None:
    copy = manager.for_key("k").stage(skill)
    assert (copy / "model.bin").stat().st_nlink == 2
    other = WorkspaceManager(manager.root)
    assert_whole(other.for_key("k").stage(skill))
    assert (copy / "model.bin").stat().st_nlink == 1
    other.close()


def test_workers_that_make_the_same_copy_at_once(manager: WorkspaceManager, skill: Skill) -> None:
    others = [WorkspaceManager(manager.root, share_files=True) for _ in range(4)]
    barrier = threading.Barrier(len(others))
    found: list[Path] = []

    def stage(number: int) -> None:
        barrier.wait()
        found.append(others[number].for_key(str(number)).stage(skill))

    threads = [threading.Thread(target=stage, args=(number,)) for number in range(len(others))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(others)
    assert len(inodes(*found)) == 1
    assert [path.name for path in (manager.root / ".skills" / "d1").iterdir() if path.name != "used"] == ["s"]
    for other in others:
        other.close()


def test_names_that_are_no_text_and_skills_without_files(manager: WorkspaceManager, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    name = os.fsdecode(b"\xff\xfe\n.bin")
    (odd / name).write_bytes(b"o" * LARGE)
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    for key in ("1", "2"):
        assert (manager.for_key(key).stage(Skill("odd", str(odd), "o1")) / name).stat().st_nlink >= 2
        assert (manager.for_key(key).stage(Skill("empty", str(tmp_path / "empty"), "e1")) / "inner").is_dir()


def test_a_copy_that_is_spoiled_without_end_is_no_matter(
    manager: WorkspaceManager, skill: Skill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("flink_skills.execution.workspace.staging.link_tree", closed)
    copy = manager.for_key("k").stage(skill)
    assert_whole(copy)
    assert (copy / "model.bin").stat().st_nlink == 1
