"""Files go to the sandbox before a command and come back after it, changed ones only."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from flink_skills.execution import CommandUser, Limits
from tests.integrations.remote.cluster import Cluster
from tests.integrations.remote.conftest import Key, NewBackend, sharing
from tests.kit.waiting import until


def sent(cluster: Cluster) -> int:
    """How many files were uploaded, and fetched, so far."""
    return sum(verb in {"upload", "download"} for verb, _ in cluster.pods["pool-1"].calls)


@sharing
async def test_what_a_command_writes_comes_back(shared_key: Key) -> None:
    await shared_key.sh(
        "mkdir -p $OUTPUT_DIR/deep/er; echo result > $OUTPUT_DIR/deep/er/file; printf x > run.sh; chmod +x run.sh"
    )

    assert (shared_key.out / "deep" / "er" / "file").read_text() == "result\n"
    assert os.access(shared_key.work / "run.sh", os.X_OK)


async def test_what_the_worker_writes_goes_there_once(cluster: Cluster, key: Key) -> None:
    (key.work / "inputs").mkdir()
    (key.work / "inputs" / "event.json").write_text("1")
    assert (await key.sh("cat inputs/event.json; cat ../skills/report/SKILL.md")).stdout == b"1# Report\n"

    before = sent(cluster)
    assert (await key.sh("cat inputs/event.json")).stdout == b"1"
    assert sent(cluster) == before + 1  # the order alone

    (key.work / "inputs" / "event.json").write_text("2")
    assert (await key.sh("cat inputs/event.json")).stdout == b"2"


@sharing
async def test_removed_files_are_removed_on_the_other_side(shared_key: Key) -> None:
    (shared_key.work / "old").mkdir()
    (shared_key.work / "old" / "file").write_text("old")
    await shared_key.sh("cat old/file; echo new > $OUTPUT_DIR/new")

    (shared_key.work / "old" / "file").unlink()
    (shared_key.work / "old").rmdir()
    assert (await shared_key.sh("ls; rm $OUTPUT_DIR/new")).stdout == b""
    assert list(shared_key.out.iterdir()) == []


@sharing
async def test_skills_are_read_only_there_as_here(shared_key: Key) -> None:
    program = shared_key.skill / "scripts" / "run.sh"
    shared_key.skill.chmod(0o755)
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o555)
    shared_key.skill.chmod(0o555)

    result = await shared_key.sh(
        "../skills/report/scripts/run.sh; stat -c %a ../skills/report ../skills/report/scripts/run.sh"
    )
    assert result.stdout == b"ran\n555\n555\n"

    await shared_key.run("sh", "-c", "chmod -R u+w ../skills; echo planted > ../skills/report/SKILL.md")
    assert (shared_key.skill / "SKILL.md").read_text() == "# Report\n"


@sharing
async def test_a_changed_skill_replaces_the_old_one(shared_key: Key) -> None:
    await shared_key.sh("cat ../skills/report/SKILL.md")
    shared_key.skill.chmod(0o755)
    (shared_key.skill / "SKILL.md").unlink()
    (shared_key.skill / "SKILL.md").write_text("# New\n")
    (shared_key.skill / "more.md").write_text("more")
    shared_key.skill.chmod(0o555)

    assert (await shared_key.sh("cat ../skills/report/*.md")).stdout == b"# New\nmore"


@sharing
async def test_links_within_the_workspace_travel(shared_key: Key) -> None:
    (shared_key.work / "relative").symlink_to("../out")
    (shared_key.work / "absolute").symlink_to(shared_key.out)

    await shared_key.sh("echo 1 > relative/1; echo 2 > absolute/2; ln -s ../out mine; ln -s $OUTPUT_DIR/1 file")

    assert sorted(path.name for path in shared_key.out.iterdir()) == ["1", "2"]
    assert (shared_key.work / "mine").readlink() == Path("../out")
    assert (shared_key.work / "file").readlink() == shared_key.out / "1"


@sharing
async def test_links_out_of_the_workspace_stay_there(shared_key: Key) -> None:
    result = await shared_key.sh(
        "ln -s /etc/passwd absolute; ln -s ../../.. relative; ln -s . dot; ln -s dot/../.. later; echo x > real"
    )

    assert sorted(path.name for path in shared_key.work.iterdir()) == ["dot", "real"]
    assert b"not copied back from the sandbox" in result.stderr
    assert b"work/absolute" in result.stderr
    # They are no reason to remove them there.
    assert (await shared_key.sh("readlink absolute")).stdout == b"/etc/passwd\n"


@sharing
async def test_devices_pipes_and_sockets_do_not_travel(shared_key: Key) -> None:
    result = await shared_key.run("sh", "-c", "mkfifo pipe; echo x > real", limits=Limits(wall_time=20))

    assert result.error is None
    assert [path.name for path in shared_key.work.iterdir()] == ["real"]


@sharing
async def test_names_that_are_no_text_travel(shared_key: Key) -> None:
    name = os.fsdecode(b"\xff \n'\"$(x)")
    (shared_key.work / name).write_text("here")

    result = await shared_key.sh('cat -- *; for f in *; do cp -- "$f" "$f-2"; done')

    assert result.stdout == b"here"
    assert (shared_key.work / f"{name}-2").read_text() == "here"


async def test_large_files_travel_in_parts(cluster: Cluster, key: Key) -> None:
    data = os.urandom(1 << 20) * 20
    (key.work / "large").write_bytes(data)

    await key.sh("cp large larger; echo more >> larger")

    assert (key.work / "larger").read_bytes() == data + b"more\n"
    uploads = [verb for verb, _ in cluster.pods["pool-1"].calls].count("upload")
    assert uploads >= 3


@sharing
async def test_what_exceeds_the_workspace_stays_there(shared_key: Key) -> None:
    limits = Limits(workspace_bytes=1 << 20)

    result = await shared_key.sh("truncate -s 2000000 sparse; echo small > small", limits=limits)

    assert [path.name for path in shared_key.work.iterdir()] == ["small"]
    assert b"work/sparse" in result.stderr


@sharing
async def test_readable_folders_and_files_outside_of_the_workspace(shared_key: Key, tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "given" / "file.csv"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "data").write_text("data\n")
    file.parent.mkdir()
    file.write_text("a,b\n")
    (tmp_path / "given" / "secret").write_text("secret")

    result = await shared_key.run(
        "sh", "-c", f"cat {folder}/deep/data {file}; ls {file.parent}; echo x > {folder}/planted",
        readable=(str(folder), str(file)),
    )  # fmt: skip

    assert result.stdout == b"data\na,b\nfile.csv\n"
    assert not (folder / "planted").exists()


@sharing
async def test_folders_of_one_command_are_not_those_of_the_next(shared_key: Key) -> None:
    await shared_key.sh("echo x > $OUTPUT_DIR/kept")
    await shared_key.run("true", writable=(str(shared_key.work),))

    assert (await shared_key.sh("cat $OUTPUT_DIR/kept")).stdout == b"x\n"


@sharing
async def test_a_writable_folder_that_a_command_replaced_is_fixed(shared_key: Key) -> None:
    await shared_key.run("sh", "-c", "rm -r $OUTPUT_DIR; ln -s /etc $OUTPUT_DIR")

    assert (await shared_key.sh("echo x > $OUTPUT_DIR/file; cd $OUTPUT_DIR; pwd -P")).stdout.decode().strip() == str(
        shared_key.out
    )
    assert (shared_key.out / "file").read_text() == "x\n"


@sharing
async def test_a_file_in_the_place_of_a_folder_and_the_other_way_round(shared_key: Key) -> None:
    await shared_key.sh("mkdir a; echo x > a/x; echo y > b")
    await shared_key.sh("rm -r a; echo z > a; rm b; mkdir b; echo w > b/w")

    assert (shared_key.work / "a").read_text() == "z\n"
    assert (shared_key.work / "b" / "w").read_text() == "w\n"


@sharing
async def test_the_worker_can_go_on_with_what_a_command_has_closed(shared_key: Key) -> None:
    await shared_key.sh("mkdir closed; echo x > closed/file; chmod 0 closed/file; chmod 500 closed")

    found = shared_key.work / "closed" / "file"
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700


@sharing
async def test_commands_at_once_do_not_undo_each_others_files(shared_key: Key) -> None:
    (shared_key.work / "shared").write_text("old")
    first = asyncio.ensure_future(shared_key.sh("until [ -e $OUTPUT_DIR/go ]; do sleep 0.02; done; echo first > first"))
    await shared_key.sh("echo second > second")
    (shared_key.work / "shared").write_text("new from the worker")
    await shared_key.sh("cat shared; touch $OUTPUT_DIR/go")
    (shared_key.work / "shared").write_text("newer from the worker")
    await first

    assert (shared_key.work / "shared").read_text() == "newer from the worker"
    assert (shared_key.work / "first").read_text() == "first\n"
    assert (await shared_key.sh("cat shared second")).stdout == b"newer from the workersecond\n"


async def test_a_restarted_container_gets_everything_again(cluster: Cluster, key: Key) -> None:
    (key.work / "input").write_text("input\n")
    await key.sh("cat input; echo kept > $OUTPUT_DIR/kept")

    cluster.restart("pool-1")

    assert (await key.sh("cat input $OUTPUT_DIR/kept ../skills/report/SKILL.md")).stdout == b"input\nkept\n# Report\n"
    assert (key.out / "kept").exists()


async def test_a_command_whose_pod_is_replaced_is_not_repeated(cluster: Cluster, key: Key, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    task = asyncio.ensure_future(key.run("sh", "-c", f"echo started >> {starts}; sleep 60"))
    await until(starts.exists)

    cluster.restart("pool-1")

    result = await asyncio.wait_for(task, 60)
    assert result.exit_code is None
    assert "was replaced while a command ran in it" in str(result.error)
    assert starts.read_text() == "started\n"
    assert (await key.sh("echo on")).stdout == b"on\n"


async def test_too_much_to_send_is_an_error_with_the_folder(key: Key) -> None:
    with (key.work / "huge").open("wb") as file:
        file.truncate(2 << 30)

    result = await key.run("true")

    assert result.exit_code is None
    assert "and a sandbox receives at most 1073741824" in str(result.error)


async def test_no_secret_stays_in_the_sandboxs_files(cluster: Cluster, key: Key) -> None:
    await key.sh("true", env={"API_KEY": "the-secret-value"}, stdin=b"the-secret-value")
    await key.sh("true")

    for path in cluster.pods["pool-1"].folder.rglob("*"):
        assert not path.is_file() or b"the-secret-value" not in path.read_bytes(), path


async def test_orders_leave_nothing_behind(cluster: Cluster, key: Key) -> None:
    for number in range(4):
        await key.sh(f"echo {number} > file")

    place = cluster.pods["pool-1"].folder / ".flink-skills"
    left = {path.name.partition(".")[0] for path in place.iterdir() if path.is_file()} - {"program"}
    assert len([name for name in left if not name.startswith("program")]) <= 1


async def test_files_belong_to_the_user_of_commands(new_backend: NewBackend, tmp_path: Path) -> None:
    backend = new_backend(user=CommandUser(65534, 65534))
    await backend.start()
    key = Key(backend, tmp_path / "ws_1")

    await key.sh("mkdir folder; echo x > folder/file")

    # Only root can give files away.
    expected = 65534 if os.geteuid() == 0 else os.geteuid()
    assert {(key.work / "folder" / "file").stat().st_uid, (key.work / "folder").stat().st_uid} == {expected}
