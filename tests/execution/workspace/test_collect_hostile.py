"""The collection of hostile output files reads nothing outside, does not block and does not fail.

Examines the internals of execution.workspace.globs on purpose.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flink_skills.execution import Workspace, WorkspaceManager, remove_tree
from flink_skills.execution.workspace import WorkspacePathError, globs

from .conftest import NOBODY, as_root, dig, run_as

SECRET = b"secret of the machine"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file.txt").write_bytes(SECRET)
    return folder


@pytest.fixture
def workspace(manager: WorkspaceManager) -> Workspace:
    workspace = manager.for_key("k")
    workspace.ensure()
    (workspace.out_dir / "kept.txt").write_text("kept")
    return workspace


def collected(workspace: Workspace) -> dict[str, bytes]:
    return {file.name: file.data for file in workspace.collect(["**"]).files}


def _link(path: Path, secret: Path) -> None:
    path.symlink_to(secret / "file.txt")


def _link_to_folder(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def _endless_link(path: Path, secret: Path) -> None:
    path.symlink_to(path.name)


def _pipe(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, secret: Path) -> None:
    # Addresses are shorter than paths.
    with _in(path.parent), socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)


@contextlib.contextmanager
def _in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _device(path: Path, secret: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices, and not in every container")


@pytest.mark.parametrize("plant", [_link, _link_to_folder, _endless_link, _pipe, _socket, _device])
def test_only_files_are_read(workspace: Workspace, secret: Path, plant: Callable[[Path, Path], None]) -> None:
    plant(workspace.out_dir / "planted.txt", secret)
    assert collected(workspace) == {"out/kept.txt": b"kept"}
    for path in ("out/planted.txt", "out/planted.txt/file.txt"):
        with pytest.raises(WorkspacePathError) as refused:
            workspace.read(path, 100)
        assert refused.value.reason in ("no-file", "missing")
    with pytest.raises(WorkspacePathError):
        workspace.place("work/copy", source=workspace.out_dir / "planted.txt", record={"from": "workspace://"})
    assert not (workspace.work_dir / "copy").exists()


def test_links_that_match_are_told(workspace: Workspace, secret: Path) -> None:
    _link(workspace.out_dir / "planted.txt", secret)
    assert workspace.collect(["out/*.txt"]).problems == ("'out/planted.txt' is a link, and links are not followed",)


@pytest.mark.parametrize("name", ["out", "work", "runs"])
def test_a_link_in_place_of_a_whole_folder(workspace: Workspace, secret: Path, name: str) -> None:
    remove_tree(workspace.root / name)
    (workspace.root / name).symlink_to(secret)
    assert SECRET not in collected(workspace).values()
    with pytest.raises(WorkspacePathError):
        workspace.read(f"{name}/file.txt", 100)


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_is_swapped_while_it_is_read(workspace: Workspace, secret: Path, what: str) -> None:
    """A thread puts a link in the place of a folder, or of a file, and takes it away, all the time."""
    inner = workspace.out_dir / "inner"
    inner.mkdir()
    (inner / "file.txt").write_text("mine")
    swapped, link = (inner, secret) if what == "folder" else (inner / "file.txt", secret / "file.txt")
    aside = workspace.tmp_dir / "aside"
    stop, turns = threading.Event(), 0

    def swap() -> None:
        while not stop.is_set():
            swapped.rename(aside)
            swapped.symlink_to(link)
            swapped.unlink()
            aside.rename(swapped)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen = set()
        while turns < 3000 and not (turns > 300 and b"mine" in seen):
            turns += 1
            seen |= set(collected(workspace).values())
            with contextlib.suppress(WorkspacePathError):
                seen.add(workspace.read("out/inner/file.txt", 100))
            with contextlib.suppress(WorkspacePathError):
                placed = workspace.place("work/copy", source=inner, record={"from": "workspace://out/inner"})
                seen |= {path.read_bytes() for path in placed.path.iterdir()}
    finally:
        stop.set()
        swapper.join()
    assert seen == {b"kept", b"mine"}


def test_more_files_than_anybody_wants(workspace: Workspace) -> None:
    many = workspace.out_dir / "many"
    many.mkdir()
    folder = os.open(many, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(12_000):
        os.close(os.open(f"f{number:06}", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder))
    os.close(folder)
    found = workspace.collect(["out/**"], max_files=5)
    assert [file.name for file in found.files] == ["out/kept.txt", *(f"out/many/f{n:06}" for n in range(4))]
    assert found.limits_hit == ("max_files",)
    assert workspace.collect(["out/*.txt"]).limits_hit == ()  # what cannot match is not even listed
    with pytest.raises(WorkspacePathError, match="more than 10000 files"):
        workspace.place("work/copy", source=many, record={"from": "workspace://out/many"})
    assert sorted(path.name for path in workspace.root.iterdir() if path.name.startswith(".")) == []


def test_a_limit_of_what_is_looked_at(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(globs, "MAX_ENTRIES", 10)
    for number in range(20):
        (workspace.work_dir / f"f{number}").touch()
    found = workspace.collect(["**"])
    assert found.limits_hit == ("max_entries",)
    assert 0 < len(found.files) <= 10


def test_a_tree_deeper_than_paths_can_be(workspace: Workspace) -> None:
    dig(workspace.out_dir, 3000)
    found = workspace.collect(["**", "**/x/**"])
    assert [file.name for file in found.files] == ["out/kept.txt"]
    assert found.limits_hit == ("max_depth",)
    with pytest.raises(WorkspacePathError, match="folders deep"):
        workspace.place("work/copy", source=workspace.out_dir / "d", record={"from": "workspace://out/d"})


def test_a_folder_that_contains_its_own_copy(workspace: Workspace) -> None:
    placed = workspace.place("work/a/b", source=workspace.work_dir, record={"from": "workspace://work"})
    assert placed.files == 0
    assert sorted(path.relative_to(placed.path).as_posix() for path in placed.path.rglob("*")) == ["a", "inputs"]


def test_names_that_are_no_text(workspace: Workspace) -> None:
    for name in (b"\xff.txt", b"new\nline.txt", b"quote'\".txt", b"$(rm -rf).txt", b"-rf", "\u202etxt.exe".encode()):
        (workspace.out_dir / os.fsdecode(name)).write_bytes(b"x")
    (workspace.out_dir / os.fsdecode(b"\xfe")).mkdir()
    (workspace.out_dir / os.fsdecode(b"\xfe") / "inner.txt").touch()
    found = workspace.collect(["out/**"])
    assert {file.name.encode() for file in found.files} == {
        *(b"out/kept.txt", b"out/new\nline.txt", b"out/quote'\".txt", b"out/$(rm -rf).txt", b"out/-rf"),
        "out/\u202etxt.exe".encode(),
    }
    assert sorted(found.problems) == [
        "'out/\\udcfe' has a name that is not UTF-8",
        "'out/\\udcff.txt' has a name that is not UTF-8",
    ]


def test_problems_do_not_pile_up(workspace: Workspace, secret: Path) -> None:
    for number in range(30):
        (workspace.out_dir / f"l{number}").symlink_to(secret)
    problems = workspace.collect(["out/**"]).problems
    assert len(problems) == 9
    assert problems[-1] == "22 more files or folders cannot be read"


_WITHOUT_RIGHTS = """
import os, sys
from pathlib import Path
from flink_skills.execution import WorkspaceManager
from flink_skills.execution.workspace import WorkspacePathError

