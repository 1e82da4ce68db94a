"""``flink-skills`` with sources behind a network: git repositories, and locks of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill
from tests.sources.git_server import GitServer, Repository, needs_git
from tests.sources.publishers import KINDS, write_skills

pytestmark = needs_git
ALLOW = ("--set", "skills.source.allow-http=true", "--set", "skills.source.allow-private=true")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    (tmp_path / "git").mkdir()
    found = GitServer(tmp_path / "git")
    yield found
    found.close()


@pytest.fixture
def repository(tmp_path: Path, server: GitServer) -> Repository:
    made = Repository(tmp_path / "git")
    write_skill(made.tree / "skills" / "one")
    write_skill(made.tree / "skills" / "two")
    made.commit()
    return made


def test_list_validate_and_pack(
    flink_skills: FlinkSkills, tmp_path: Path, repository: Repository, server: GitServer
) -> None:
    url = f"{server.url()}@main#subdirectory=skills"
    for source in (url, f"git+file://{repository.path}#subdirectory=skills"):
        listed = flink_skills("list", source, "--format", "json", *ALLOW)
        assert listed.code == 0, listed.stderr
        assert [one["name"] for one in listed.json] == ["one", "two"]
    assert flink_skills("validate", url, *ALLOW).code == 0
    packed = flink_skills("pack", url, "-o", "a.tar", "--format", "json", *ALLOW)
    local = flink_skills("pack", repository.tree / "skills", "-o", "b.tar", "--format", "json")
    assert packed.json["archive"]["sha256"] == local.json["archive"]["sha256"]
    pinned = f"{url}&sha256={packed.json['archive']['sha256']}"
    assert flink_skills("list", pinned, *ALLOW).code == 0


@pytest.mark.parametrize("kind", ["plugin", "git", "oci", "mcp"])
def test_lock_and_check(flink_skills: FlinkSkills, tmp_path: Path, kind: str) -> None:
    (tmp_path / "place").mkdir()
    skills = write_skills(tmp_path / "here")
    with contextmanager(KINDS[kind])(tmp_path / "place") as publish:
        source = publish(skills)
        before = flink_skills("lock", source, "--format", "json", *ALLOW).json["skills"]["odd"]["digest"]
        assert flink_skills("lock", skills, "--check").code == 0, "the digests of a folder are the same"
        assert flink_skills("lock", source, "--check", *ALLOW).code == 0
        (skills / "odd/references/more.md").write_text("Less.\n")
        publish(skills)
        checked = flink_skills("lock", source, "--check", "--format", "json", *ALLOW)
        assert checked.code == 1
        after = checked.json["skills"]["odd"]["digest"]
        assert before != after
        assert f"has the digest {after}; the lock has {before}" in checked.stderr


def test_an_unknown_branch_is_named(flink_skills: FlinkSkills, repository: Repository, server: GitServer) -> None:
    failed = flink_skills("list", f"{server.url()}@mian", *ALLOW)
    assert failed.code == 1
    assert "no branch or tag 'mian' (did you mean 'main'?)" in failed.stdout + failed.stderr
