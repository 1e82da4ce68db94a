"""Several processes open a source at once, and some of them are killed while they do."""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, SourceTree, Store, open_source
from tests.sources.bombs import PRELOADED
from tests.sources.web import Page, Web, zip_bytes

ALLOWED = {"skills.source.allow-http": True, "skills.source.allow-private": True}
FEWEST_STEPS = 50


def entries(skill: str) -> dict[str, bytes]:
    text = f"---\nname: {skill}\ndescription: Says hello.\n---\nHi\n".encode()
    files = {f"{skill}/references/{n}.md": f"{skill} {n}".encode() * 200 for n in range(12)}
    return {f"{skill}/SKILL.md": text, **files}


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    for skill in ("one", "two"):
        server.pages[f"/{skill}.zip"] = Page(zip_bytes(entries(skill)), headers={"ETag": f'"{skill}"'})
    yield server
    server.close()


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOADED)
    return made


def open_url(url: str, store: str, max_size: int = 0) -> SourceTree:
    config = SkillConfig({**ALLOWED, "skills.store.max-size": max_size})
    [tree] = open_source("url", url, SourceContext(config, store_dir=store)).resolve()
    return tree


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_no_half_tree(store: Path) -> None:
    for tree in store.glob("[!.]*"):
        found = files_of(tree)
        assert found in (entries("one"), entries("two")), sorted(found)


def assert_tidy(store: Path) -> None:
    left = [*(store / ".work").glob("*"), *(store / ".locks").iterdir()]
    left += [index for index in (store / ".index").glob("*") if not (store / index.name).is_dir()]
    left += [record for record in (store / ".urls").glob("*") if record.suffix != ".json"]
    assert left == []


# Killed


def open_and_die(url: str, store: str, max_size: int, at: int, answer: Connection) -> None:
    """Open a URL, and be killed at one of the calls of the system on the way; tell how many there are."""
    count = 0

    def step(event: str, _: object) -> None:
        nonlocal count
        if event.startswith(("open", "os.", "fcntl.", "socket.")) and active:
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

    active = True
    sys.addaudithook(step)
    open_url(url, store, max_size)
    active = False
    answer.send(count)


def run_until(context: ForkServerContext, url: str, store: Path, max_size: int, at: int) -> tuple[int | None, int]:
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=open_and_die, args=(url, str(store), max_size, at, send))
    process.start()
    send.close()
    count = None
    with contextlib.suppress(EOFError):
        count = receive.recv()
    process.join()
    return count, process.exitcode or 0


@pytest.mark.parametrize("kills", [5, pytest.param(25, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("evicting", [False, True], ids=["cold", "evicting"])
def test_killed_at_any_moment(web: Web, context: ForkServerContext, tmp_path: Path, evicting: bool, kills: int) -> None:
    """Whenever a process is killed, no half tree is seen, the next opening works, and nothing piles up."""
    template, max_size = tmp_path / "template", 1 if evicting else 0
    if evicting:
        open_url(f"{web.url}/one.zip", str(template)).lease.close()
    else:
        template.mkdir()
    url = f"{web.url}/two.zip"
    shutil.copytree(template, tmp_path / "whole")
    steps, code = run_until(context, url, tmp_path / "whole", max_size, at=0)
    assert code == 0
    assert steps is not None
    assert steps > FEWEST_STEPS
    chosen = random.Random(4).sample(range(1, steps + 1), kills)
    for at in chosen:
        store = tmp_path / f"killed-{at}"
        shutil.copytree(template, store)
        _, code = run_until(context, url, store, max_size, at)
        assert code in (0, -signal.SIGKILL), at  # another machine's load can save a few of the calls
        assert_no_half_tree(store)
        tree = open_url(url, str(store), max_size)
        assert files_of(Path(tree.path)) == entries("two"), at
        if evicting:
            Store(str(store), max_size=1).add_file(
                b"---\nname: x\ndescription: x\n---\n", "SKILL.md", "x"
            ).lease.close()
        assert_tidy(store)
        assert tree.lease is not None
        tree.lease.close()


def open_for_ever(url: str, store: str, started: Connection) -> None:
    started.send(os.getpid())
    while True:
        open_url(url, store, 1).lease.close()


def test_killed_from_outside_while_they_open_and_evict(web: Web, context: ForkServerContext, tmp_path: Path) -> None:
    """Two processes drive each other's trees out; again and again one of them is killed and replaced."""
    store, chance = tmp_path / "store", random.Random(4)
    urls = [f"{web.url}/one.zip", f"{web.url}/two.zip"]

    def start(url: str):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=open_for_ever, args=(url, str(store), send))
        process.start()
        receive.recv()
        return process

    running = [start(url) for url in urls]
    try:
        for _ in range(10):
            victim = chance.randrange(2)
            threading.Event().wait(chance.uniform(0, 0.1))  # the moment is the point
            running[victim].kill()
            running[victim].join()
            tree = open_url(urls[victim], str(store), 1)
            assert files_of(Path(tree.path)) == entries(["one", "two"][victim])
            assert tree.lease is not None
            tree.lease.close()
            running[victim] = start(urls[victim])
    finally:
        for process in running:
            process.kill()
            process.join()
    Store(str(store), max_size=1).add_file(b"---\nname: x\ndescription: x\n---\n", "SKILL.md", "x").lease.close()
    assert_tidy(store)


# At once


def open_in_threads(url: str, store: str, together: Barrier, answer: Connection) -> None:
    found: list[str] = []
    ready = threading.Barrier(5)

    def work() -> None:
        ready.wait(60)
        tree = open_url(url, store)
        found.append(f"{tree.path} {len(files_of(Path(tree.path)))}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    together.wait(60)
    ready.wait(60)
    for thread in threads:
        thread.join()
    answer.send(found)


@pytest.mark.row("B7")
def test_eight_processes_with_four_threads_download_once(web: Web, context: ForkServerContext, tmp_path: Path) -> None:
    url, store = f"{web.url}/two.zip", tmp_path / "store"
    together = context.Barrier(8)
    pipes = [context.Pipe(duplex=False) for _ in range(8)]
    processes = [context.Process(target=open_in_threads, args=(url, str(store), together, send)) for _, send in pipes]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 90
    found = []
    for receive, _ in pipes:
        assert receive.poll(deadline - time.monotonic())
        found += receive.recv()
    for process in processes:
        process.join()
    assert len(found) == 32
    assert len(set(found)) == 1
    assert found[0].endswith(f" {len(entries('two'))}")
    assert web.count("GET") == 1
    assert_tidy(store)
