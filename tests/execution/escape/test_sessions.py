"""Rows 43, 45 and 49: one session's commands have no effect on another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.execution import IsolationLevel
from tests.execution.escape.columns import expected_level
from tests.execution.escape.conftest import backend_params
from tests.execution.escape.ending import end_all
from tests.execution.escape.expecting import expect
from tests.execution.escape.worker import Room, WorkerProcess
from tests.execution.escape.world import World

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
