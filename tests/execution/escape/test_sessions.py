"""Rows 43, 45 and 49: one session's commands have no effect on another's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from flink_skills.execution import IsolationLevel, Limits
from tests.execution.escape.columns import expected_level
from tests.execution.escape.conftest import backend_params
from tests.execution.escape.ending import end_all
from tests.execution.escape.expecting import expect
from tests.execution.escape.worker import Room, WorkerError, WorkerProcess
from tests.execution.escape.world import World
from tests.kit.waiting import MARGIN, SLOWNESS

FILES = IsolationLevel.LANDLOCK_PARTIAL
COMMANDS = 64

worlds = pytest.mark.parametrize("worker", backend_params(), indirect=True)


def _plant(world: World, room: Room, path: str, text: str) -> None:
    """Have a command of the first session write to the folder of the second."""
    plant = (
        "import os, sys; path, text = sys.argv[1:]; os.makedirs(os.path.dirname(path), exist_ok=True); "
        "open(path, 'w').write(text)"
    )
    result = world.worker.run(world.python(plant, str(Path(room.root, path)), text))[0]
    assert result.error is None


@worlds
@pytest.mark.parametrize("name", [".profile", ".bash_profile"])
def test_row43_what_a_shell_reads_when_it_starts(worker: WorkerProcess, world: World, name: str) -> None:
    _plant(world, world.other, f"home/{name}", "echo planted\n")
    shell = "/bin/sh" if name == ".profile" else "/bin/bash"
    result = worker.run(world.request(shell, "-l", "-c", "echo ran", room=world.other))[0]
    assert b"ran" in result.stdout, result
    expect(worker, b"planted" in result.stdout, FILES)


@worlds
def test_row43_what_a_python_reads_when_it_starts(worker: WorkerProcess, world: World) -> None:
    text = "import site; print(site.ENABLE_USER_SITE, site.getusersitepackages())"
    said = worker.run(world.request(worker.python, "-c", text, room=world.other))[0].stdout.decode().split()
    if said[0] != "True":
        pytest.skip("this Python reads nothing of the user's: it is a virtual environment")
    relative = str(Path(said[1]).relative_to(world.other.root))
    _plant(world, world.other, f"{relative}/usercustomize.py", "print('planted')\n")
    result = worker.run(world.request(worker.python, "-c", "print('ran')", room=world.other))[0]
    assert b"ran" in result.stdout, result
    expect(worker, b"planted" in result.stdout, FILES)


_SETTINGS = """
import ctypes, os, resource, signal, time
libc, limits = ctypes.CDLL(None), {}
for name in ("NOFILE", "STACK", "CPU"):
    limits[name] = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
