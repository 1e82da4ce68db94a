"""The sweep removes old workspaces and keeps all others."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flink_skills.execution import Workspace, WorkspaceManager
from tests.kit.aging import age_copy, age_workspace
from tests.kit.waiting import until

from .conftest import LARGE, Skill

HOUR = 3600.0


def used(manager: WorkspaceManager, key: str, ago: float) -> Path:
    """A workspace that nobody uses any more."""
    workspace = manager.for_key(key)
    workspace.write_event(b"{}")
    workspace.release()
    age_workspace(workspace.root, ago)
    return workspace.root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


class Clocks:
    """The time of the machine, which somebody sets, and the one that nobody sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = time.time(), time.monotonic()
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.steady)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.mark.parametrize("jumps", [(2 * HOUR,), (-2 * HOUR,), (2 * HOUR, -HOUR), (-HOUR, 2 * HOUR)])
def test_a_clock_that_is_set_removes_nothing_too_early_and_all_in_the_end(
    root: Path, monkeypatch: pytest.MonkeyPatch, jumps: tuple[float, ...]
) -> None:
    manager = WorkspaceManager(root, ttl=HOUR)
    in_use = manager.for_key("in use")
    in_use.write_event(b"{}")
    age_workspace(in_use.root, 9 * HOUR)
    idle, old = used(manager, "idle", 60), used(manager, "old", HOUR - 60)
    with monkeypatch.context() as patched:
        clocks = Clocks(patched)
        sweeper = WorkspaceManager(root, ttl=HOUR)
        for jump in jumps:
            clocks.wall += jump
            assert sweeper.sweep() == 0
        clocks.pass_by(120)
        sweeper.sweep()
        assert idle.exists()
        assert old.exists() == (jumps != (2 * HOUR,))
        clocks.pass_by(3 * HOUR)
        sweeper.sweep()
        assert (idle.exists(), old.exists(), in_use.root.exists()) == (False, False, True)
    manager.close()


def test_old_workspaces_go_and_young_ones_stay(root: Path) -> None:
    manager = WorkspaceManager(root, ttl=HOUR)
    old, young = used(manager, "old", HOUR + 5), used(manager, "young", HOUR - 60)
    (root / "notes.txt").write_text("mine")
    os.utime(root / "notes.txt", (0, 0))
    assert manager.sweep() == 1
    assert not old.exists()
    assert young.exists()
    assert sorted(path.name for path in root.iterdir()) == [".names", "notes.txt", young.name]
    manager.close()


def test_without_a_ttl_all_stay(root: Path) -> None:
    manager = WorkspaceManager(root)
    old = used(manager, "old", 1000 * HOUR)
    assert manager.sweep() == 0
    assert old.exists()
    manager.close()


def test_a_workspace_in_use_stays_whoever_sweeps(root: Path) -> None:
    manager, other = WorkspaceManager(root, ttl=HOUR), WorkspaceManager(root, ttl=HOUR)
    workspace = manager.for_key("k")
    workspace.write_event(b"{}")
    age_workspace(workspace.root, 5 * HOUR)
    assert manager.sweep() == other.sweep() == 0
    workspace.release()
    assert other.sweep() == 0  # its age counts from the end of the use
    age_workspace(workspace.root, 5 * HOUR)
    other.close()
    assert WorkspaceManager(root, ttl=HOUR).sweep() == 1
    workspace.write_event(b'{"n": 2}')
    assert (workspace.inputs_dir / "event.json").read_bytes() == b'{"n": 2}'
    manager.close()
    other.close()
    assert not root.exists()


def test_a_workspace_that_nobody_holds_is_not_in_use(root: Path) -> None:
    manager = WorkspaceManager(root, ttl=HOUR)

    def use() -> Path:
        workspace = manager.for_key("k")
        workspace.write_event(b"{}")
        return workspace.root

    path = use()
    gc.collect()
    age_workspace(path, 5 * HOUR)
    assert manager.sweep() == 1
    manager.close()


def test_a_skill_is_staged_anew_after_the_workspace_grew_old(root: Path) -> None:
    manager = WorkspaceManager(root, ttl=HOUR, share_files=True)
    workspace = manager.for_key("k")
    skill = Skill("s", None, "d1", "Do it.")
    workspace.stage(skill)
    workspace.release()
    age_workspace(workspace.root, 5 * HOUR)
    assert manager.sweep() == 1
    assert (workspace.stage(skill) / "SKILL.md").read_text() == "Do it."
    manager.close()


