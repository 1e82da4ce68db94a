"""A worker that is root: commands of another user get at what is theirs and at nothing else."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import CommandUser, Workspace, WorkspaceManager

from .conftest import NOBODY, Skill, as_root, run_as

pytestmark = as_root
STRANGER = CommandUser(65533, 65533)


@pytest.fixture
def manager(reachable: Path) -> WorkspaceManager:
    return WorkspaceManager(reachable / "jobs" / "job" / "agent", user=NOBODY, top=reachable / "jobs" / "job")


@pytest.fixture
def workspace(manager: WorkspaceManager) -> Workspace:
    workspace = manager.for_key("k")
    workspace.write_event(b'{"n": 1}')
    return workspace


def rights(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def test_owners_and_modes(manager: WorkspaceManager, workspace: Workspace) -> None:
    workspace.stage(Skill("s", None, "d1", "Do it.", {"run.sh": "#!/bin/sh\n"}))
    job = manager.root.parent
    assert rights(job) == rights(manager.root) == (0, NOBODY.gid, 0o710)
    assert rights(workspace.root) == rights(workspace.skills_dir) == (0, NOBODY.gid, 0o750)
    for folder in workspace.writable:
        assert rights(Path(folder)) == (NOBODY.uid, 0, 0o770), folder
    assert rights(workspace.inputs_dir) == (NOBODY.uid, 0, 0o770)
    assert rights(workspace.new_run()) == (NOBODY.uid, 0, 0o770)
    assert rights(workspace.skills_dir / "s") == (0, NOBODY.gid, 0o550)
    assert rights(workspace.skills_dir / "s" / "run.sh") == (0, NOBODY.gid, 0o550)
    assert rights(workspace.skills_dir / "s" / "SKILL.md") == (0, NOBODY.gid, 0o440)
    assert rights(workspace.root / "metadata.json") == (0, NOBODY.gid, 0o440)


@pytest.mark.parametrize("share", [False, True])
def test_what_a_command_can_do(manager: WorkspaceManager, workspace: Workspace, share: bool) -> None:
    manager.share_files = share
    copy = workspace.stage(Skill("s", None, "d1", "Do it.\n", {"run.sh": "#!/bin/sh\necho ran\n"}))
    done = run_as(
        NOBODY,
        "cat SKILL.md; ./run.sh; cat inputs/event.json; echo; ls ../.. | grep -vx bin;"
        "test -r ../../metadata.json && echo readable;"
        "for folder in work out work/inputs home tmp runs skills/s/.venv; do mkdir ../../$folder/made || exit 1; done;"
        "rm inputs/event.json; echo mine > inputs/event.json; echo ok",
        copy,
    )
    assert done.splitlines() == [
        "Do it.",
        "ran",
        '{"n": 1}',
        *("home", "metadata.json", "out", "runs", "skills", "tmp", "work"),
        "readable",
        "ok",
    ]


@pytest.mark.row("H4")
@pytest.mark.parametrize(
    "attempt",
    [
        "echo x >> SKILL.md",
        "chmod u+w SKILL.md",
        "rm -f SKILL.md",
        "mv .venv elsewhere",
        "touch new",
        "touch ../new",
        "mv ../../work ../../old",
        "ln -s /etc ../../out2",
        "echo {} > ../../metadata.json",
        "mv ../../metadata.json /tmp",
        "ls ../../..",
        "ls ../../../.skills",
        "ls ../../../../..",
    ],
)
def test_what_a_command_cannot_do(manager: WorkspaceManager, workspace: Workspace, attempt: str) -> None:
    manager.share_files = True
    copy = workspace.stage(Skill("s", None, "d1", "Do it."))
    before = {path: rights(path) for path in workspace.root.rglob("*")}
    assert run_as(NOBODY, f"{{ {attempt}; }} 2> /dev/null && echo done", copy) == ""
    assert {path: rights(path) for path in workspace.root.rglob("*")} == before
    assert (copy / "SKILL.md").read_text() == "Do it."


def test_others_on_the_machine_see_nothing(workspace: Workspace) -> None:
    (workspace.out_dir / "result").write_text("private")
    (workspace.out_dir / "result").chmod(0o666)
    assert run_as(STRANGER, f"cat {workspace.out_dir}/result 2> /dev/null; ls {workspace.root} 2> /dev/null") == ""


def test_links_that_a_command_planted_give_nothing_away(workspace: Workspace, reachable: Path) -> None:
    """The worker can write anywhere, so whoever could redirect it could too."""
    secret = reachable / "secret"
    secret.write_text("kept")
    secret.chmod(0o600)
    (reachable / "folder").mkdir(mode=0o700)
    for plant in (
        f"ln -sf {secret} event.json",
        f"rm -rf ../inputs; ln -s {reachable}/folder ../inputs",
        "rm -rf ../inputs; mkfifo ../inputs",
        "chmod 0 .; chmod 0 ..",
        "chmod 1777 .; chmod 1777 ..",
    ):
        run_as(NOBODY, plant, workspace.inputs_dir)
        workspace.write_event(b'{"n": 2}')
        assert (workspace.inputs_dir / "event.json").read_bytes() == b'{"n": 2}'
        assert rights(workspace.inputs_dir / "event.json") == (NOBODY.uid, 0, 0o660)
        assert rights(workspace.inputs_dir) == (NOBODY.uid, 0, 0o770)
        assert rights(secret) == (0, 0, 0o600)
        assert secret.read_text() == "kept"
        assert rights(reachable / "folder") == (0, 0, 0o700)
        assert list((reachable / "folder").iterdir()) == []


def test_folders_above_that_the_user_cannot_pass_are_named(reachable: Path) -> None:
    private = reachable / "private"
    private.mkdir(mode=0o700)
    manager = WorkspaceManager(private / "jobs" / "agent", user=NOBODY, top=private / "jobs")
    with pytest.raises(ExecutionError, match=rf"user 65534, .*'chmod o\+x {private}'.*skills\.workspace\.dir"):
        manager.for_key("k").ensure()
    assert rights(private) == (0, 0, 0o700)  # it is not the job's, so it stays as it is


def test_the_jobs_scratch_folder_lets_the_user_pass_and_nobody_else(reachable: Path) -> None:
    scratch = reachable / "scratch"
    scratch.mkdir(mode=0o700)
    manager = WorkspaceManager(
        scratch / "workspaces" / "agent", user=NOBODY, top=scratch / "workspaces", passages=(scratch,)
    )
    workspace = manager.for_key("k")
    workspace.write_event(b"{}")
    assert rights(scratch) == (0, NOBODY.gid, 0o710)
    assert run_as(NOBODY, f"cat {workspace.inputs_dir}/event.json; ls {scratch} 2> /dev/null") == "{}"
    assert run_as(STRANGER, f"ls -d {scratch}/workspaces 2> /dev/null") == ""
    manager.close()
    assert scratch.exists()
    assert list(scratch.iterdir()) == []


def test_a_strict_umask_changes_nothing(reachable: Path) -> None:
    before = os.umask(0o077)
    try:
        manager = WorkspaceManager(
            reachable / "new" / "jobs" / "agent", user=NOBODY, top=reachable / "new" / "jobs", share_files=True
        )
        workspace = manager.for_key("k")
        copy = workspace.stage(Skill("s", None, "d1", "Do it."))
        assert run_as(NOBODY, "cat SKILL.md; touch out/made", copy) == "Do it."
        assert (workspace.out_dir / "made").exists()
    finally:
        os.umask(before)
    manager.close()


_FEW_RIGHTS = """
import os, subprocess, sys
from pathlib import Path
from flink_skills.execution import CommandUser, WorkspaceManager
sys.path.insert(0, sys.argv[2])
from tests.execution.workspace.conftest import Skill, run_as

