"""The store: leases, eviction, sweeping up, disks that fail, and who may use it.

Examines the internals of sources.locking and sources.upkeep on purpose.
"""

import errno
import fcntl
import gc
import hashlib
import io
import logging
import multiprocessing
import os
import resource
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from flink_skills.errors import SourceError
from flink_skills.skill import Limits
from flink_skills.sources import FetchRecord, Store, StoredTree, remove_tree, upkeep
from flink_skills.sources.locking import Lease, file_lock, try_lock
from tests.kit.disks import small_disk
from tests.sources.bombs import PRELOADED

SKILL = b"---\nname: greet\ndescription: Says hello.\n---\nHi\n"
BLOCK = 4096


def archive(folder: Path, name: str = "s.zip", size: int = 0, entries: dict[str, bytes] | None = None) -> str:
    """A zip with the skill ``greet``, and ``size`` bytes that depend on the archive's name."""
    path = folder / name
    content = entries or {"greet/SKILL.md": SKILL, "greet/data": name.encode().ljust(size, b".")}
    with zipfile.ZipFile(path, "w") as made:
        for entry, data in content.items():
            made.writestr(zipfile.ZipInfo(entry), data)
    return str(path)


def trees(store: Store) -> set[str]:
    return {path.name for path in Path(store.folder).iterdir() if not path.name.startswith(".")}


def leftovers(store: Store) -> list[str]:
    """Everything below the store that no open tree needs."""
    folder = Path(store.folder)
    found = [*(folder / ".work").glob("*"), *(folder / ".locks").glob("*")]
    found += [path for path in (folder / ".index").glob("*") if not (folder / path.name).is_dir()]
    return [str(path.relative_to(folder)) for path in found]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


# What is there


@pytest.mark.row("B7")
def test_an_archive_is_unpacked_once_at_a_path_of_its_content(tmp_path: Path, store: Store) -> None:
    path = archive(tmp_path)
    tree = store.add_archive(path, "x")
    sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert (tree.path, tree.sha256) == (str(tmp_path / "store" / sha256), sha256)
    inode = os.stat(tree.path).st_ino
    again = Store(store.folder).add_archive(archive(tmp_path, "s.zip"), "elsewhere")
    assert (again.path, os.stat(again.path).st_ino) == (tree.path, inode)
    assert again == store.open_tree(sha256)
    assert leftovers(store) == []


