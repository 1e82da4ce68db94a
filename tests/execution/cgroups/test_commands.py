"""Commands in separate cgroups, if the tests run in a delegated cgroup v2 (tests/kernel)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from flink_skills.execution import BackendSettings, CommandUser, IsolationLevel, Limits, WorkspaceManager, command_user
from flink_skills.execution.backends import BwrapBackend, HygieneBackend, LandlockBackend, LocalBackend
from flink_skills.execution.cgroups import CgroupFolder, open_folder
from flink_skills.execution.isolation import choose_backend
from flink_skills.options import SkillConfig
from tests.execution.conftest import Shell
from tests.kit.waiting import until

MIB = 1 << 20
_USER = CommandUser(65534, 65534) if os.geteuid() == 0 else None


of_the_module = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def folder() -> Iterator[CgroupFolder]:
    found, reason = open_folder()
    if found is None:
        pytest.skip(f"no delegated cgroup v2: {reason}")
    yield found
    found.close()
    assert not found.path.exists()


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[HygieneBackend, LandlockBackend, BwrapBackend],
    ids=lambda kind: kind.name,
)
async def backend(request: pytest.FixtureRequest, folder: CgroupFolder) -> AsyncIterator[LocalBackend]:
    backend: LocalBackend = request.param(BackendSettings(user=_USER))
    await backend.start()
    used = Path(backend.cgroups)
    assert used.parent == folder.path.parent
    yield backend
    await backend.close()
    assert not used.exists()


@pytest.fixture
def sh(backend: LocalBackend, tmp_path: Path) -> Iterator[Shell]:
    open_to_commands(tmp_path)
    shell = Shell(backend, tmp_path)
    yield shell
    assert shell.processes() == []


def open_to_commands(folder: Path) -> None:
    """Let every user enter ``folder`` and the directories above it that belong to this user."""
    for path in (folder, *folder.parents[:3]):
        if path.stat().st_uid == os.geteuid():
            path.chmod(0o777)


def groups_with(backend: LocalBackend, memory: str) -> list[Path]:
    """Return the cgroups of running commands with a memory limit."""
    return [
        path
        for path in Path(backend.cgroups).glob("*/")
        if (path / "cgroup.procs").read_text().split() and (path / "memory.max").read_text().strip() == memory
    ]


def cgroups(backend: LocalBackend) -> set[str]:
    return {path.name for path in Path(backend.cgroups).glob("*/")}


@of_the_module
async def test_each_command_has_one_that_is_removed(sh: Shell) -> None:
    names = set()
    for _ in range(3):
        result = await sh("cat /proc/self/cgroup")
        path = result.stdout.decode().rpartition("0::")[2].strip()
        assert Path(path).parent.name == Path(sh.backend.cgroups).name, result
        names.add(Path(path).name)
    assert len(names) == 3
    assert not names & cgroups(sh.backend)
    sh.backend.end_idle()
    await until(lambda: not cgroups(sh.backend))


@of_the_module
async def test_limits_are_those_of_the_command(sh: Shell) -> None:
    found = []
    for megabytes, processes in ((300, 30), (400, 40)):
        text = "cat /proc/self/cgroup; read line"
        running = await sh.backend.start_process(
            sh.request(text, limits=Limits(memory=megabytes * MIB, processes=processes)), on_output=lambda *_: None
        )
        limit = str(megabytes * MIB)
        await until(lambda limit=limit: groups_with(sh.backend, limit))
        [group] = groups_with(sh.backend, limit)
        found.append([(group / name).read_text().strip() for name in ("memory.oom.group", "pids.max")])
        running.close()
        await running.wait()
    spare = 3 if isinstance(sh.backend, BwrapBackend) else 0
    assert found == [["1", str(31 + spare)], ["1", str(41 + spare)]]


@of_the_module
async def test_the_kernel_ends_a_command_over_its_memory(sh: Shell, tmp_path: Path) -> None:
    """Pages of files in memory are in no process, so the launcher does not count them."""
    if (await sh("stat -f -c %T .")).stdout != b"tmpfs\n":
        pytest.skip("temporary files are not in memory")
    text = "sleep 300 & head -c 200000000 /dev/zero > big; echo survived"
    result = await sh(text, limits=Limits(memory=100 * MIB), timeout=120)
    assert (result.limit, result.signal, result.timed_out) == ("memory", signal.SIGKILL, False)
    assert b"survived" not in result.stdout
    (tmp_path / "big").unlink()
    assert (await sh(text, limits=Limits(memory=400 * MIB, wall_time=120))).exit_code == 0


@of_the_module
async def test_a_command_that_was_denied_threads_ran_into_the_limit_of_processes(sh: Shell) -> None:
    text = "import threading, time; [threading.Thread(target=time.sleep, args=(0.01,)).start() for _ in range(999)]"
    result = await sh(f"exec {sys.executable} -I -c '{text}'", limits=Limits(processes=2), timeout=120)
    assert result.limit == "processes"


@of_the_module
async def test_a_command_that_ends_by_a_signal_has_reached_no_limit(sh: Shell) -> None:
    result = await sh("kill -KILL $$", limits=Limits(memory=400 * MIB, processes=40))
    assert (result.limit, result.signal) == (None, signal.SIGKILL)


@of_the_module
@pytest.mark.parametrize("name", ["hygiene", "landlock", "bwrap"])
async def test_commands_cannot_leave_them(name: str, folder: CgroupFolder, tmp_path: Path) -> None:
    open_to_commands(tmp_path)
    options = SkillConfig({"skills.shell.backend": name, "skills.shell.min-isolation": "HYGIENE"})
    workspaces = WorkspaceManager(tmp_path / "workspaces", user=command_user(options))
    backend, report = await choose_backend(options, workspaces)
    assert backend is not None, report.skipped
    await backend.close()
    if report.level is IsolationLevel.HYGIENE and _USER is None:
        # The files of a cgroup belong to the user of commands.
        assert not report.cgroups
        assert "commands could change their own" in report.no_cgroups
    else:
        assert report.cgroups
        assert "leave_cgroup" in report.proved
    assert "leave_cgroup" not in report.not_enforced


def test_a_folder_of_a_worker_that_was_killed_is_removed(folder: CgroupFolder) -> None:
    program = (
        "import os, signal\n"
        "from flink_skills.execution.cgroups import open_folder\n"
        "found, reason = open_folder()\n"
        "(found.path / 'inner').mkdir()\n"
        "print(found.path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    assert (left / "inner").is_dir()
    other, reason = open_folder()
    assert other is not None, reason
    other.close()
    assert not left.exists()
    assert folder.path.exists()


def test_a_filter_that_hides_clone3_does_not_matter(folder: CgroupFolder) -> None:
    program = (
        "import errno, os, sys\n"
        "from flink_skills.execution.launcher import linux\n"
        "from flink_skills.execution.launcher.cgroup import CommandCgroup\n"
        "def hidden(descriptor):\n"
        "    raise OSError(errno.ENOSYS, 'clone3')\n"
        "if sys.argv[2]:\n"
        "    linux.fork_into = hidden\n"
        "cgroup = CommandCgroup(sys.argv[1])\n"
        "if cgroup.fork() == 0:\n"
        "    cgroup.enter()\n"
        "    print(open('/proc/self/cgroup').read().strip().endswith(os.path.basename(cgroup.path)), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(cgroup.remove())\n"
    )
    for hidden in ("", "hidden"):
        said = subprocess.run(
            [sys.executable, "-c", program, str(folder.path), hidden], capture_output=True, text=True, check=True
        )
        assert said.stdout == "True\nTrue\n", said.stderr