def test_shared_copies_without_a_view_go_when_they_are_old(root: Path) -> None:
    manager = WorkspaceManager(root, ttl=HOUR, share_files=True)
    workspace = manager.for_key("k")
    for name, digest in (("s", "d1"), ("s", "d2"), ("t", "d3"), ("t", "d4")):
        workspace.stage(Skill(name, None, digest, digest * LARGE))
    for digest in ("d1", "d2", "d3"):
        age_copy(root / ".skills" / digest, 5 * HOUR)
    manager.sweep()
    # d1 has no view any more, d2 has one, d3 has none, d4 is young.
    assert sorted(path.name for path in (root / ".skills").iterdir()) == ["d2", "d4"]
    assert (workspace.skills_dir / "s" / "SKILL.md").read_text() == "d2" * LARGE
    manager.close()


def test_a_skill_that_shares_nothing_outlives_its_shared_copy(root: Path) -> None:
    manager = WorkspaceManager(root, ttl=HOUR, share_files=True)
    workspace = manager.for_key("k")
    skill = Skill("s", None, "d1", "Do it.")
    inode = workspace.stage(skill).stat().st_ino
    age_copy(root / ".skills" / "d1", 5 * HOUR)
    manager.sweep()
    assert list((root / ".skills").iterdir()) == []
    assert workspace.stage(skill).stat().st_ino == inode
    assert (manager.for_key("late").stage(skill) / "SKILL.md").read_text() == "Do it."
    manager.close()


def test_what_is_left_of_an_interrupted_removal_goes(root: Path) -> None:
    manager = WorkspaceManager(root, ttl=HOUR)
    used(manager, "k", 0)
    (root / ".gone-0123" / "inner").mkdir(parents=True)
    assert manager.sweep() == 0
    assert not (root / ".gone-0123").exists()
    manager.close()


_OTHER_WORKER = """
import sys
from flink_skills.execution import WorkspaceManager
manager = WorkspaceManager(sys.argv[1], ttl=3600)
workspace = manager.for_key("k")
workspace.write_event(b"{}")
print(workspace.root, flush=True)
sys.stdin.readline()
"""


def test_another_process_uses_it_and_dies(root: Path) -> None:
    manager = WorkspaceManager(root, ttl=HOUR)
    manager.for_key("other").ensure()
    worker = subprocess.Popen(
        [sys.executable, "-c", _OTHER_WORKER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        path = Path(worker.stdout.readline().strip())
        age_workspace(path, 5 * HOUR)
        assert manager.sweep() == 0
        manager.close()
        assert path.exists()  # a worker that lives has the job's workspaces
        manager.for_key("other").ensure()
    finally:
        worker.kill()
        worker.communicate()
    assert manager.sweep() == 1
    assert not path.exists()
    manager.close()
    assert not root.exists()


def test_sweeping_while_the_key_is_used(root: Path) -> None:
    """No use ever finds its workspace gone under its hands."""
    managers = [WorkspaceManager(root, ttl=1e-9) for _ in range(3)]
    ended = threading.Event()
    errors: list[BaseException] = []

    def sweep(manager: WorkspaceManager) -> None:
        try:
            while not ended.is_set():
                manager.sweep()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=sweep, args=(manager,)) for manager in managers[1:]]
    for thread in threads:
        thread.start()
    workspace: Workspace = managers[0].for_key("k")
    removed = 0
    inode = 0
    deadline = time.monotonic() + 20
    while removed < 5 and time.monotonic() < deadline and not errors:
        workspace.write_event(b"{}")
        assert (workspace.inputs_dir / "event.json").read_bytes() == b"{}"
        removed += workspace.root.stat().st_ino != inode
        inode = workspace.root.stat().st_ino
        workspace.release()
    ended.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert removed >= 2
    for manager in managers:
        manager.close()
    assert not root.exists()


async def test_a_running_worker_sweeps_by_itself(root: Path) -> None:
    def there() -> bool:
        return root.exists()

    manager = WorkspaceManager(root, ttl=0.2)
    manager.start()
    manager.start()  # again does nothing
    old, held = manager.for_key("old"), manager.for_key("held")
    for workspace in (old, held):
        workspace.write_event(b"{}")
    old.release()
    await until(lambda: not old.root.exists())
    assert held.root.exists()
    await manager.aclose()
    assert not there()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