workspace = WorkspaceManager(sys.argv[1]).for_key("k")
workspace.ensure()
(workspace.out_dir / "closed.txt").write_text("x")
(workspace.out_dir / "closed.txt").chmod(0)
(workspace.out_dir / "folder").mkdir()
(workspace.out_dir / "folder").chmod(0)
(workspace.out_dir / "open.txt").write_text("open")
found = workspace.collect(["out/**"])
assert [file.name for file in found.files] == ["out/open.txt"], found
for problem in found.problems:
    print(problem)
for path in ("out/closed.txt", "out/folder/x"):
    try:
        workspace.read(path, 10)
    except WorkspacePathError as error:
        print(error.reason, error)
workspace.release()
"""


def _run_worker(program: str, *arguments: str, before: tuple[str, ...]) -> str:
    checkout = Path(__file__).parents[3]
    done = subprocess.run(
        [*before, sys.executable, "-c", program, *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv of util-linux is not installed")
def test_what_the_worker_cannot_read_is_told(reachable: Path) -> None:
    without_rights = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()
    said = _run_worker(_WITHOUT_RIGHTS, str(reachable / "w"), before=without_rights)
    fix = "cannot be read: its mode denies access to the worker. Make it readable (chmod)."
    assert sorted(said.splitlines()) == [
        f"'out/closed.txt' {fix}",
        f"'out/folder' {fix}",
        f"unreadable 'out/closed.txt' {fix}",
        f"unreadable 'out/folder/x' {fix}",
    ]


@pytest.fixture
def theirs(reachable: Path) -> Iterator[Workspace]:
    manager = WorkspaceManager(reachable / "jobs", user=NOBODY)
    workspace = manager.for_key("k")
    workspace.ensure()
    yield workspace
    manager.close()


@as_root
def test_files_of_mode_0600_of_another_user(theirs: Workspace) -> None:
    run_as(NOBODY, "umask 077; mkdir -p out/in; echo mine > out/in/f; chmod 600 out/in/f; chmod 0 out/in", theirs.root)
    assert (theirs.out_dir / "in").stat().st_uid == NOBODY.uid
    assert {file.name: file.data for file in theirs.collect(["out/**"]).files} == {"out/in/f": b"mine\n"}
    assert theirs.read("out/in/f", 10) == b"mine\n"
    placed = theirs.place("work/copy", source=theirs.out_dir / "in", record={"from": "workspace://out/in"})
    assert run_as(NOBODY, "cat work/copy/f && echo more >> work/copy/f && echo ok", theirs.root) == "mine\nok\n"
    assert placed.size_bytes == 5


@as_root
def test_a_hard_link_to_a_file_of_somebody_else_is_not_read(theirs: Workspace) -> None:
    """As a command can make it where the kernel does not protect hard links (fs.protected_hardlinks=0)."""
    secret = theirs.root.parent / "secret.txt"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    (theirs.out_dir / "mine.txt").hardlink_to(secret)
    found = theirs.collect(["out/**"])
    assert found.files == ()
    assert found.problems == ("'out/mine.txt' belongs to another user, and only files of the commands' user are read",)
    with pytest.raises(WorkspacePathError, match="another user"):
        theirs.read("out/mine.txt", 100)
    with pytest.raises(WorkspacePathError, match="another user"):
        theirs.place("work/copy", source=theirs.out_dir, record={"from": "workspace://out"})
    secret.unlink()


_FEW_RIGHTS = """
import sys
from flink_skills.execution import CommandUser, WorkspaceManager
from tests.execution.workspace.conftest import run_as

