"""Namespaces are used by one command after the other, as long as no command can tell.

The tests distinguish them by the process id of bubblewrap outside, because the kernel reuses the numbers of namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from flink_skills.errors import ExecutionError
from flink_skills.execution import BackendSettings, CommandRequest, CommandResult, CommandUser, Limits
from flink_skills.execution.backends import BwrapBackend
from flink_skills.execution.backends.bwrap import Operation, View
from tests.execution.conftest import processes_with
from tests.kit.waiting import until

_USER = CommandUser(65534, 65534) if os.geteuid() == 0 else None
_FOLDERS = ("work", "tmp")
LATER = "> /dev/null 2>&1 & until [ -e up ]; do sleep 0.01; done"
NUMBER = "readlink /proc/self/ns/pid"


class Place:
    """A workspace in which shell texts run."""

    def __init__(self, backend: BwrapBackend, root: Path) -> None:
        self.backend = backend
        self.root = root
        self.mark = f"TEST_MARK={root.name}"
        self.readable: tuple[str, ...] = ()
        self.make()

    def make(self) -> None:
        for name in _FOLDERS:
            (self.root / name).mkdir()
            if _USER is not None:
                os.chown(self.root / name, _USER.uid, _USER.gid)

    def request(self, text: str, limits: Limits | None = None) -> CommandRequest:
        name, _, value = self.mark.partition("=")
        return CommandRequest(
            ("/bin/sh", "-c", text),
            cwd=str(self.root / "work"),
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", name: value},
            limits=limits or Limits(wall_time=30),
            root=str(self.root),
            writable=tuple(str(self.root / name) for name in _FOLDERS),
            readable=self.readable,
        )

    async def run(self, text: str) -> CommandResult:
        result = await self.backend.run(self.request(text))
        assert result.error is None
        return result

    async def says(self, text: str) -> str:
        result = await self.run(text)
        assert result.exit_code == 0, result
        return result.stdout.decode()

    def bubblewraps(self) -> set[int]:
        """Return the process ids of the bubblewraps that supervisors have started."""
        found = set()
        for supervisor in psutil.Process(self.backend.launcher_pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # the supervisor has ended
                found |= {child.pid for child in supervisor.children() if child.name() == "bwrap"}
        return found

    def waiting_programs(self) -> list[int]:
        """Return the process ids of the programs that keep the namespaces, without ended ones."""
        found = []
        for process in psutil.Process(self.backend.launcher_pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
                if process.name() == "cat" and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend() -> AsyncIterator[BwrapBackend]:
    found = BwrapBackend(BackendSettings(user=_USER))
    try:
        await found.start()
    except ExecutionError as error:
        pytest.skip(f"bwrap does not work here: {error}")
    yield found
    await found.close()


@pytest.fixture
def places(backend: BwrapBackend) -> Iterator[tuple[Place, Place]]:
    backend.end_idle()
    found = []
    for _ in range(2):
        root = Path(tempfile.mkdtemp(prefix="namespaces-", dir="/var/tmp"))
        root.chmod(0o711)
        found.append(Place(backend, root))
    yield found[0], found[1]
    for place in found:
        assert processes_with(place.mark) == []
        shutil.rmtree(place.root)


@pytest.fixture
def place(places: tuple[Place, Place]) -> Place:
    return places[0]


class NoScope(BwrapBackend):
    """As on a kernel before 6.12, where commands can signal the other processes in their namespaces."""

    def confinement(self, request: CommandRequest, *, tty: bool = False) -> Any:
        return super().confinement(request, tty=tty)._replace(scope=False)


@pytest.mark.asyncio(loop_scope="module")
async def test_what_holds_the_namespaces_has_no_more_rights_than_a_command(place: Place) -> None:
    states = await place.says("grep -h Seccomp: /proc/[12]/status")
    assert states.split() == ["Seccomp:", "2"] * 2
    limits = await place.says("grep -h -e 'core file' -e 'file size' /proc/[12]/limits")
    assert limits.split("\n")[0].split()[-3:-1] == ["1048576", "1048576"]
    assert limits.split("\n")[1].split()[-3:-1] == ["0", "0"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_key_keeps_its_namespaces_between_commands(places: tuple[Place, Place]) -> None:
    first, second = places
    number, other = await first.says(NUMBER), await second.says(NUMBER)
    assert number != other
    kept = first.bubblewraps()
    assert len(kept) == 2
    assert (await first.says(NUMBER), await second.says(NUMBER)) == (number, other)
    assert first.bubblewraps() == kept
    # Bubblewrap's two and its own: nothing says that there was a command before.
    assert len([name for name in (await first.says("exec ls /proc")).split() if name.isdigit()]) == 3
    assert await first.says("ls -A /dev/shm") == ""


@pytest.mark.asyncio(loop_scope="module")
async def test_commands_of_a_key_that_run_at_once_share_none(place: Place) -> None:
    text = f": > up$N; until [ -e up1 ] && [ -e up2 ]; do sleep 0.01; done; {NUMBER}"
    numbers = await asyncio.gather(*(place.says(text.replace("$N", str(number))) for number in (1, 2)))
    assert len(set(numbers)) == 2


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "text",
    [
        f"setsid sh -c ': > up; sleep 300' {LATER}",
        f"setsid sh -c ': > up; while :; do (setsid sleep 300 &); sleep 0.01; done' {LATER}",
        "echo left > /dev/shm/file",
        "mkdir /dev/shm/folder",
        "echo gone > /dev/shm/file; rm /dev/shm/file",
        "chmod 700 /dev/shm",
        "ln -s / /dev/shm/link",
    ],
    ids=("daemon", "more_and_more", "file", "folder", "removed_file", "mode", "link"),
)
async def test_namespaces_that_a_command_changed_end_with_it(place: Place, text: str) -> None:
    number = await place.says(NUMBER)
    before = place.bubblewraps()
    assert await place.says(f"{NUMBER}; {text}") == number
    assert processes_with(place.mark) == []
    assert place.bubblewraps() == set()
    await place.says("true")
    assert before.isdisjoint(place.bubblewraps())
    assert await place.says("ls -A /dev/shm; stat -c %a /dev/shm") == "1777\n"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", ["kill -9 2", "kill -9 -1", "(setsid sh -c 'kill -9 2; sleep 300' &) ; sleep 0.1"])
async def test_a_command_that_kills_the_others_in_its_namespaces_ends_these(
    backend: BwrapBackend, place: Place, text: str
) -> None:
    place.backend = NoScope(backend.settings)
    await place.backend.start()
    try:
        place.backend.end_idle()
        await until(lambda: place.bubblewraps() == set())
        await place.says("true")
        assert len(place.bubblewraps()) == len(place.waiting_programs()) == 1
        await place.run(f"{text} > /dev/null 2>&1")
        assert processes_with(place.mark) == []
        await until(lambda: place.waiting_programs() == [])
        assert await place.says("echo fine") == "fine\n"
    finally:
        await place.backend.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_command_whose_time_is_over_takes_what_it_started_with_it(place: Place) -> None:
    await place.says("true")
    before = place.bubblewraps()
    request = place.request("setsid sleep 300 & trap '' TERM; sleep 300; sleep 300", Limits(wall_time=0.2))
    assert (await place.backend.run(request)).timed_out
    assert processes_with(place.mark) == []
    assert before.isdisjoint(place.bubblewraps())


@pytest.mark.asyncio(loop_scope="module")
async def test_a_workspace_that_is_made_anew_is_seen(place: Place) -> None:
    await place.says("echo old > file")
    before = place.bubblewraps()
    for name in _FOLDERS:
        shutil.rmtree(place.root / name)
    place.make()
    (place.root / "work" / "new").touch()
    assert await place.says("ls") == "new\n"
    assert before.isdisjoint(place.bubblewraps())


@pytest.mark.asyncio(loop_scope="module")
async def test_a_folder_that_is_granted_later_is_seen(place: Place) -> None:
    folder = place.root / "skills"
    place.readable = (str(folder),)
    assert (await place.run(f"ls {folder}")).exit_code == 2
    folder.mkdir(mode=0o755)
    (folder / "skill").touch()
    assert await place.says(f"ls {folder}") == "skill\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_command_used_is_told_of_it_alone(place: Place) -> None:
    # The first process inside buries the orphan, and its CPU time then includes the orphan's.
    # Namespaces in which the orphan is not reaped yet are not kept, so the command waits for that.
    text = "(sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done' & echo $! > orphan); "
    text += "while [ -e /proc/$(cat orphan) ]; do sleep 0.05; done"
    first = await place.run(text)
    kept = place.bubblewraps()
    second = await place.run("true")
    assert first.cpu_time > 10 * second.cpu_time
    assert len(kept) == 1
    assert place.bubblewraps() == kept


@pytest.mark.asyncio(loop_scope="module")
async def test_namespaces_end_with_their_backend(place: Place) -> None:
    await place.says("true")
    launcher = psutil.Process(place.backend.launcher_pid)
    assert len(launcher.children(recursive=True)) >= 4
    place.backend.end_idle()
    await until(lambda: launcher.children(recursive=True) == [])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("work/inputs", "out", "tmp", "skills"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def operations(view: View, root: Path, *writable: str, readable: tuple[str, ...] = ()) -> list[Operation]:
    return view.operations(
        CommandRequest(
            ("true",),
            cwd="/",
            root=str(root),
            writable=tuple(str(root / name) for name in writable),
            readable=tuple(str(root / name) for name in readable),
        )
    )


def destinations(found: list[Operation], kind: str) -> list[str]:
    return [operation[-1] for operation in found if operation[0] == kind]


def test_links_are_made_and_what_they_lead_to_is_mounted(root: Path) -> None:
    (root / "first").symlink_to("second")
    (root / "second").symlink_to(root / "real")
    (root / "real" / "deep").mkdir(parents=True)
    found = operations(View((), (str(root / "first" / "deep"),)), root)
    assert ("--symlink", "second", str(root / "first")) in found
    assert ("--symlink", str(root / "real"), str(root / "second")) in found
    assert destinations(found, "--ro-bind") == [str(root / "real" / "deep")]


def test_links_that_go_round_and_paths_that_lead_nowhere_grant_nothing(root: Path) -> None:
    (root / "round").symlink_to("round")
    (root / "dangling").symlink_to("/no/such/place")
    view = View((), (str(root / "round"), str(root / "dangling"), "/no/such/path"))
    assert destinations(operations(view, root), "--ro-bind") == []


def test_a_link_upwards_leads_where_the_kernel_says(root: Path) -> None:
    (root / "skills" / "up").symlink_to("../out")
    found = operations(View((), ()), root, readable=("skills/up",))
    assert destinations(found, "--ro-bind") == [str(root / "out")]


def test_what_lies_in_something_granted_is_not_mounted_again(root: Path) -> None:
    (root / "skills" / "link").symlink_to("a")
    (root / "skills" / "a").mkdir()
    found = operations(View((str(root / "skills"),), (str(root / "skills" / "link"),)), root, readable=("skills/a",))
    assert destinations(found, "--ro-bind") == [str(root / "skills")]
    assert str(root / "skills" / "link") not in destinations(found, "--symlink")


def test_nothing_is_mounted_or_linked_where_a_command_may_write(root: Path) -> None:
    (root / "work" / "link").symlink_to("inputs")
    view = View((), (str(root / "work" / "link"),))
    found = operations(view, root, "work", "work/inputs", "tmp", readable=("work/inputs", "tmp"))
    assert destinations(found, "--bind") == [str(root / "tmp"), str(root / "work")]
    assert destinations(found, "--ro-bind") == []
    assert not any(path.startswith(str(root / "work")) for path in destinations(found, "--symlink"))


def test_a_folder_to_write_in_one_to_read_is_mounted_later(root: Path) -> None:
    found = operations(View((), (str(root),)), root, "work")
    mounts = [operation for operation in found if operation[0] in ("--bind", "--ro-bind")]
    assert mounts == [("--ro-bind", str(root), str(root)), ("--bind", *[str(root / "work")] * 2)]


def test_processes_and_devices_of_the_machine_are_not_granted(root: Path) -> None:
    found = operations(View(("/proc/meminfo", "/dev/shm", "/proc"), ("/dev",)), root)
    assert destinations(found, "--ro-bind") == []
    everything = operations(View((), ("/",)), root)
    assert destinations(everything, "--ro-bind") == ["/"]
    assert everything.index(("--tmpfs", "/dev")) > everything.index(("--ro-bind", "/", "/"))


def test_the_temporary_folder_is_the_workspaces_unless_something_is_made_in_it(tmp_path: Path) -> None:
    # A workspace that has nothing to do with /tmp.
    request = CommandRequest(("true",), cwd="/", root="/usr", writable=("/usr/tmp",))
    found = View((), ("/usr/lib",)).operations(request)
    assert ("--bind", "/usr/tmp", "/tmp") in found
    if tmp_path.is_relative_to("/tmp"):
        deep = tmp_path / "deep"
        deep.mkdir()
        found = View((), (str(deep),)).operations(request)
        assert destinations(found, "--bind") == []
        way = f"/tmp/{tmp_path.parts[2]}"
        assert [operation[-1] for operation in found if "--tmpfs" in operation] == ["/tmp", way, "/dev/shm"]
        assert found.index(("--remount-ro", way)) > found.index(("--ro-bind", str(deep), str(deep)))


def test_what_is_made_for_the_view_is_closed_at_the_end(root: Path) -> None:
    assert operations(View((), ()), root, "work")[-1] == ("--remount-ro", "/")


def test_small_settings_are_copied_and_programs_mounted(root: Path) -> None:
    found = operations(View(("/etc/passwd", "/usr/bin"), ()), root)
    assert ("--perms", "0444", "--file", "/etc/passwd", "/etc/passwd") in found
    assert destinations(found, "--ro-bind") == ["/usr/bin"]


def test_tmp_lasts_if_it_is_the_folder_of_the_workspace(root: Path) -> None:
    def request(root: str) -> CommandRequest:
        return CommandRequest(("true",), cwd="/", root=root, writable=(f"{root}/tmp",))

    assert View(("/usr",), ()).temporary_folders(request("/data/ws_1")) == ("/dev/shm",)
    assert View(("/usr",), (str(root),)).temporary_folders(request(str(root))) == ("/tmp", "/dev/shm")
