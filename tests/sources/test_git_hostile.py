"""Commits with names, links and sizes that an archive cannot have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.sources import open_source
from tests.sources.git_packs import (
    SKILL,
    context,
    refused,
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
