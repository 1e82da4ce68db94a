"""File tools reach the workspace, its links, inputs and skills, and nothing else.

Examines the internals of tools.files.file_tool on purpose.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError
from flink_skills.execution import IsolationReport, WorkspaceManager
from flink_skills.execution.backends import HygieneBackend
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner, ToolContext
from flink_skills.tools.files import FileToolSet, Read, file_tool

from .conftest import Files

RACE_SECONDS = 3.0


@pytest.mark.row("J13")
async def test_relative_and_absolute_paths(files: Files) -> None:
    await files("Write", path="$OUTPUT_DIR/a.txt", content="out\n")
    assert (files.workspace.out_dir / "a.txt").read_text() == "out\n"
    for path in (str(files.workspace.out_dir / "a.txt"), "${OUTPUT_DIR}/a.txt", "../out/a.txt", "..\\out\\a.txt"):
        assert (await files("Read", path=path))["content"] == "1 | out"
    await files("Write", path="~/notes", content="home\n")
    assert (files.workspace.home_dir / "notes").read_text() == "home\n"
    assert (await files("Write", path=str(files.work / "x" / "y"), content=""))["path"] == "x/y"


@pytest.mark.row("J13")
async def test_a_folder_of_its_own(shell_with: Callable[..., object]) -> None:
    files = Files(await shell_with(), cwd="reports/may")  # type: ignore[misc]
    assert (await files("Bash", command="pwd"))["stdout"] == f"{files.work}/reports/may\n"
    assert (await files("Write", path="a.txt", content="x"))["path"] == "a.txt"
    assert (files.work / "reports" / "may" / "a.txt").read_text() == "x"
    assert (await files("Write", path="../b.txt", content="x"))["path"] == "$WORK_DIR/reports/b.txt"
    assert (await files("Glob", pattern="**/*"))["matches"] == ["a.txt"]
    assert (await files("Read", path="$WORK_DIR/reports/b.txt"))["success"]


@pytest.mark.row("J13")
@pytest.mark.parametrize("cwd", ["/tmp", "~", "..", "a/../b", "$NO/x", "$WORKSPACE_DIR/x", "$OUTPUT_DIRx", "x\0"])
def test_folders_that_no_workspace_has(cwd: str) -> None:
    with pytest.raises(ConfigError, match=r"Read\(cwd="):
        FileToolSet(cwd)


@pytest.mark.row("J13")
async def test_all_six_are_there(files: Files) -> None:
    tools = await files.set.get_tools(files.context)
    assert [tool.spec.name for tool in tools] == ["Read", "Write", "Edit", "Grep", "Glob", "Bash"]
    result = await Read().call({"path": "x"}, ToolContext())
    assert result.is_error
    assert "skills.shell.enabled" in result.content


@pytest.mark.row("J13")
async def test_skills_are_read_and_never_written(files: Files, skills: Path) -> None:
    assert "Load it first" in await files.error("Read", path="$SKILLS_DIR/secret-ops/SKILL.md")
    files.context.skill_state.apply({"op": "load", "skill": "log-triage"})  # type: ignore[union-attr]
    own = "$SKILLS_DIR/log-triage/SKILL.md"
    [original] = [str(skill.path) for skill in [files.context.skills.get("log-triage")]]  # type: ignore[union-attr]
    for path in (own, f"{original}/SKILL.md", str(files.workspace.skills_dir / "log-triage" / "SKILL.md")):
        assert "Finds the root cause" in str((await files("Read", path=path))["content"])
        for tool, more in (("Write", {"content": "x"}), ("Edit", {"old_string": "Finds", "new_string": "x"})):
            assert "read-only" in await files.error(tool, path=path, **more)
    (files.work / "s").symlink_to("../skills")
    assert "read-only" in await files.error("Write", path="s/log-triage/x", content="x")
    assert (await files("Grep", pattern="Finds the root", path="$SKILLS_DIR"))["total_matches"] == 1
    value = await files("Glob", pattern="$SKILLS_DIR/*/*.md")
    assert value["matches"] == ["$SKILLS_DIR/log-triage/SKILL.md"]


async def test_skills_of_other_models_are_not_there(files: Files, manager: object, view: SkillView) -> None:
    everything = manager.view(["secret-ops"])  # type: ignore[attr-defined]
    files.workspace.stage(everything.get("secret-ops"))
    (files.work / "s").symlink_to("../skills")
    for path in ("$SKILLS_DIR/secret-ops/SKILL.md", "s/secret-ops/SKILL.md"):
        assert "no skill 'secret-ops' here" in await files.error("Read", path=path)
    for path in ("$SKILLS_DIR", "s", "$WORKSPACE_DIR"):
        assert (await files("Grep", pattern="Secret text", path=path))["total_matches"] == 0
    assert (await files("Glob", pattern="$SKILLS_DIR/**"))["matches"] == []


async def test_inputs_of_the_job_are_read_and_never_written(tmp_path: Path) -> None:
    given, single = tmp_path / "given", tmp_path / "single.csv"
    (given / "sub").mkdir(parents=True)
    (given / "sub" / "a.txt").write_text("granted\n")
    (given / "out.txt").symlink_to("/etc/passwd")
    (given / "again.txt").symlink_to("sub/a.txt")
    single.write_text("one\n")
    backend = HygieneBackend()
    workspaces = WorkspaceManager(tmp_path / "w", inputs=(str(given), str(single)))
    shell = ShellRunner(backend, workspaces, SkillConfig(), report=IsolationReport(backend.level, backend.name))
    await backend.start()
    files = Files(shell)
    try:
        for path in ("inputs/given/sub/a.txt", "inputs/given/again.txt"):
            assert (await files("Read", path=path))["content"] == "1 | granted"
        assert (await files("Read", path="inputs/single.csv"))["content"] == "1 | one"
        assert "not followed" in await files.error("Read", path="inputs/given/out.txt")
        assert (await files("Read", path="inputs/single.csv/work/x"))["success"] is False
        [match] = (await files("Grep", pattern="granted", path="inputs/given"))["matches"]  # type: ignore[misc]
        assert match["file"] == "inputs/given/sub/a.txt"
        for path in ("inputs/single.csv", "inputs/given/sub/a.txt", "inputs/given/new"):
            assert "read-only" in await files.error("Write", path=path, content="x")
        # A link that a command makes to what is granted is as good; one to its neighbour is none.
        (files.work / "more").symlink_to(tmp_path)
        assert "not followed" in await files.error("Read", path="more/single.csv")
    finally:
        await shell.close()
        workspaces.close()
    assert (given / "sub" / "a.txt").read_text() == "granted\n"


async def test_links_within_the_workspace_are_followed(files: Files) -> None:
    await files("Write", path="runs/1/a.txt", content="one\n")
    (files.work / "latest").symlink_to("runs/1")
    (files.work / "abs").symlink_to(files.work / "runs")
    (files.work / "loop").symlink_to("loop")
    assert (await files("Read", path="latest/a.txt"))["content"] == "1 | one"
    assert (await files("Read", path="abs/1/a.txt"))["content"] == "1 | one"
    assert (await files("Write", path="latest/b.txt", content="x"))["path"] == "runs/1/b.txt"
    assert (files.work / "latest").is_symlink()
    assert (await files("Edit", path="latest/a.txt", old_string="one", new_string="two"))["success"]
    assert "more than 40 links" in await files.error("Read", path="loop")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside.txt", "../../../../../../etc/passwd", "/"])
async def test_links_out_of_the_workspace_are_not(files: Files, outside: Path, target: str) -> None:
    (files.work / "link").symlink_to(target)
    (files.work / "outside").symlink_to(outside)
    for path in ("link", "outside"):
        for tool, more in (
            ("Read", {}),
            ("Write", {"content": "x"}),
            ("Write", {"content": "x", "append": True}),
            ("Edit", {"old_string": "not", "new_string": "x"}),
            ("Grep", {"pattern": "."}),
            ("Bash", {"command": "true"}),
        ):
            asked = {"cwd": path} if tool == "Bash" else {"path": path}
            assert "workspace" in await files.error(tool, **asked, **more)


async def test_what_is_no_file_is_never_opened(files: Files) -> None:
    os.mkfifo(files.work / "pipe")
    for tool, more in (
        ("Read", {}),
        ("Edit", {"old_string": "a", "new_string": "b"}),
        ("Write", {"content": "x", "append": True}),
        ("Grep", {"pattern": "."}),
    ):
        assert "is a pipe" in await files.error(tool, path="pipe", **more)
    assert (await files("Grep", pattern="."))["total_matches"] == 0
    assert "is a folder" not in await files.error("Bash", command="true", cwd="pipe")


class Swapping:
    """Puts one thing and then another in a place, again and again."""

    def __init__(self, place: Path, target: str, *, folder: bool) -> None:
        self.place, self.target, self.folder = place, target, folder
        self.swaps = 0
        self._over = False
        self._thread = threading.Thread(target=self._swap)

    def __enter__(self) -> Swapping:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()

    def _swap(self) -> None:
        while not self._over:
            # The tools make what is missing, at any moment.
            with suppress(OSError):
                self._put(lambda new: new.symlink_to(self.target))
                self._put(self._real)
                self.swaps += 1

    def _real(self, new: Path) -> None:
        if self.folder:
            new.mkdir()
            new = new / "outside.txt"
        new.write_text("inside\n")

    def _put(self, make: Callable[[Path], object]) -> None:
        new, old = self.place.with_name("new"), self.place.with_name("old")
        for path in (new, old):
            _remove(path)
        make(new)
        if self.folder:
            self.place.rename(old)
        new.replace(self.place)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
async def test_a_link_that_comes_during_the_call_leads_nowhere(files: Files, outside: Path, folder: bool) -> None:
    place = files.work / "place"
    if folder:
        place.mkdir()
        (place / "outside.txt").write_text("inside\n")
    else:
        place.write_text("inside\n")
    path = "place/outside.txt" if folder else "place"
    read = 0
    with Swapping(place, str(outside.parent if folder else outside), folder=folder) as swapping:
        deadline = time.monotonic() + RACE_SECONDS
        while time.monotonic() < deadline or swapping.swaps < 10:
            assert time.monotonic() < deadline + 60
            value = await files("Read", path=path)
            assert "not for models" not in str(value)
            read += value["success"] is True
            assert "not for models" not in str(await files("Grep", pattern="for models", path=path))
            await files("Edit", path=path, old_string="not for models", new_string="changed")
            await files("Write", path=path, content="inside\n")
            await files("Write", path=path, content="inside\n", append=True)
    assert read, "some calls came between two swaps"


async def test_a_machine_without_descriptors_is_a_result(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(path: str, parent: int | None = None) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(file_tool, "pinned", none_left)
    for tool, more in (("Read", {}), ("Write", {"content": "x"}), ("Grep", {"pattern": "x"})):
        assert "failed: Too many open files" in await files.error(tool, path="a", **more)
