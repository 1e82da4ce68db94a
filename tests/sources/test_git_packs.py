"""Hostile packs of git servers: bombs, damage, deltas."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.sources import open_source
from tests.sources.git_packs import (
    BOMB,
    COMMIT,
    GIB,
    GOOD,
    SKILL,
    TREE_DATA,
    answer_fetch,
    change,
    context,
    delta,
    head,
    name_of,
    number,
    pack,
    refused,
    whole,
)
from tests.sources.git_server import GitServer, Repository, needs_git

pytestmark = [needs_git, pytest.mark.usefixtures("no_waits")]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    found = GitServer(tmp_path)
    yield found
    found.close()


def test_a_good_pack_is_read(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    """The packs below differ from it in one part."""
    repository.commit()
    server.fault = answer_fetch(pack(*GOOD))
    (tree,) = open_source("url", f"{server.url()}@{COMMIT}", context(tmp_path)).resolve()
    assert [path.read_bytes() for path in Path(tree.path).rglob("SKILL.md")] == [SKILL]


@pytest.mark.parametrize(("first", "kind"), [("base", "offset"), ("base", "id"), ("delta", "id")])
def test_deltas_of_both_kinds_in_each_order(
    tmp_path: Path, server: GitServer, repository: Repository, first: str, kind: str
) -> None:
    repository.commit()
    base = whole(3, SKILL[:-1])
    change = zlib.compress(delta(len(SKILL) - 1, len(SKILL), b"\x90" + bytes([len(SKILL) - 1]) + b"\x01\n"))
    size = len(zlib.decompress(change))
    if kind == "id":
        made = head(7, size) + bytes.fromhex(name_of(b"blob", SKILL[:-1])) + change
    else:
        made = head(6, size) + bytes([len(base)]) + change
    entries = (made, base) if first == "delta" else (base, made)
    server.fault = answer_fetch(pack(*GOOD[:2], *entries))
    (tree,) = open_source("url", f"{server.url()}@{COMMIT}", context(tmp_path)).resolve()
    assert [path.read_bytes() for path in Path(tree.path).rglob("SKILL.md")] == [SKILL]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pack(*GOOD[:2], whole(3, SKILL + b"x")), "the pack has no"),
        (pack(*GOOD[1:]), f"the pack has no commit {COMMIT}"),
        (pack(GOOD[0], GOOD[2]), "the pack has no"),
        (pack(*GOOD[:2], whole(2, SKILL)), "the pack has no"),
        (pack(*GOOD, count=4), "the pack is damaged or truncated"),
        (pack(*GOOD)[:-60], "the pack is damaged or truncated"),
        (pack(*GOOD, count=4_000_000_000), "the commit has 4000000000 objects"),
        (b"PACK\0\0\0\7" + pack(*GOOD)[8:], "the pack is damaged or truncated"),
        (b"<html>" + bytes(100), "the pack is damaged or truncated"),
        (b"", "the pack is damaged or truncated"),
        (pack(*GOOD, whole(3, b"abc", size=2)), "the pack is damaged or truncated"),
        (pack(*GOOD, whole(3, b"abc", size=4)), "the pack is damaged or truncated"),
        (pack(*GOOD, whole(5, b"abc")), "the pack is damaged or truncated"),
        (pack(*GOOD, whole(0, b"abc")), "the pack is damaged or truncated"),
        (pack(*GOOD, head(3, 10 * GIB) + BOMB), "The limit is 67108864 (skills.limits.file)"),
        (pack(*GOOD, head(3, 64 << 20) + BOMB, *(head(3, 64 << 20) + BOMB for _ in range(4))), "skills.limits.total"),
        (pack(b"\xbf" + b"\xff" * 1_000_000), "the pack is damaged or truncated"),
        (pack(GOOD[0], head(6, 5) + b"\xff" * 1_000_000), "the pack is damaged or truncated"),
        (pack(GOOD[0], head(6, 5) + b"\0" + zlib.compress(b"12345")), "the pack is damaged or truncated"),
        (pack(*GOOD[:2], head(6, 5) + b"\x7f" + zlib.compress(b"12345")), "the pack has no"),
        (pack(*GOOD, change(number(len(SKILL)) + number(9 * GIB) + b"\x90\x01")), "skills.limits.file"),
        (pack(*GOOD, change(number(len(SKILL)) + b"\xff\xff")), "the pack is damaged or truncated"),
        (pack(*GOOD, change(delta(len(SKILL), 5, b"\x90\xff"))), "the pack is damaged or truncated"),
        (pack(*GOOD, change(delta(len(SKILL) + 1, 1, b"\x90\x01"))), "the pack is damaged or truncated"),
        (pack(*GOOD, change(delta(len(SKILL), 1, b"\x91\xff\x01"))), "the pack is damaged or truncated"),
        (
            pack(*GOOD[1:], whole(1, b"tree " + b"0" * 40 + b"\n")), f"the pack has no commit {COMMIT}"
        ),
    ],
)  # fmt: skip
def test_hostile_packs(tmp_path: Path, server: GitServer, repository: Repository, content: bytes, said: str) -> None:
    repository.commit()
    server.fault = answer_fetch(content)
    error = refused(f"{server.url()}@{COMMIT}", tmp_path)
    assert said in str(error)
    assert not error.retryable


def test_tags_in_a_circle_and_broken_commits(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    repository.commit()
    for kind, name, data in (
        (1, b"commit", b"tree zzz\n"), (1, b"commit", b""), (1, b"commit", b"tree " + b"a" * 40),
        (4, b"tag", b"object " + COMMIT.encode()[:-1] + b"\n"), (3, b"blob", SKILL), (2, b"tree", TREE_DATA),
    ):  # fmt: skip
        sha = name_of(name, data)
        server.fault = answer_fetch(pack(whole(kind, data)))
        assert "the repository is refused" in str(refused(f"{server.url()}@{sha}", tmp_path))


def test_the_memory_of_many_deltas_is_bounded(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    """300 deltas on one base that follows them, each of which makes 1 MiB."""
    repository.commit()
    base, mib = os.urandom(65536), 1 << 20
    sha = bytes.fromhex(name_of(b"blob", base))
    entries = []
    for one in range(200):
        data = delta(len(base), mib, b"\xf0\xff\xff\x00" * 16 + b"\x10" + struct.pack("<I", one) + bytes(12))
        entries.append(head(7, len(data)) + sha + zlib.compress(data))
    server.fault = answer_fetch(pack(*GOOD, *entries, whole(3, base)))
    tracemalloc.start()
    try:
        open_source("url", f"{server.url()}@{COMMIT}", context(tmp_path)).resolve()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
