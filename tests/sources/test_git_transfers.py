"""Git servers that hang, cut or send without end, and servers of something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentSkillManager
from flink_skills.options import SkillConfig
from flink_skills.sources import open_source
from tests.sources.git_packs import (
    BOMB,
    COMMIT,
    GIB,
    GOOD,
    RESULT,
    SKILL,
    answer_fetch,
    context,
    head,
    line,
    pack,
    refused,
)
from tests.sources.git_server import GitServer, Repository, needs_git
from tests.sources.web import ALLOWED

pytestmark = [needs_git, pytest.mark.usefixtures("no_waits")]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    found = GitServer(tmp_path)
    yield found
    found.close()


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