nobody = CommandUser(65534, 65534)
manager = WorkspaceManager(sys.argv[1], user=nobody)
workspace = manager.for_key("k")
workspace.ensure()
run_as(
    nobody,
    "umask 077; mkdir -p out/in work/sub; echo mine > out/in/f; chmod 600 out/in/f; chmod 700 out/in; chmod 0 work/sub",
    workspace.root,
)
assert (workspace.out_dir / "in").stat().st_mode & 0o777 == 0o700
assert [file.data for file in workspace.collect(["out/**"]).files] == [b"mine\\n"], workspace.collect(["out/**"])
assert workspace.read("out/in/f", 10) == b"mine\\n"
placed = workspace.place("work/sub/copy", source=workspace.out_dir / "in", record={"from": "workspace://out/in"})
placed = workspace.place("work/sub/new/f", data=b"data", record={"from": "event://"})
placed = workspace.place("work/sub/copy", source=workspace.out_dir / "in", record={"from": "workspace://out/in"})
assert run_as(nobody, "cat work/sub/copy/f work/sub/new/f out/in/f", workspace.root) == "mine\\ndatamine\\n"
manager.close()
print(next(line for line in open("/proc/self/status") if line.startswith("CapEff:")).split()[1])
"""


@as_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv of util-linux is not installed")
def test_a_root_that_may_not_override_permissions(reachable: Path) -> None:
    few = ("setpriv", "--inh-caps=-all", "--bounding-set=-all,+chown,+kill,+setgid,+setuid")
    said = _run_worker(_FEW_RIGHTS, str(reachable / "w"), before=few)
    assert int(said, 16) == 1 << 0 | 1 << 5 | 1 << 6 | 1 << 7