@pytest.mark.row("B11")
def test_everything_in_a_tree_is_read_only(tmp_path: Path, store: Store) -> None:
    tree = store.add_archive(archive(tmp_path), "x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in [Path(tree.path), *Path(tree.path).rglob("*")]}
    assert modes == {0o444, 0o555}


def test_a_tree_whose_maker_was_killed_before_the_last_step_is_made_read_only(tmp_path: Path, store: Store) -> None:
    tree = store.add_archive(archive(tmp_path), "x")
    os.chmod(tree.path, 0o755)
    store.open_tree(tree.sha256)
    assert stat.S_IMODE(os.stat(tree.path).st_mode) == 0o555


@pytest.mark.parametrize("name", ["", "..", "x" * 64, "A" * 64, "0" * 63, "/" + "0" * 63])
def test_what_is_no_digest_opens_nothing(store: Store, tmp_path: Path, name: str) -> None:
    store.add_archive(archive(tmp_path), "x")
    assert store.open_tree(name) is None
    assert store.open_tree("0" * 64) is None


def test_a_single_file_gets_the_folder_of_its_skill(store: Store) -> None:
    tree = store.add_file(SKILL, "SKILL.md", "x", deadline=time.monotonic() + 10)
    assert tree.sha256 == hashlib.sha256(SKILL).hexdigest()
    assert Path(tree.path, "greet/SKILL.md").read_bytes() == SKILL
    assert stat.S_IMODE(Path(tree.path, "greet/SKILL.md").stat().st_mode) == 0o444
    assert leftovers(store) == []


# Leases


def test_a_lease_ends_with_close_and_with_its_last_reference(tmp_path: Path) -> None:
    small = Store(str(tmp_path / "store"), max_size=1)
    first = small.add_archive(archive(tmp_path, "1.zip"), "x")
    second = small.add_archive(archive(tmp_path, "2.zip"), "x")
    assert trees(small) == {first.sha256, second.sha256}
    first.lease.close()
    first.lease.close()
    assert first.lease.closed
    third = small.add_archive(archive(tmp_path, "3.zip"), "x")
    assert trees(small) == {second.sha256, third.sha256}
    del second
    gc.collect()
    small.add_archive(archive(tmp_path, "4.zip"), "x")
    assert third.sha256 in trees(small)
    assert len(trees(small)) == 2


def test_a_lease_is_not_inherited_by_a_program(tmp_path: Path, store: Store) -> None:
    tree = store.add_archive(archive(tmp_path), "x")
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        tree.lease.close()
        Store(store.folder, max_size=1).add_archive(archive(tmp_path, "2.zip"), "x")
        assert tree.sha256 not in trees(store)
    finally:
        program.communicate(b"\n", 30)


def test_a_lease_of_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert Lease.take(str(tmp_path / "x")) is None
    (tmp_path / "file").write_text("x")
    assert Lease.take(str(tmp_path / "file")) is None


def test_where_folders_cannot_be_locked_nothing_is_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, flock = Store(str(tmp_path / "store"), max_size=1), fcntl.flock

    def no_folders(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOLCK, "No locks available")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", no_folders)
    first = store.add_archive(archive(tmp_path, "1.zip"), "x")
    first.lease.close()
    second = store.add_archive(archive(tmp_path, "2.zip"), "x")
    assert trees(store) == {first.sha256, second.sha256}


def test_a_lock_is_exclusive_and_leaves_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with file_lock(path, time.monotonic() + 10, "s"):
        with try_lock(path) as free:
            assert not free
        with pytest.raises(SourceError, match="too long") as error, file_lock(path, time.monotonic(), "s"):
            pass
        assert error.value.retryable
    assert not os.path.exists(path)
    with try_lock(path) as free:
        assert free


def test_one_at_a_time_though_lock_files_come_and_go(tmp_path: Path) -> None:
    """Each holder removes the file, so that waiters find another one or none."""
    path, inside, most = str(tmp_path / "lock"), [0], [0]

    def work() -> None:
        for _ in range(20):
            with file_lock(path, time.monotonic() + 60, "s"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                os.stat(path)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


# Eviction


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"), max_size=0)
    made = [store.add_archive(archive(tmp_path, f"{n}.zip", 20_000), "x") for n in range(4)]
    for age, tree in enumerate(made):
        tree.lease.close()
        os.utime(tree.path, (1000.0 + age, 1000.0 + age))
    used = store.open_tree(made[0].sha256)  # which is a use
    assert used is not None
    used.lease.close()
    each = 3 * BLOCK + BLOCK + 5 * BLOCK  # folders, the skill file and the data
    with_index = each + BLOCK
    capped = Store(store.folder, max_size=3 * with_index)
    new = capped.add_archive(archive(tmp_path, "new.zip", 20_000), "x")
    assert trees(store) == {made[0].sha256, made[3].sha256, new.sha256}
    assert leftovers(store) == []


def test_nothing_is_evicted_that_is_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(str(tmp_path / "store"), max_size=1)
    with caplog.at_level(logging.WARNING):
        made = [store.add_archive(archive(tmp_path, f"{n}.zip"), "x") for n in range(3)]
    assert trees(store) == {tree.sha256 for tree in made}
    assert "skills.store.max-size" in caplog.text
    assert all(Path(tree.path, "greet/SKILL.md").is_file() for tree in made)


def test_an_evicted_tree_comes_back(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"), max_size=1)
    first = store.add_archive(archive(tmp_path, "1.zip"), "x")
    path = first.path
    first.lease.close()
    store.add_archive(archive(tmp_path, "2.zip"), "x").lease.close()
    assert store.open_tree(first.sha256) is None
    assert store.add_archive(archive(tmp_path, "1.zip"), "x").path == path


def test_trees_come_and_go_while_others_open_them(tmp_path: Path) -> None:
    """A tree that was opened is whole until its lease ends, whatever is evicted meanwhile."""
    paths = [archive(tmp_path, f"{n}.zip", 5000) for n in range(3)]
    failures: list[str] = []

    def work(offset: int) -> None:
        store = Store(str(tmp_path / "store"), max_size=1)
        for n in range(15):
            tree = store.add_archive(paths[(n + offset) % 3], "x")
            found = sorted(path.name for path in Path(tree.path, "greet").iterdir())
            if found != ["SKILL.md", "data"] or os.path.getsize(os.path.join(tree.path, "greet/data")) != 5000:
                failures.append(str(found))
            tree.lease.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert leftovers(Store(str(tmp_path / "store"))) == []


def test_what_was_fetched_is_forgotten_with_its_content(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"), max_size=1)
    first = store.add_archive(archive(tmp_path, "1.zip"), "x")
    FetchRecord(first.sha256, '"1"', 1.0).write(store.record_path("one"))
    FetchRecord("0" * 64, '"2"', 1.0, text="an index").write(store.record_path("two"))
    first.lease.close()
    second = store.add_archive(archive(tmp_path, "2.zip"), "x")
    assert trees(store) == {second.sha256}
    assert os.listdir(os.path.join(store.folder, ".urls")) == ["two.json"]


def test_notes_of_what_was_fetched_do_not_pile_up(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signed URL is another one each time."""
    monkeypatch.setattr(upkeep, "_MAX_RECORDS", 3)
    for n in range(6):
        path = store.record_path(f"{n}")
        FetchRecord("0" * 64, None, 1.0).write(path)
        os.utime(path, (1000.0 - n, 1000.0 - n))
    with file_lock(store.lock_path("5"), time.monotonic() + 10, "s"):  # in use
        store.add_archive(archive(tmp_path), "x")
    assert sorted(os.listdir(os.path.join(store.folder, ".urls"))) == ["0.json", "1.json", "2.json", "5.json"]


# After processes that were killed


def leave_behind(store: Store) -> None:
    folder = Path(store.folder)
    for name in (".work", ".locks", ".index", ".urls"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    half = folder / ".work" / ("a" * 64) / "tree/greet"
    half.mkdir(parents=True)
    (half / "SKILL.md").write_bytes(SKILL)
    os.chmod(half / "SKILL.md", 0o444)
    os.chmod(half, 0o555)
    (folder / ".work/evicted-0123" / ("b" * 64)).mkdir(parents=True)
    (folder / ".locks" / ("a" * 64)).touch()
    (folder / ".index" / ("c" * 64)).mkdir()
    (folder / ".index" / ("c" * 64) / "x").write_text("{}")
    (folder / ".urls/key.json.new").write_text("{")
    (folder / ".urls/key.json").write_text("{}")


@pytest.mark.row("B7")
def test_what_the_dead_left_is_swept_up(tmp_path: Path, store: Store) -> None:
    leave_behind(store)
    store.add_archive(archive(tmp_path), "x")
    assert leftovers(store) == []
    assert os.listdir(os.path.join(store.folder, ".urls")) == ["key.json"]


def test_an_opening_of_what_is_there_sweeps_up_too(tmp_path: Path, store: Store) -> None:
    tree = store.add_archive(archive(tmp_path), "x")
    leave_behind(store)
    store.open_tree(tree.sha256)
    assert os.listdir(os.path.join(store.folder, ".work")) == []


def test_what_the_living_make_is_left_alone(tmp_path: Path, store: Store) -> None:
    with file_lock(store.lock_path("key"), time.monotonic() + 10, "s"):
        work = Path(store.work_path("key"))
        (work / "half").write_text("x")
        store.add_archive(archive(tmp_path), "x")
        assert (work / "half").read_text() == "x"
        assert os.path.exists(store.lock_path("key"))


def test_who_takes_a_lock_finds_nothing_of_a_holder_that_was_killed(store: Store) -> None:
    """Its own lock would keep it from sweeping up."""
    half = Path(store.work_path("key"), "half")
    half.write_text("x")
    with file_lock(store.lock_path("key"), time.monotonic() + 10, "s"):
        assert not half.parent.exists()
        half = Path(store.work_path("key"), "half")
        half.write_text("x")
        store.lock_path("key")  # as one does who then waits
        assert half.exists()


def test_remove_tree_removes_what_is_read_only_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "below/link").symlink_to(tmp_path / "kept")
    (tree / "below/file").write_text("x")
    os.chmod(tree / "below", 0o555)
    os.chmod(tree, 0o555)
    remove_tree(str(tree))
    assert not tree.exists()
    remove_tree(str(tree))
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove_tree(str(tmp_path / "link"))
    assert (tmp_path / "kept/file").exists()
    assert not (tmp_path / "link").is_symlink()


# Disks that fail, and other users


def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    path = archive(tmp_path, size=3 << 20)
    with small_disk(disk, 2 << 20):
        store = Store(str(disk / "store"))
        with pytest.raises(SourceError, match=r"No space left.*free some space.*skills\.store\.dir") as error:
            store.add_archive(path, "x")
        assert error.value.retryable
        assert trees(store) == set()
        assert leftovers(store) == []
        store.add_archive(archive(tmp_path, "small.zip"), "x").lease.close()


def limited_file_size(path: str, folder: str) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    return add(path, folder)


def add(path: str, folder: str) -> str:
    try:
        return Store(folder).add_archive(path, "x").path
    except SourceError as error:
        return f"{error.retryable} {error}"


def add_to_the_usual_place(path: str, temporary: str) -> str:
    tempfile.tempdir = temporary
    return add(path, "")


def answer(send: Connection, user: int | None, call: Callable[[str, str], str], path: str, folder: str) -> None:
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    send.send(call(path, folder))


def in_a_process(call: Callable[[str, str], str], path: str, folder: str, user: int | None = None) -> str:
    """What ``call`` answers in another process, perhaps of another user."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(send, user, call, path, folder))
    process.start()
    send.close()
    said = receive.recv()
    process.join()
    return str(said)


def test_a_limit_on_the_size_of_files(tmp_path: Path, store: Store) -> None:
    said = in_a_process(limited_file_size, archive(tmp_path, size=3 << 20), store.folder)
    assert said.startswith("False skill source x: the store ")
    assert "File too large" in said
    assert "ulimit -f" in said
    assert trees(store) == set()
    assert leftovers(store) == []


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")


@as_root
def test_a_store_of_another_user(readable: Path, store: Store) -> None:
    path, other = archive(readable), archive(readable, "2.zip")
    tree = store.add_archive(path, "x")
    assert in_a_process(add, path, store.folder, user=65534) == tree.path  # what is there can be used
    said = in_a_process(add, other, store.folder, user=65534)
    assert said.startswith(f"False skill source x: the store {store.folder} cannot be written (Permission denied)")
    assert "allow user 65534 to write there (the directory belongs to user 0), or set skills.store.dir" in said


@as_root
def test_a_folder_in_which_no_store_can_be_made(readable: Path) -> None:
    said = in_a_process(add, archive(readable), str(readable / "a/b/store"), user=65534)
    assert "cannot be written (Permission denied)" in said
    assert "allow user 65534 to write there" in said
    assert not (readable / "a").exists()


@pytest.mark.row("B8")
@as_root
def test_a_store_in_the_temporary_folder_that_another_user_made(readable: Path) -> None:
    path = archive(readable)
    readable.chmod(0o1777)  # as a temporary folder is
    planted = readable / "flink-skills-store-65534"
    in_a_process(add, path, str(planted), user=0)
    planted.chmod(0o777)
    said = in_a_process(add_to_the_usual_place, path, str(readable), user=65534)
    assert said.startswith("False skill source x: the store ")
    fix = f"others can write to it); remove {planted}, or remove the write permission of others (chmod go-w)"
    assert fix in said
    # The other user can also hold a lock on it indefinitely. The store is checked before it is locked.
    tree = next(path for path in planted.iterdir() if len(path.name) == 64)
    held = os.open(tree, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert in_a_process(add_to_the_usual_place, path, str(readable), user=65534) == said
    os.close(held)
    # Wherever its path comes from: what others can write to is not trusted there.
    assert in_a_process(add, path, str(planted), user=65534) == said
    # In a place that is not for everybody, nobody can have put it there.
    readable.chmod(0o755)
    assert in_a_process(add, path, str(planted), user=65534).startswith(str(planted))


def test_a_read_only_file_system(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    path, other = archive(tmp_path), archive(tmp_path, "2.zip")
    with small_disk(disk, 2 << 20):
        store = Store(str(disk / "store"))
        store.add_archive(path, "x").lease.close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
        store.add_archive(path, "x").lease.close()
        with pytest.raises(SourceError, match=r"Read-only file system\); mount it so that it can be written"):
            store.add_archive(other, "x")


# Digests


def tar_of(path: Path, entries: dict[str, bytes], mode: int) -> str:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as made:
        for name, data in reversed(entries.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), mode, 1_700_000_000
            made.addfile(info, io.BytesIO(data))
    return str(path)


def digests_in(folder: str) -> dict[str, str]:
    from flink_skills.skill import Report, find_skills, load_folder

    found = {}
    for place, skill_file, _ in find_skills(folder, Report(), Limits()):
        skill = load_folder(place, root=folder, skill_file=skill_file).skill
        assert skill is not None
        found[skill.name] = skill.digest
    return found


def test_a_skill_has_one_digest_in_every_form(tmp_path: Path, store: Store) -> None:
    entries = {
        "greet/SKILL.md": SKILL.replace(b"\n", b"\r\n"),
        "greet/scripts/run.sh": b"#!/bin/sh\r\necho\r\n",
        "greet/references/\u00e9t\u00e9 1.md": b"\xef\xbb\xbfx",
        "greet/.hidden": b"",
        "greet/sub/SKILL.md": SKILL.replace(b"greet", b"inner"),
        "greet/empty/x/y": b"1",
    }
    left_out = {"__MACOSX/greet/._SKILL.md": b"x", "greet/.git/HEAD": b"x", "greet/.DS_Store": b"x"}
    folder = tmp_path / "folder"
    for name, data in {**entries, **left_out}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "greet/scripts/run.sh").chmod(0o755)
    (folder / "greet/nothing").mkdir()
    wrapped = {f"some-repo-1a2b3c/{name}": data for name, data in entries.items()}
    at_root = {name.removeprefix("greet/"): data for name, data in entries.items()}
    forms = [
        str(folder),
        archive(tmp_path, "a.zip", entries={**left_out, **entries}),
        archive(tmp_path, "wrapped.zip", entries=wrapped),
        archive(tmp_path, "root.zip", entries=at_root),
        tar_of(tmp_path / "a.tar", {**entries, **left_out}, 0o600),
        tar_of(tmp_path / "a.tar.gz", entries, 0o777),
    ]
    expected = digests_in(forms[0])
    assert set(expected) == {"greet", "inner"}
    for form in forms[1:]:
        tree = store.add_archive(form, form)
        assert digests_in(tree.path) == expected, form


def test_names_that_macos_writes_without_saying_that_they_are_utf8(tmp_path: Path, store: Store) -> None:
    path = Path(archive(tmp_path, entries={"greet/SKILL.md": SKILL, "greet/\u00e9.md": b"x"}))
    data = path.read_bytes().replace(b"\x00\x08\x00\x00", b"\x00\x00\x00\x00")  # the flag of both headers
    assert data != path.read_bytes()
    path.write_bytes(data)
    tree = store.add_archive(str(path), "x")
    assert Path(tree.path, "greet/\u00e9.md").read_bytes() == b"x"


def test_a_stored_tree_says_what_it_is() -> None:
    with pytest.raises(TypeError):
        StoredTree("/x", "0" * 64)  # type: ignore[call-arg]  # a tree without a lease can vanish
