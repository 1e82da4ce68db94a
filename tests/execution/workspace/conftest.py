from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flink_skills.execution import CommandUser, WorkspaceManager, remove_tree

LARGE = 64 << 10
"""The size from which on files are shared where commands are of the worker's own user."""

NOBODY = CommandUser(65534, 65534)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs commands as another user")


@dataclass
class Skill:
    name: str
    path: str | None
    digest: str
    instructions: str = ""
    resources: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[WorkspaceManager]:
    manager = WorkspaceManager(tmp_path / "workspaces")
    yield manager
    manager.close()
    assert not manager.root.exists()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that all users can pass through, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="flink-skills-test-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    remove_tree(folder)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A skill's folder with what skills have, and what they should not have."""
    folder = tmp_path / "source"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("Do it.")
    (folder / "scripts" / "run.sh").write_text("#!/bin/sh\necho run\n")
    (folder / "scripts" / "run.sh").chmod(0o755)
    (folder / "scripts" / "again.sh").symlink_to("run.sh")
    (tmp_path / "outside").write_text("not part of the skill")
    (folder / "escape").symlink_to("../outside")
    (folder / "absolute").symlink_to(folder / "SKILL.md")
    (folder / "dangling").symlink_to("../../nowhere")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]")
    os.mkfifo(folder / "pipe")
    return folder


def dig(folder: Path, depth: int, name: str = "d") -> None:
    """Make ``depth`` folders in one another, also deeper than a path can be long."""
    inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=inner)
        outer, inner = inner, os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


def run_as(user: CommandUser, text: str, cwd: Path | str = "/", env: dict[str, str] | None = None) -> str:
    """Standard output and errors of a shell text that ``user`` runs, with the umask that commands have."""
    done = subprocess.run(
        ["/bin/sh", "-c", text],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **(env or {})},
        user=user.uid,
        group=user.gid,
        extra_groups=[],
        umask=0o077,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout
