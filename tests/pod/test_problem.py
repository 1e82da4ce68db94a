"""Where no pod can be made, the tests in it are skipped with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import bundle, pod, profile


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH. The machine's other answers are those of one that has all that is needed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    (tmp_path / "seccomp.json").write_text('{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}')
    monkeypatch.setattr(profile, "PROFILE", tmp_path / "seccomp.json")
    monkeypatch.setattr(bundle, "python_and_checkout", lambda: [str(tmp_path)])
    tmp_path.chmod(0o755)
    return tmp_path


def write_runc(folder: Path, text: str) -> None:
    (folder / "runc").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "runc").chmod(0o755)


def test_no_runc(programs: Path) -> None:
    assert "runc is not on the PATH" in pod.find_problem()


def test_no_profile(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runc(programs, "exit 0")
    monkeypatch.setattr(profile, "PROFILE", programs / "none.json")
    assert f"{programs}/none.json is missing" in pod.find_problem()


def test_closed_folders(programs: Path) -> None:
    write_runc(programs, "exit 0")
    programs.chmod(0o700)
    assert pod.find_problem() == f"{programs} is closed to other users, so also to the pod's (chmod o+rx {programs})"


def test_refused(programs: Path) -> None:
    write_runc(programs, "echo 'error setting up the cgroup: read-only file system' >&2; exit 1")
    assert pod.find_problem() == "runc cannot start a pod here: error setting up the cgroup: read-only file system"


def test_all_well(programs: Path) -> None:
    write_runc(programs, "exit 0")
    assert pod.find_problem() == ""


def test_only_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert pod.find_problem().startswith("only root can make a pod")


def test_a_skip_says_why() -> None:
    """What a run of the tests prints without runc."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/pod/test_pod.py"],
        cwd=bundle.CHECKOUT,
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no emulated pod: " in ran.stdout
    assert "passed" not in ran.stdout
