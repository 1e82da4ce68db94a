"""Stores and lock files that another user put there, that another process locks, or that a command closed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.errors import SourceError
from flink_skills.sources import Store
from tests.sources.test_store import add, archive, as_root, in_a_process


@as_root
def test_a_store_below_a_folder_that_another_user_made_in_the_temporary_folder(readable: Path) -> None:
    path = archive(readable)
    readable.chmod(0o1777)
    planted = readable / "ours"
    planted.mkdir(mode=0o777)
    planted.chmod(0o777)
    os.chown(planted, 65533, 65533)
    said = in_a_process(add, path, str(planted / "deeper" / "store"), user=65534)
    assert "belongs to user 65533 and is in a directory that all users can write to" in said
    assert f"remove {planted}" in said
    assert not (planted / "deeper").exists()


def test_a_tree_that_another_process_locks_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path / "store"))
    tree = store.add_archive(archive(tmp_path), "x")
    tree.lease.close()
    monkeypatch.setattr("flink_skills.sources.locking._LEASE_SECONDS", 0.1)
    held = os.open(tree.path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(SourceError, match=rf"process {os.getpid()} locks {tree.path}\); end that process"):
        store.open_tree(tree.sha256)
    os.close(held)
    assert store.open_tree(tree.sha256) is not None


@pytest.mark.parametrize("plant", [lambda path: os.symlink("/nowhere", path), os.mkfifo, os.mkdir])
def test_what_is_no_lock_file_is_an_error_that_names_it(tmp_path: Path, plant: Callable[[str], None]) -> None:
    path, store = archive(tmp_path), Store(str(tmp_path / "store"))
    lock = Path(store.folder, ".locks", hashlib.sha256(Path(path).read_bytes()).hexdigest())
    lock.parent.mkdir(parents=True)
    plant(str(lock))
    with pytest.raises(SourceError, match=f"the store {store.folder} cannot be written"):
        store.add_archive(path, "x", deadline=time.monotonic() + 5)


@as_root
def test_what_a_command_of_the_same_user_closed_is_open_again(readable: Path) -> None:
    path, store = archive(readable), readable / "open" / "store"
    store.parent.mkdir()
    tree = Path(in_a_process(add, path, str(store)))
    for each in (store, *store.rglob("*")):
        os.chown(each, 65534, 65534)
    for folder in (tree, store / ".locks", store / ".work", store):
        folder.chmod(0)
    assert in_a_process(add, path, str(store), user=65534) == str(tree)