nobody = CommandUser(65534, 65534)
manager = WorkspaceManager(sys.argv[1], user=nobody, share_files=True, ttl=1e-9)
for key in ("one", "two"):
    workspace = manager.for_key(key)
    workspace.write_event(b"1")
    copy = workspace.stage(Skill("s", None, "d1", "Do it."))
    said = run_as(
        nobody,
        "cat SKILL.md inputs/event.json && mkdir -p out/a/b .venv/bin/c && touch out/a/b/f && ln -s / out/link"
        " && chmod 0 out/a/b out/a .venv && rm -rf inputs/event.json && mkdir inputs/event.json"
        " && touch inputs/event.json/f && chmod 0 inputs/event.json && chmod 0 inputs/ && chmod 0 ../../work ../../out",
        copy,
    )
    assert said == "Do it.1", said
    workspace.write_event(b"2")
    assert (workspace.inputs_dir / "event.json").stat().st_size == 1
    copy = workspace.stage(Skill("s", None, "d2", "Do it again."))
    assert run_as(nobody, "cat SKILL.md inputs/event.json; ls .venv", copy) == "Do it again.2bin\\n"
workspace.release()
assert manager.sweep() == 2
manager.close()
assert not Path(sys.argv[1]).exists()
print(next(line for line in open("/proc/self/status") if line.startswith("CapEff:")).split()[1])
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv of util-linux is not installed")
def test_root_needs_no_right_to_override_permissions(reachable: Path) -> None:
    """CAP_CHOWN, CAP_KILL, CAP_SETGID and CAP_SETUID are all that a worker of root has to have."""
    checkout = Path(__file__).parents[3]
    done = subprocess.run(
        [
            *("setpriv", "--inh-caps=-all", "--bounding-set=-all,+chown,+kill,+setgid,+setuid"),
            *(sys.executable, "-c", _FEW_RIGHTS, str(reachable / "root"), str(checkout)),
        ],
        cwd=checkout,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout, 16) == 1 << 0 | 1 << 5 | 1 << 6 | 1 << 7
