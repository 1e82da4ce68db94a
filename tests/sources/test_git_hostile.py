"""Git servers and repositories that attack: names, links, bombs, cut and endless responses."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentSkillManager
from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, open_source
from tests.kit.waiting import MARGIN
from tests.sources.git_server import GitServer, Repository, needs_git
from tests.sources.web import ALLOWED

SKILL = b"---\nname: a\ndescription: Does a.\n---\nDo it.\n"
RESULT = "application/x-git-upload-pack-result"

pytestmark = [needs_git, pytest.mark.usefixtures("no_waits")]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    found = GitServer(tmp_path)
    yield found
    found.close()


def context(folder: Path, **options: Any) -> SourceContext:
    values = {f"skills.{key.replace('__', '.').replace('_', '-')}": value for key, value in options.items()}
    return SourceContext(SkillConfig({**ALLOWED, **values}), store_dir=str(folder / "store"))


def refused(location: str, folder: Path, **options: Any) -> SourceError:
    """Return the error of a source, and check that its time and its remains are bounded."""
    began = time.monotonic()
    with pytest.raises(SourceError) as caught:
        open_source("url", location, context(folder, **options)).resolve()
    assert time.monotonic() - began < MARGIN
    store = folder / "store"
    assert [path for path in store.rglob("*") if path.is_file()] == [], "nothing remains in the store"
    assert caught.value.__cause__ is None
    return caught.value


def raw(repository: Repository, *entries: tuple[str, bytes, bytes]) -> str:
    """A commit whose tree has these (mode, name, content)."""
    blobs = [(mode, name, repository.objects(content)[0]) for mode, name, content in entries]
    return repository.point(repository.raw_tree(blobs))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([("100644", b"..", SKILL)], "leaves the archive"),
        ([("100644", b"a/../../b", SKILL)], "is not the name of one file"),
        ([("100644", b"/etc/passwd", SKILL)], "is not the name of one file"),
        ([("100644", b".", SKILL)], "is not the name of one file"),
        ([("100644", b"a\\b", SKILL)], "is not the name of one file"),
        ([("100644", b"C:x", SKILL)], "is absolute"),
        ([("100644", b"a\nb", SKILL)], "is not allowed"),
        ([("100644", b"\xff\xfe", SKILL)], "is not UTF-8"),
        ([("100644", b"a.md", SKILL), ("100644", b"A.MD", SKILL)], "differ in upper and lower case"),
        ([("100644", b"a.md", SKILL), ("100644", b"a.md", SKILL)], "is duplicated"),
        ([("100644", "é".encode(), SKILL), ("100644", "e\u0301".encode(), SKILL)], "Unicode form only"),
        ([("120000", b"out", b"../../../etc/passwd")], "'out' is a link, a device or a sparse file"),
        ([("120000", b"in", b"SKILL.md"), ("100644", b"SKILL.md", SKILL)], "'in' is a link"),
        ([("100644", b"x" * 1100, SKILL)], "is too long or too deep"),
    ],
)
def test_hostile_names_and_links(
    tmp_path: Path, repository: Repository, server: GitServer, entries: Any, said: str
) -> None:
    raw(repository, *entries)
    for url in (server.url(), f"git+file://{repository.path}"):
        assert said in str(refused(url, tmp_path))


def test_the_folder_of_git_is_never_written(tmp_path: Path, repository: Repository, server: GitServer) -> None:
    (hook,) = repository.objects(b"#!/bin/sh\n")
    hooks = repository.raw_tree([("100755", b"post-checkout", hook)])
    (skill,) = repository.objects(SKILL)
    repository.point(repository.raw_tree([("100644", b"SKILL.md", skill), ("40000", b".git", hooks)]))
    (tree,) = open_source("url", server.url(), context(tmp_path)).resolve()
    assert [path.name for path in Path(tree.path).rglob("*") if path.is_file()] == ["SKILL.md"]


def test_a_deep_tree(tmp_path: Path, repository: Repository, server: GitServer) -> None:
    (skill,) = repository.objects(SKILL)
    tree = repository.raw_tree([("100644", b"SKILL.md", skill)])
    for _ in range(40):
        tree = repository.raw_tree([("40000", b"d", tree)])
    repository.point(tree)
    assert "is too long or too deep" in str(refused(server.url(), tmp_path))


def test_a_tree_of_equal_subtrees_is_counted_by_its_paths(
    tmp_path: Path, repository: Repository, server: GitServer
) -> None:
    """25 objects, and 2**24 files."""
    (skill,) = repository.objects(SKILL)
    tree = repository.raw_tree([("100644", b"SKILL.md", skill)])
    for _ in range(24):
        tree = repository.raw_tree([("40000", b"a", tree), ("40000", b"b", tree)])
    repository.point(tree)
    assert "there are more than 10000 entries" in str(refused(server.url(), tmp_path))


def test_one_large_file_with_many_names(tmp_path: Path, repository: Repository, server: GitServer) -> None:
    (blob,) = repository.objects(bytes(1 << 20))
    repository.point(repository.raw_tree([("100644", b"%d" % number, blob) for number in range(100)]))
    assert "the files have " in str(refused(server.url(), tmp_path, limits__total="50 mb"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limits__file": "1 mb"}, "an object has 2097152 bytes. The limit is 1048576 (skills.limits.file)"),
        ({"limits__total": "3 mb"}, "The limit is 3145728 (skills.limits.total)"),
        ({"limits__download": "1 kb"}, "exceeds the limit of 1024 bytes; reduce it, or raise skills.limits.download"),
        ({"limits__entries": "1"}, "the commit has 5 objects. The limit is 4 (skills.limits.entries)"),
    ],
)
def test_limits_of_archives(
    tmp_path: Path, repository: Repository, server: GitServer, options: dict[str, Any], said: str
) -> None:
    (repository.tree / "large.bin").write_bytes(bytes(2 << 20))
    (repository.tree / "large-2.bin").write_bytes(b"1" * (2 << 20))
    (repository.tree / "SKILL.md").write_bytes(SKILL + os.urandom(2000))
    repository.commit()
    assert said in str(refused(server.url(), tmp_path, **options))


# Packs of a server that follows no rule.


def head(kind: int, size: int) -> bytes:
    byte, size = kind << 4 | size & 15, size >> 4
    data = b""
    while size:
        data += bytes([byte | 128])
        byte, size = size & 127, size >> 7
    return data + bytes([byte])


def number(value: int) -> bytes:
    data = b""
    while value >= 128:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def pack(*entries: bytes, count: int | None = None) -> bytes:
    data = b"PACK" + struct.pack(">II", 2, len(entries) if count is None else count) + b"".join(entries)
    return data + hashlib.sha1(data).digest()


def whole(kind: int, data: bytes, size: int | None = None) -> bytes:
    return head(kind, len(data) if size is None else size) + zlib.compress(data, 9)


def name_of(kind: bytes, data: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data).hexdigest()


def commit_of(blob: bytes) -> tuple[str, bytes, bytes]:
    """The id of a commit with one SKILL.md, the commit, and its tree."""
    tree = b"100644 SKILL.md\0" + bytes.fromhex(name_of(b"blob", blob))
    commit = b"tree " + name_of(b"tree", tree).encode() + b"\nauthor a <a> 0 +0000\n\nx\n"
    return name_of(b"commit", commit), commit, tree


def line(data: bytes) -> bytes:
    return b"%04x" % (len(data) + 4) + data


def answer_fetch(content: Callable[[], Iterator[bytes]] | bytes, *, band: bool = True) -> Callable[[Any], bool]:
    """A fault: the answer to the command fetch. ``band`` wraps the content as a pack in the side band."""

    def fault(handler: Any) -> bool:
        if handler.command != "POST":
            return False
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if b"command=fetch" not in body:
            handler.rfile = io.BytesIO(body)
            return False
        handler.send_response(200)
        handler.send_header("Content-Type", RESULT)
        handler.end_headers()
        try:
            if callable(content):
                for piece in content():
                    handler.wfile.write(piece)
            elif band:
                handler.wfile.write(line(b"packfile\n"))
                for at in range(0, len(content), 60_000):
                    handler.wfile.write(line(b"\1" + content[at : at + 60_000]))
                handler.wfile.write(b"0000")
            else:
                handler.wfile.write(content)
        except OSError:
            pass  # the client stopped
        handler.close_connection = True
        return True

    return fault


COMMIT, COMMIT_DATA, TREE_DATA = commit_of(SKILL)
GOOD = (whole(1, COMMIT_DATA), whole(2, TREE_DATA), whole(3, SKILL))


def delta(base_size: int, size: int, operations: bytes) -> bytes:
    return number(base_size) + number(size) + operations


def test_a_good_pack_is_read(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    """The packs below differ from it in one part."""
    repository.commit()
    server.fault = answer_fetch(pack(*GOOD))
    (tree,) = open_source("url", f"{server.url()}@{COMMIT}", context(tmp_path)).resolve()
    assert [path.read_bytes() for path in Path(tree.path).rglob("SKILL.md")] == [SKILL]


@pytest.mark.parametrize("first", ["delta", "base"])
@pytest.mark.parametrize("kind", ["offset", "id"])
def test_deltas_of_both_kinds_in_each_order(
    tmp_path: Path, server: GitServer, repository: Repository, first: str, kind: str
) -> None:
    if (first, kind) == ("delta", "offset"):
        pytest.skip("an offset leads back")
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


def change(data: bytes) -> bytes:
    """A delta on SKILL.md."""
    return head(7, len(data)) + bytes.fromhex(name_of(b"blob", SKILL)) + zlib.compress(data)


GIB = 1 << 30
BOMB = zlib.compress(bytes(64 << 20), 9)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pack(*GOOD[:2], whole(3, SKILL + b"x")), "is missing in the pack"),
        (pack(*GOOD[1:]), f"the object {COMMIT} is missing in the pack"),
        (pack(GOOD[0], GOOD[2]), "is missing in the pack"),
        (pack(*GOOD[:2], whole(2, SKILL)), "is missing in the pack"),
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
        (pack(*GOOD[:2], head(6, 5) + b"\x7f" + zlib.compress(b"12345")), "is missing in the pack"),
        (pack(*GOOD, change(number(len(SKILL)) + number(9 * GIB) + b"\x90\x01")), "skills.limits.file"),
        (pack(*GOOD, change(number(len(SKILL)) + b"\xff\xff")), "the pack is damaged or truncated"),
        (pack(*GOOD, change(delta(len(SKILL), 5, b"\x90\xff"))), "the pack is damaged or truncated"),
        (pack(*GOOD, change(delta(len(SKILL) + 1, 1, b"\x90\x01"))), "the pack is damaged or truncated"),
        (pack(*GOOD, change(delta(len(SKILL), 1, b"\x91\xff\x01"))), "the pack is damaged or truncated"),
        (
            pack(*GOOD[1:], whole(1, b"tree " + b"0" * 40 + b"\n")), f"the object {COMMIT} is missing in the pack"
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


def test_an_endless_pack(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    repository.commit()

    def endless() -> Iterator[bytes]:
        yield line(b"packfile\n")
        while not server.closing.is_set():
            yield line(b"\1" + bytes(60_000))

    server.fault = answer_fetch(endless)
    assert "exceeds the limit of 1048576 bytes" in str(
        refused(f"{server.url()}@{COMMIT}", tmp_path, limits__download="1 mb")
    )


def test_endless_progress(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    repository.commit()

    def endless() -> Iterator[bytes]:
        yield line(b"packfile\n")
        while not server.closing.is_set():
            yield line(b"\2working\n")

    server.fault = answer_fetch(endless)
    assert "exceeds the limit" in str(refused(f"{server.url()}@{COMMIT}", tmp_path, limits__download="100 kb"))


def test_endless_refs(
    tmp_path: Path, server: GitServer, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit()
    monkeypatch.setattr("flink_skills.sources.git._MAX_REFS", 1 << 20)

    def fault(handler: Any) -> bool:
        if handler.command != "POST":
            return False
        handler.send_response(200)
        handler.send_header("Content-Type", RESULT)
        handler.end_headers()
        try:
            for number in range(10_000_000):
                handler.wfile.write(line(b"%s refs/heads/%d\n" % (COMMIT.encode(), number)))
        except OSError:
            pass
        handler.close_connection = True
        return True

    server.fault = fault
    assert "exceeds the limit of 1048576 bytes" in str(refused(f"{server.url()}@main", tmp_path))


@pytest.mark.parametrize("when", ["GET", "POST"])
def test_a_server_that_hangs(tmp_path: Path, server: GitServer, repository: Repository, when: str) -> None:
    repository.commit()

    def hang(handler: Any) -> bool:
        if handler.command != when:
            return False
        server.closing.wait(300)
        return True

    server.fault = hang
    error = refused(f"{server.url()}@main", tmp_path, source__timeout="3 s")
    assert error.retryable
    assert "try again, or raise skills.source.timeout" in str(error)


def test_a_slow_pack_ends_at_the_deadline(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    repository.commit()

    def drip() -> Iterator[bytes]:
        yield line(b"packfile\n")
        while not server.closing.wait(0.05):
            yield line(b"\2.")

    server.fault = answer_fetch(drip)
    error = refused(f"{server.url()}@{COMMIT}", tmp_path, source__timeout="2 s")
    assert "was not read within 2 s" in str(error)


def test_a_response_that_is_cut_is_requested_again(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    (repository.tree / "SKILL.md").write_bytes(SKILL)
    repository.commit()
    cut: list[int] = []

    def fault(handler: Any) -> bool:
        if handler.command != "POST" or len(cut) >= 2:
            return False
        cut.append(1)
        handler.send_response(200)
        handler.send_header("Content-Type", RESULT)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"001e")
        handler.close_connection = True
        return True

    server.fault = fault
    (tree,) = open_source("url", server.url(), context(tmp_path)).resolve()
    assert [path.name for path in Path(tree.path).rglob("*.md")] == ["SKILL.md"]
    assert len(cut) == 2


@pytest.mark.parametrize(
    ("status", "retryable", "said"),
    [
        (500, True, "the server returned 500; try again"),
        (503, True, "the server returned 503; try again"),
        (403, False, "access is refused"),
        (404, False, "the source does not exist"),
    ],
)
def test_errors_of_the_server(
    tmp_path: Path, server: GitServer, repository: Repository, status: int, retryable: bool, said: str
) -> None:
    def fault(handler: Any) -> bool:
        handler.send_error(status, "s3cret text of the server")
        return True

    server.fault = fault
    error = refused(server.url(), tmp_path)
    assert said in str(error)
    assert "s3cret" not in str(error)
    assert error.retryable == retryable


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"<html>Sign in</html>"),
        ("text/plain", b"0" * 40 + b"\trefs/heads/main\n"),  # a server of plain files
        ("application/x-git-upload-pack-advertisement", b"zzzz not pkt-lines"),
        ("application/x-git-upload-pack-advertisement", b"000eversion 2\n0000"),
        ("application/x-git-upload-pack-advertisement", b""),
        ("application/x-git-upload-pack-advertisement", line(b"ERR s3cret message of the server")),
        ("application/x-git-upload-pack-advertisement", b"ffff" + b"x" * 70000),
    ],
)
def test_something_else_than_a_git_server(
    tmp_path: Path, server: GitServer, repository: Repository, kind: str, body: bytes
) -> None:
    def fault(handler: Any) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    server.fault = fault
    error = refused(server.url(), tmp_path)
    assert "check the address" in str(error)
    assert "s3cret" not in str(error)
    assert {path.rpartition("/")[2].partition("?")[0] for _, path in server.requests} <= {"refs", "git-upload-pack"}


def test_addresses_of_packs_are_not_followed(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    """packfile-uris: a server could send the client to any host."""
    repository.commit()
    other = f"https://127.0.0.1:{server.port}/x.pack".encode()
    server.fault = answer_fetch(
        line(b"packfile-uris\n") + line(b"sha1 " + other + b" " + b"0" * 40) + line(b"packfile\n") + b"0000", band=False
    )
    before = len(server.requests)
    refused(f"{server.url()}@{COMMIT}", tmp_path)
    assert not [path for _, path in server.requests[before:] if "x.pack" in path]


def test_other_sources_load_beside_a_hostile_one(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    repository.commit()
    server.fault = answer_fetch(pack(*GOOD, head(3, 10 * GIB) + BOMB))
    good = tmp_path / "good" / "ok"
    good.mkdir(parents=True)
    (good / "SKILL.md").write_bytes(SKILL.replace(b"name: a", b"name: ok"))
    with AgentSkillManager(
        paths=[str(good)], urls=[f"{server.url()}@{COMMIT}"], config=SkillConfig(ALLOWED), store_dir=str(tmp_path / "s")
    ) as manager:
        assert [one.name for one in manager.load_skills()] == ["ok"]
        assert ["skills.limits.file" in str(one) for one in manager.failures] == [True]


def test_a_commit_that_is_gone(tmp_path: Path, server: GitServer, repository: Repository) -> None:
    """The branch changes between the listing and the fetch, and the server keeps no old commits."""
    (repository.tree / "SKILL.md").write_bytes(SKILL)
    repository.commit()

    def fault(handler: Any) -> bool:
        if handler.command == "POST" and server.count("POST") == 2:
            server.fault = None
            repository.git("update-ref", "-d", "refs/heads/main", where=repository.path)
            repository.git("gc", "-q", "--prune=now", where=repository.path)
        return False

    server.fault = fault
    error = refused(f"{server.url()}@main", tmp_path)
    assert "does not send the commit" in str(error)
