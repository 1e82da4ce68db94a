"""What a command and its caller see of each other, through a real server and real processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.execution import CommandRequest, Limits
from flink_skills.integrations.remote import RemoteBackend
from tests.integrations.remote.cluster import Cluster
from tests.integrations.remote.conftest import Key, sharing
from tests.kit.waiting import MARGIN, SLOWNESS, until


@pytest.mark.row("H9")
async def test_a_command_runs_in_the_pod_and_not_here(cluster: Cluster, key: Key) -> None:
    result = await key.sh("readlink -f /proc/self/cwd; pwd; printenv OUTPUT_DIR; echo error >&2")

    # The output names the worker's folders, as the rest of the worker does.
    assert result.stdout.decode().split() == [str(key.work), str(key.work), str(key.out)]
    assert result.stderr == b"error\n"
    pod = cluster.pods["pool-1"]
    assert (pod.folder / ".flink-skills/files/workspace/work").is_dir()


@sharing
@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
async def test_exit_codes_are_told(shared_key: Key, code: int) -> None:
    result = await shared_key.run("sh", "-c", f"exit {code}")

    assert (result.exit_code, result.signal, result.error) == (code, None, None)


@sharing
async def test_signals_are_told(shared_key: Key) -> None:
    result = await shared_key.run("sh", "-c", "kill -9 $$")

    assert (result.exit_code, result.signal, result.timed_out) == (None, 9, False)


@sharing
async def test_a_program_that_is_not_there_is_the_commands_failure(shared_key: Key) -> None:
    result = await shared_key.run("no-such-program")

    assert (result.exit_code, result.error) == (127, None)
    assert b"no-such-program" in result.stderr


@sharing
async def test_a_working_folder_that_is_not_there_is_an_error(shared_key: Key) -> None:
    result = await shared_key.run("true", cwd="/no/such/folder")

    assert result.exit_code is None
    assert "/no/such/folder" in str(result.error)


@sharing
async def test_standard_input_arrives_whole(shared_key: Key) -> None:
    data = os.urandom(3_000_000)

    result = await shared_key.run("sh", "-c", "wc -c; cat >/dev/null", stdin=data)
    assert result.stdout.split() == [b"3000000"]
    echoed = await shared_key.run("cat", stdin=b"\x00\xff\n")
    assert echoed.stdout == b"\x00\xff\n"


@sharing
async def test_standard_input_that_nobody_reads_hinders_nothing(shared_key: Key) -> None:
    assert (await shared_key.run("true", stdin=bytes(1_000_000))).exit_code == 0


@sharing
async def test_the_environment_is_the_requests_and_no_more(shared_key: Key) -> None:
    result = await shared_key.sh("env", env={"GREETING": "hällo = ' \n x"})

    names = {line.partition("=")[0] for line in result.stdout.decode().splitlines()}
    assert "GREETING" in names
    assert "POD" not in names and "FLINK_SKILLS" not in "".join(names)


@sharing
async def test_the_path_has_the_workspaces_programs_and_the_sandboxs_own(shared_key: Key) -> None:
    tool = shared_key.work / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho from the workspace\n")
    tool.chmod(0o755)

    result = await shared_key.sh("tool; echo $PATH", env={"PATH": f"{tool.parent}:/only/on/the/worker"})

    found, path = result.stdout.decode().splitlines()
    assert found == "from the workspace"
    assert path == f"{tool.parent}:{os.defpath}"


@sharing
async def test_output_keeps_beginning_and_end(shared_key: Key) -> None:
    result = await shared_key.run("sh", "-c", "echo begin; yes | head -c 5000000; echo end", limits=Limits(output=1000))

    assert result.stdout.startswith(b"begin\n") and result.stdout.endswith(b"end\n")
    assert result.stdout_dropped == 5_000_010 - 1000
    assert f"[... {result.stdout_dropped} bytes left out ...]".encode() in result.stdout
    assert result.truncated and not result.stderr_dropped


@sharing
async def test_output_need_not_be_text(shared_key: Key) -> None:
    result = await shared_key.run("printf", r"\377\000\n")

    assert result.stdout == b"\xff\x00\n"


async def test_a_timeout_ends_the_whole_tree(cluster: Cluster, key: Key) -> None:
    text = "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & trap '' TERM; sleep 100"

    result = await key.run("sh", "-c", text, limits=Limits(wall_time=0.5))

    assert result.timed_out
    assert result.duration < 0.5 + MARGIN
    await until(lambda: not cluster.pods["pool-1"].processes())


async def test_nothing_is_left_of_a_command_that_ended(cluster: Cluster, key: Key) -> None:
    await key.sh("setsid sleep 1000 & sleep 1000 & exit 0")

    await until(lambda: not cluster.pods["pool-1"].processes())


@sharing
async def test_longer_commands_than_one_request_takes(shared_key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.integrations.remote.sandbox._WAIT_SECONDS", 0.1)

    result = await shared_key.sh("sleep 0.7; echo done")

    assert result.stdout == b"done\n"


@sharing
@pytest.mark.parametrize(
    ("text", "limits", "limit"),
    [
        ("python3 -c 'x = bytearray(300 << 20); import time; time.sleep(60)'", Limits(memory=100 << 20), "memory"),
        ("while :; do :; done", Limits(cpu_time=0.3), "cpu_time"),
        ("for i in $(seq 40); do sleep 60 & done; wait", Limits(processes=20), "processes"),
        ("head -c 3000000 /dev/zero > big", Limits(file_size=1 << 20), "file_size"),
        ("for i in $(seq 50); do echo > f$i; done; sleep 60", Limits(workspace_files=20), "workspace_files"),
        ("for i in 1 2 3; do head -c 900000 /dev/zero > f$i; done; sleep 60", Limits(workspace_bytes=1 << 20),
         "workspace_bytes"),
    ],
)  # fmt: skip
async def test_limits_are_kept_and_told(shared_key: Key, text: str, limits: Limits, limit: str) -> None:
    result = await shared_key.run("sh", "-c", text, limits=limits)

    assert (result.limit, result.error, result.timed_out) == (limit, None, False)
    assert result.exit_code != 0


@sharing
async def test_a_full_workspace_can_be_cleared_and_not_filled(shared_key: Key) -> None:
    limits = Limits(workspace_files=20)
    await shared_key.run("sh", "-c", "for i in $(seq 50); do echo > f$i; done", limits=limits)

    assert (await shared_key.run("sh", "-c", "echo more > more", limits=limits)).exit_code != 0
    assert (await shared_key.run("sh", "-c", "rm -f f*", limits=limits)).exit_code == 0
    assert (await shared_key.run("sh", "-c", "echo more > more", limits=limits)).exit_code == 0


async def test_commands_of_one_key_run_at_the_same_time(cluster: Cluster, key: Key) -> None:
    # Each waits for the file of the other.
    wait = "touch {mine}; for i in $(seq 200); do [ -e {other} ] && exit 0; sleep 0.05; done; exit 1"
    results = await asyncio.gather(
        key.run("sh", "-c", wait.format(mine="a", other="b")), key.run("sh", "-c", wait.format(mine="b", other="a"))
    )

    assert [result.exit_code for result in results] == [0, 0]
    assert cluster.made == 1


@pytest.mark.row("H9")
async def test_each_key_has_a_sandbox_of_its_own(cluster: Cluster, backend: RemoteBackend, tmp_path: Path) -> None:
    keys = [Key(backend, tmp_path / "workspaces" / f"ws_{number}") for number in range(4)]

    results = await asyncio.gather(*(key.sh(f"echo {key.root.name} > mine; cat *") for key in keys))

    assert [result.stdout.decode().strip() for result in results] == [key.root.name for key in keys]
    assert len(cluster.claims) == cluster.made == 4


async def test_cancelling_ends_the_command(cluster: Cluster, key: Key) -> None:
    task = asyncio.ensure_future(key.run("sh", "-c", "touch started; sleep 1000"))
    pod = cluster.pods["pool-1"]
    await until((pod.folder / ".flink-skills/files/workspace/work/started").exists)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await until(lambda: not pod.processes())
    assert (await key.sh("echo again")).stdout == b"again\n"
    assert cluster.made == 1


async def test_closing_ends_commands_and_gives_sandboxes_back(cluster: Cluster, key: Key) -> None:
    task = asyncio.ensure_future(key.run("sleep", "1000"))
    await until(lambda: any(verb == "execute" for verb, _ in cluster.pods["pool-1"].calls[6:]))
    began = time.monotonic()

    await key.backend.close()
    await key.backend.close()

    assert "closed" in str((await task).error)
    assert time.monotonic() - began < MARGIN
    assert cluster.claims == []
    assert "closed" in str((await key.run("true")).error)


async def test_a_command_without_a_workspace(backend: RemoteBackend) -> None:
    result = await backend.run(CommandRequest(("pwd",), cwd="/"))

    assert result.stdout == b"/\n"


async def test_starting_twice_makes_one_sandbox(cluster: Cluster, backend: RemoteBackend) -> None:
    await backend.start()

    assert cluster.made == 1


async def test_a_closed_backend_starts_again(cluster: Cluster, key: Key) -> None:
    await key.backend.close()
    await key.backend.start()

    assert (await key.sh("cat ../skills/report/SKILL.md")).stdout == b"# Report\n"


_SET_CHILD_SUBREAPER = 36


def zombies() -> list[int]:
    """Return the children of this process that have exited and that no process waited for."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if (state, parent) == ("Z", str(os.getpid())):
            found.append(int(process.name))
    return found


@pytest.fixture
def first_process() -> Iterator[None]:
    """Have orphans become children of this process, as they become children of the first process of a pod."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    for child in zombies():
        os.waitpid(child, 0)


@pytest.mark.usefixtures("first_process")
async def test_a_command_leaves_only_its_watcher_to_reap(key: Key) -> None:
    await key.sh("true")
    before = len(zombies())

    await key.sh("setsid sleep 1000 & true")

    await until(lambda: len(zombies()) > before)
    assert len(zombies()) == before + 1


@pytest.mark.usefixtures("first_process")
async def test_a_watcher_that_is_killed_and_not_reaped_is_noticed(cluster: Cluster, key: Key) -> None:
    task = asyncio.ensure_future(key.run("sh", "-c", "touch started; sleep 1000"))
    place = cluster.pods["pool-1"].folder / ".flink-skills"
    await until((place / "files/workspace/work/started").exists)
    newest = max(place.glob("*.process"), key=lambda path: path.stat().st_mtime_ns)

    os.kill(int(newest.read_text()), signal.SIGKILL)

    result = await asyncio.wait_for(task, 60 * SLOWNESS)
    assert result.error == "the process that watched the command was killed"
