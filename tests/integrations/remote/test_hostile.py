"""A sandbox is not trusted: whatever it answers, the worker's files and memory are safe.

Examines the internals of integrations.remote on purpose.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flink_skills.errors import ExecutionError
from flink_skills.execution import CommandRequest, Limits
from flink_skills.integrations.remote.exchange import Folders
from flink_skills.integrations.remote.inside.folder_streams import Entry
from flink_skills.integrations.remote.sandbox import take_changes
from tests.integrations.remote.cluster import Cluster
from tests.integrations.remote.conftest import Key

FILE: list[Any] = ["file", 0o644, 4, 0, ""]


class Taken:
    """A workspace that takes changes from a stream."""

    def __init__(self, tmp_path: Path, limits: Limits) -> None:
        self.root = tmp_path / "ws"
        self.work = self.root / "work"
        self.work.mkdir(parents=True)
        (self.root / "skills").mkdir()
        request = CommandRequest(
            ("x",), cwd="/", root=str(self.root), writable=(str(self.work),), readable=(str(self.root / "skills"),),
            limits=limits,
        )  # fmt: skip
        self.folders = Folders(request)
        self.known: dict[str, Entry] = {}

    def __call__(
        self, *entries: list[Any], removed: list[Any] | None = None, content: bytes = b"evil" * 10
    ) -> list[str]:
        header = json.dumps({"entries": entries, "removed": removed or []}).encode() + b"\n"
        return take_changes(self.folders, io.BytesIO(header + content), self.known, None)


@pytest.fixture
def take(tmp_path: Path) -> Taken:
    return Taken(tmp_path, Limits(workspace_bytes=1000, workspace_files=10))


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "path",
    [
        *("workspace/work/../../outside", "workspace/work/./x", "/etc/x", "workspace//work/x", "workspace/work/x\0y"),
        *("../outside", "workspace/..", "", "workspace/work/" + "d/" * 200 + "x"),
    ],
)
def test_paths_that_lead_elsewhere_are_refused(take: Taken, tmp_path: Path, path: str) -> None:
    before = everything(tmp_path)

    with pytest.raises(ExecutionError, match="sandbox sent are not valid"):
        take([path, *FILE])
    with pytest.raises(ExecutionError, match="sandbox sent are not valid"):
        take(removed=[path])

    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "path", ["workspace/x", "workspace/skills/x", "workspace/work", "workspace", "other/work/x", "workspace/workx/y"]
)
def test_only_writable_folders_are_written(take: Taken, tmp_path: Path, path: str) -> None:
    before = everything(tmp_path)

    assert take([path, *FILE], ["workspace/work/good", *FILE]) == [path]

    assert everything(tmp_path) - before == {"ws/work/good"}
    assert (take.work / "good").read_bytes() == b"evil"


def test_nothing_is_removed_elsewhere(take: Taken) -> None:
    (take.root / "skills" / "SKILL.md").write_text("kept")

    take(removed=["workspace/skills/SKILL.md", "workspace/work", "other/x"])

    assert (take.root / "skills" / "SKILL.md").exists() and take.work.is_dir()


def test_nothing_is_written_or_removed_through_a_link(take: Taken, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (take.work / "link").symlink_to(outside)
    (take.work / "file").symlink_to(outside / "file")

    take(["workspace/work/link/new", *FILE], ["workspace/work/file", *FILE], removed=["workspace/work/link/file"])

    assert everything(outside) == {"file"} and (outside / "file").read_text() == "kept"
    assert (take.work / "link" / "new").read_bytes() == b"evil" and not (take.work / "link").is_symlink()
    assert (take.work / "file").read_bytes() == b"evil"


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../..", "../../outside", "x/../../../..", "", "/", "/proc/self/environ", "../../ws2"]
)
def test_links_that_lead_out_are_not_made(take: Taken, target: str) -> None:
    assert take(["workspace/work/link", "link", 0o777, 0, 0, target]) == ["workspace/work/link"]
    assert everything(take.work) == set()


def test_links_cannot_be_combined_to_lead_out(take: Taken) -> None:
    left = take(
        ["workspace/work/here", "link", 0o777, 0, 0, "."],
        ["workspace/work/up", "link", 0o777, 0, 0, "here/../.."],
        ["workspace/work/top", "link", 0o777, 0, 0, ".."],
        ["workspace/work/out", "link", 0o777, 0, 0, "top/../.."],
    )

    assert left == ["workspace/work/up", "workspace/work/out"]
    for path in take.work.iterdir():
        assert Path(os.path.realpath(path)).is_relative_to(take.root)


@pytest.mark.parametrize(
    "entry",
    [
        *(["x"], "x", None, ["workspace/work/x", "device", 0, 0, 0, ""], ["workspace/work/x", "file", 0, -1, 0, ""]),
        *(["workspace/work/x", "file", 0, "4", 0, ""], ["workspace/work/x", "folder", 0, 4, 0, ""]),
        *(["workspace/work/x", "link", 0, 0, 0, "a\0b"], ["workspace/work/x", "file", 0, 4, 0, None]),
    ],
)
def test_malformed_entries_are_refused(take: Taken, entry: Any) -> None:
    with pytest.raises(ExecutionError, match="sandbox sent are not valid"):
        take(entry)


@pytest.mark.parametrize("stream", [b"", b"no json\n", b"[]\n", b"{}", b"[" * 100_000 + b"\n"])
def test_streams_that_are_none(take: Taken, stream: bytes) -> None:
    with pytest.raises(ExecutionError, match="sandbox sent are not valid"):
        take_changes(take.folders, io.BytesIO(stream), take.known, None)


def test_a_stream_that_ends_early(take: Taken) -> None:
    with pytest.raises(ExecutionError, match="writing the changes of the sandbox failed"):
        take(["workspace/work/x", "file", 0o644, 100, 0, ""], content=b"short")
    assert everything(take.work) == set()


def test_modes_give_no_rights(take: Taken) -> None:
    take(["workspace/work/x", "file", 0o6777, 4, 1 << 70, ""])

    about = (take.work / "x").stat()
    assert about.st_mode & 0o7000 == 0


@pytest.mark.parametrize(
    "entries",
    [
        [["workspace/work/x", "file", 0o644, 10_000, 0, ""]],
        [[f"workspace/work/{number}", "file", 0o644, 300, 0, ""] for number in range(9)],
        [[f"workspace/work/{number}", *FILE] for number in range(50)],
    ],
)
def test_more_than_the_limits_is_not_taken(take: Taken, entries: list[list[Any]]) -> None:
    with pytest.raises(ExecutionError, match="workspace_bytes"):
        take(*entries, content=bytes(20_000))
    assert everything(take.work) == set()


def answering(stdout: object, verb: str = "start") -> Any:
    """A router that gives the answer ``stdout`` to one verb of the program."""

    def fault(request: web.Request) -> web.StreamResponse | None:
        if request.path != "/execute":
            return None
        return _Pretended(stdout, verb)

    return fault


class _Pretended(web.Response):
    def __init__(self, stdout: object, verb: str) -> None:
        text = stdout if isinstance(stdout, str) else json.dumps(stdout)
        super().__init__(
            text=json.dumps({"stdout": text, "stderr": "", "exit_code": 0}), content_type="application/json"
        )


REPORT = {
    "exit_code": 0, "signal": None, "timed_out": False, "limit": None, "error": None, "cpu_time": 0, "memory": 0,
}  # fmt: skip
ENDED = {"state": "ended", "report": REPORT, "stdout": ["", "", 0], "stderr": ["", "", 0], "changes": 0}


@pytest.mark.parametrize(
    "answer",
    [
        *("", "no json", [], "[" * 100_000, {}, {"state": "lost"}, {"state": "ended"}),
        {**ENDED, "report": None},
        {**ENDED, "report": {**REPORT, "signal": 9}},
        {**ENDED, "report": {**REPORT, "exit_code": None}},
        {**ENDED, "report": {**REPORT, "exit_code": "x"}},
        {**ENDED, "report": {**REPORT, "memory": 1e400}},
        {**ENDED, "stdout": "x"},
        {**ENDED, "stdout": ["*", 1, 0]},
        {**ENDED, "changes": 10},
    ],
)
async def test_answers_that_make_no_sense_are_errors(cluster: Cluster, key: Key, answer: object) -> None:
    cluster.faults = [answering(answer)]

    result = await key.run("true")

    assert result.exit_code is None and result.error


async def test_a_flood_of_an_answer_is_not_read(cluster: Cluster, key: Key) -> None:
    cluster.faults = [answering("x" * 50_000_000)]

    result = await key.run("true")

    assert "sent more than the" in str(result.error)


async def test_a_command_that_meddles_with_the_program_harms_itself_only(cluster: Cluster, key: Key) -> None:
    place = cluster.pods["pool-1"].folder / ".flink-skills"

    await key.run("sh", "-c", f"rm -rf {place}/*; ln -s /etc {place}/files")

    result = await key.sh("echo fine; cat ../skills/report/SKILL.md")
    assert result.stdout == b"fine\n# Report\n"
    assert cluster.made == 2