status = [line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn", "Seccomp", "NoNewPrivs"))]
print(os.getcwd(), os.umask(0o777), limits, os.getpriority(0, 0), os.sched_getscheduler(0), os.sched_getaffinity(0))
print(status, open("/proc/self/oom_score_adj").read(), os.getsid(0) == os.getpgrp() == os.getpid(), sorted(os.environ))
print([libc.prctl(option, 0, 0, 0, 0) for option in (30, 42)])  # slack of timers, huge pages
os.chdir("/usr")
os.environ["PLANTED"] = "yes"
for name, (_, hard) in limits.items():
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (50, hard))
os.nice(10)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for option, value in ((1, 0), (36, 1), (29, 10**9), (41, 1)):  # end of the parent, adoption, and those above
    libc.prctl(option, value, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    time.sleep(300)
"""


@pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)
def test_row43_settings_of_a_process_end_with_its_command(worker: WorkerProcess, world: World) -> None:
    seen = [worker.run(world.python(_SETTINGS))[0] for _ in range(3)]
    assert seen[0].exit_code == 0, seen[0]
    assert {result.stdout for result in seen} == {seen[0].stdout}
    assert world.processes() == []


@worlds
def test_row43_what_the_worker_imports(worker: WorkerProcess, world: World) -> None:
    planted = world.outside / "json.py"
    try:
        result = worker.run(world.python("import sys; open(sys.argv[1], 'w').write('planted = 1')", str(planted)))[0]
        assert result.error is None
        expect(worker, planted.exists(), FILES)
    finally:
        planted.unlink(missing_ok=True)


@worlds
def test_row44_the_mode_of_a_shared_script(worker: WorkerProcess, world: World) -> None:
    # Modes are metadata, which some levels leave open; what another session runs is not its own copy's business.
    script = Path(world.room.skill, "scripts", "run.sh")
    world.shell(f"chmod 000 {script}; chmod 000 {script.parent}")
    result = worker.run(world.request("/bin/sh", f"{world.other.skill}/scripts/run.sh", room=world.other))[0]
    assert (result.exit_code, result.stdout) == (0, b"report\n"), result


@worlds
def test_row45_sessions_in_parallel(worker: WorkerProcess, world: World) -> None:
    worker.run(world.request("/bin/true"))
    before = worker.call("state")
    rooms = (world.room, world.other)
    requests, words = [], []
    for number in range(COMMANDS):
        room, foreign = rooms[number % 2], rooms[1 - number % 2]
        word = f"w{number:03d}"
        text = (
            f"echo {word} > own-{word}; for i in $(seq 200); do echo {word}-out; echo {word}-err >&2; done; cat; "
            f"cat {foreign.work}/own-* 2> /dev/null; cat own-{word}; setsid sleep 300 > /dev/null 2>&1 & exit {number}"
        )
        words.append(word)
        requests.append(world.request("/bin/sh", "-c", text, room=room, stdin=f"{word}-in\n".encode()))
    results = worker.run(*requests)
    crossed = []
    for number, result in enumerate(results):
        word = words[number]
        assert result.error is None
        assert result.stderr == f"{word}-err\n".encode() * 200
        head, tail = f"{word}-out\n" * 200 + f"{word}-in\n", f"{word}\n"
        text = result.stdout.decode()
        assert text.startswith(head)
        assert text.endswith(tail)
        assert result.exit_code == number
        crossed += text[len(head) : -len(tail)].split()
    expect(worker, crossed, FILES)
    if expected_level(worker.backend) > IsolationLevel.NONE:
        assert world.processes() == []
        after = worker.call("state")
        for name in ("descriptors", "tasks"):
            assert after[name] <= before[name], f"{name} grew from {before[name]} to {after[name]}"
    else:
        end_all(world.processes)


isolated = pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)


def _write_event(world: World, text: str) -> bool:
    """Have the worker write the event of the first session; whether it did. It may refuse, and may not block."""
    started = time.monotonic()
    try:
        world.worker.call("write_event", key=f"a {world.mark}", text=text)
    except WorkerError as error:
        assert "ExecutionError" in str(error), error
        return False
    finally:
        assert time.monotonic() - started < MARGIN
    return True


def _unchanged(world: World, names: set[str], canary: str) -> None:
    assert {path.name for path in world.outside.iterdir()} == names
    assert (world.outside / "canary").read_text() == canary


@isolated
@pytest.mark.parametrize(
    "trap",
    [
        "rm -rf inputs; ln -s {outside} inputs",
        "rm -f inputs/event.json; ln -s {outside}/canary inputs/event.json",
        "rm -f inputs/event.json; ln -s {outside}/made inputs/event.json",
        "rm -f inputs/event.json; mkfifo inputs/event.json",
        "rm -rf inputs; mkfifo inputs",
        "rm -rf inputs; echo x > inputs",
        "rm -f inputs/event.json; mkdir -p inputs/event.json/full",
        "chmod 000 inputs",
        "rm -rf inputs",
    ],
)
def test_row46_the_event_is_written_past_traps(worker: WorkerProcess, world: World, trap: str) -> None:
    names, canary = {path.name for path in world.outside.iterdir()}, (world.outside / "canary").read_text()
    _write_event(world, '{"n": 0}')
    result = world.shell(trap.format(outside=world.outside))
    assert result.exit_code == 0, result
    if _write_event(world, '{"n": 1}'):
        seen = world.shell("cat inputs/event.json", limits=Limits(wall_time=MARGIN))
        assert seen.stdout == b'{"n": 1}', seen
    _unchanged(world, names, canary)


@isolated
def test_row46_the_event_is_written_while_its_folder_is_swapped(worker: WorkerProcess, world: World) -> None:
    names, canary = {path.name for path in world.outside.iterdir()}, (world.outside / "canary").read_text()
    swap = """
import os, sys, time
end = time.monotonic() + 3
outside, folder = sys.argv[1], "inputs"
print("up", flush=True)
while time.monotonic() < end:
    try:
        os.rename(folder, "kept")
        os.symlink(outside, folder)
        os.unlink(folder)
        os.rename("kept", folder)
    except OSError:
        for name in (folder,):
            if os.path.islink(name):
                os.unlink(name)
        os.makedirs(folder, exist_ok=True)
"""
    running = worker.begin([world.python(swap, str(world.outside), limits=Limits(wall_time=30 * SLOWNESS))])
    end = time.monotonic() + 3
    written = 0
    while time.monotonic() < end:
        written += _write_event(world, f'{{"n": {written}}}')
    result = worker.results(running)[0]
    assert (result.exit_code, result.stdout) == (0, b"up\n"), result
    assert written
    _unchanged(world, names, canary)


@isolated
def test_row46_a_skill_is_staged_past_traps(worker: WorkerProcess, world: World) -> None:
    names, canary = {path.name for path in world.outside.iterdir()}, (world.outside / "canary").read_text()
    for trap in (
        f"rm -rf {world.room.root}/skills; ln -s {world.outside} {world.room.root}/skills",
        f"mv {world.room.skill} {world.room.work}/moved; ln -s {world.outside} {world.room.skill}",
        f"chmod -R 700 {world.room.root}/skills; rm -rf {world.room.skill}; ln -s {world.outside} {world.room.skill}",
    ):
        world.shell(trap)
        started = time.monotonic()
        try:
            worker.call("stage_again", key=f"a {world.mark}")
        except WorkerError as error:
            assert "ExecutionError" in str(error), error
        assert time.monotonic() - started < MARGIN
        _unchanged(world, names, canary)


@isolated
def test_row46_a_hostile_workspace_is_removed(worker: WorkerProcess, world: World) -> None:
    names, canary = {path.name for path in world.outside.iterdir()}, (world.outside / "canary").read_text()
    text = """
import os, sys
os.symlink(sys.argv[1], "to-outside")
os.symlink(sys.argv[1] + "/canary", "to-canary")
os.mkfifo("fifo")
for n in range(1000):
    open(f"file{n}", "w").close()
os.mkdir("shut"); open("shut/x", "w").close(); os.chmod("shut", 0)
open("big", "wb").truncate(1 << 40)
for n in range(300):
    os.mkdir("deep"); os.chdir("deep")
"""
    limits = Limits(workspace_files=0, file_size=0, workspace_bytes=0)
    result = worker.run(world.python(text, str(world.outside), limits=limits))[0]
    assert result.exit_code == 0, result
    started = time.monotonic()
    worker.call("remove", key=f"a {world.mark}")
    assert time.monotonic() - started < MARGIN
    assert not os.path.lexists(world.room.root)
    _unchanged(world, names, canary)


@isolated
def test_row46_a_folder_of_a_command_that_is_no_folder_any_more(worker: WorkerProcess, world: World) -> None:
    folder = Path(world.room.work, "here")
    result = world.shell(f"mkdir here && rmdir here && ln -s {world.outside} here")
    assert result.exit_code == 0
    inside = worker.run(world.request("/bin/sh", "-c", "cat canary; ls", cwd=str(folder)))[0]
    # Where files are closed, standing in a folder does not open it.
    if worker.backend != "hygiene":
        assert b"canary" not in inside.stdout, inside
