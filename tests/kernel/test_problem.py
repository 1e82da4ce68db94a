"""Skips of the tests in the virtual machine name the missing program or kernel."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from . import machine
from .packages import CHECKOUT


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    (tmp_path / "bzImage").write_text("")
    monkeypatch.setenv("KERNEL", str(tmp_path / "bzImage"))
    for name in ("qemu-system-x86_64", "busybox"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_all_is_there(programs: Path) -> None:
    assert machine.find_problem() == ""


@pytest.mark.parametrize(
    ("name", "fix"), [("qemu-system-x86_64", "apt install qemu-system-x86"), ("busybox", "apt install busybox-static")]
)
def test_a_program_is_missing(name: str, fix: str, programs: Path) -> None:
    (programs / name).unlink()
    assert f"{name} is not on the PATH" in machine.find_problem()
    assert fix in machine.find_problem()


def test_busybox_needs_libraries(programs: Path) -> None:
    (programs / "busybox").write_bytes(b"\x7fELF /lib64/ld-linux-x86-64.so.2")
    assert "is not linked statically" in machine.find_problem()


def test_no_kernel(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL", str(programs / "none"))
    assert machine.find_problem() == f"KERNEL: {programs}/none does not exist"


def test_another_processor(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "cannot run the programs of aarch64" in machine.find_problem()


def test_a_skip_says_why() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/kernel/test_machine.py"],
        cwd=CHECKOUT,
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no other kernel: " in ran.stdout
    assert "passed" not in ran.stdout
