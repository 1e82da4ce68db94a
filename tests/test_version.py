"""The version of a checkout, and which builds run each other's jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flink_skills.version import mismatch
from hatch_version import version_of


def test_a_checkout_has_the_version_of_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", tmp_path, *name, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    monkeypatch.delenv("FLINK_SKILLS_VERSION", raising=False)
    assert version_of("0.1.0", tmp_path) == "0.1.0.dev0"
    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "one")
    first = git("rev-parse", "--short=8", "HEAD")
    assert version_of("0.1.0", tmp_path) == f"0.1.0.dev1+g{first}"
    (tmp_path / "file").write_text("2")
    assert version_of("0.1.0", tmp_path) == f"0.1.0.dev1+g{first}.dirty"
    git("commit", "-q", "-a", "-m", "two")
    git("tag", "v0.1.0")
    assert version_of("0.1.0", tmp_path) == "0.1.0"
    second = git("rev-parse", "--short=8", "HEAD")
    # The tag of the release before does not name the next one.
    assert version_of("0.2.0", tmp_path) == f"0.2.0.dev0+g{second}"
    git("commit", "-q", "--allow-empty", "-m", "three")
    third = git("rev-parse", "--short=8", "HEAD")
    assert version_of("0.2.0", tmp_path) == f"0.2.0.dev1+g{third}"
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: flink-skills\nVersion: 0.1.7\n\nVersion: text\n")
    assert version_of("0.2.0", tmp_path) == "0.1.7"
    monkeypatch.setenv("FLINK_SKILLS_VERSION", "0.3.0+site")
    assert version_of("0.2.0", tmp_path) == "0.3.0+site"


@pytest.mark.parametrize(
    ("other", "own", "differs"),
    [
        ("0.1.0", "0.1.0", False),
        ("0.1.0+vendor.2", "0.1.0", False),
        ("0.1.0.dev3+g1a2b3c4d", "0.1.0.dev3+g1a2b3c4d.dirty", False),
        ("0.1.0.dev3+g1a2b3c4d", "0.1.0.dev4+g2a2b3c4d", True),
        ("0.1.0", "0.1.1", True),
        (None, "0.1.0", True),
    ],
)
def test_a_build_runs_jobs_of_its_own_version(other: str | None, own: str, differs: bool) -> None:
    assert mismatch(other, own) is differs
