"""Files that commands left are found by patterns and within limits.

Examines the internals of execution.workspace.globs on purpose.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.execution import Workspace, WorkspaceManager
from flink_skills.execution.workspace import WorkspacePathError, is_text, media_type
from flink_skills.execution.workspace.globs import Globs
from tests.execution.workspace.conftest import Skill
from tests.kit.descriptors import descriptors

FILES = (
    "out/a.csv",
    "out/b.txt",
    "out/deep/c.csv",
    "out/deep/er/d.csv",
    "out/deep/.hidden",
    "out/[x].csv",
    "runs/run_1/log.txt",
    "work/e.csv",
    "work/inputs/f.csv",
)


@pytest.fixture
def workspace(manager: WorkspaceManager) -> Workspace:
    workspace = manager.for_key("k")
    workspace.ensure()
    for name in FILES:
        path = workspace.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return workspace


def names(workspace: Workspace, *patterns: str) -> list[str]:
    return [file.name for file in workspace.collect(patterns).files]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["out/*.csv"], ["out/[x].csv", "out/a.csv"]),
        (["./out/*.csv"], ["out/[x].csv", "out/a.csv"]),
        (["out\\*.txt"], ["out/b.txt"]),
        (["out/**/*.csv"], ["out/[x].csv", "out/a.csv", "out/deep/c.csv", "out/deep/er/d.csv"]),
        (["out/**"], [name for name in sorted(FILES) if name.startswith("out/")]),
        (["out/deep/**/*"], ["out/deep/.hidden", "out/deep/c.csv", "out/deep/er/d.csv"]),
        (["**/er/**"], ["out/deep/er/d.csv"]),
        (["**/**/**/d.csv"], ["out/deep/er/d.csv"]),
        (["**"], sorted(FILES)),
        (["*/?.csv"], ["out/a.csv", "work/e.csv"]),
        (["{out,work}/?.{csv,txt}"], ["out/a.csv", "out/b.txt", "work/e.csv"]),
        (["out/{a,deep/{c,er/d}}.csv"], ["out/a.csv", "out/deep/c.csv", "out/deep/er/d.csv"]),
        (["out/[a-b].*"], ["out/a.csv", "out/b.txt"]),
        (["out/[!a].*"], ["out/b.txt"]),
        (["out/[[]x].csv"], ["out/[x].csv"]),
        (["inputs/*.csv"], ["work/inputs/f.csv"]),
        (["out/a.csv", "out/*.csv", "**/a.csv"], ["out/[x].csv", "out/a.csv"]),
        (["out/nothing*"], []),
        (["out"], []),
        (["out/a.csv/x"], []),
        ([], []),
    ],
)
@pytest.mark.row("F6", "F12")
def test_patterns(workspace: Workspace, patterns: list[str], expected: list[str]) -> None:
    assert names(workspace, *patterns) == expected


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("/etc/*", "not relative"),
        ("../*", "'..'"),
        ("out/../../*", "'..'"),
        ("**/../x", "'..'"),
        ("tmp/*", "none of the folders"),
        ("skills/**", "none of the folders"),
        ("metadata.json", "none of the folders"),
        ("x*/a", "none of the folders"),
        ("C:/x", "not relative"),
        ("", "none of the folders"),
        ("out/\0", "NUL"),
        ("out/\ud800", "unpaired surrogate"),
        ("out/" + "{a,b}" * 20, "more than 256"),
        ("out/" + "/".join("a" * 100), "folders deep"),
    ],
)
def test_patterns_that_can_match_nothing(workspace: Workspace, pattern: str, said: str) -> None:
    with pytest.raises(WorkspacePathError, match=said) as refused:
        workspace.collect([pattern])
    assert refused.value.reason == "invalid"


def test_a_pattern_takes_no_time_that_explodes() -> None:
    """With a regular expression this would not end."""
    name = "a" * 255
    globs = Globs(["out/" + "**/" * 30 + "*a" * 60 + "b"], ["out"])
    position = globs.enter("out", globs.start)
    for _ in range(40):
        assert not globs.is_match(name, position)
        position = globs.enter(name, position)
    assert globs.is_match(name + "b", position)


@pytest.mark.parametrize(
    "patterns",
    [
        ["out/" + "{" * 990],
        ["out/" + "{a," * 330] * 256,
        ["out/" + "{a" * 490 + "}"] * 256,
        ["out/" + "{a,b}" * 12] * 10_000,
        ["out/" + "x{a,b}" * 7] * 10_000,
    ],
    ids=lambda patterns: patterns[0][:8],
)
def test_braces_take_no_quadratic_time(patterns: list[str]) -> None:
    # Linear work takes a fraction of a second.
    begun = time.process_time()
    with contextlib.suppress(WorkspacePathError):
        Globs(patterns, ["out"])
    assert time.process_time() - begun < 5


def test_a_pattern_has_at_most_1000_characters() -> None:
    with pytest.raises(WorkspacePathError, match="has more than 1000 characters: shorten it"):
        Globs(["out/" + "{" * 20_000], ["out"])


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("out/{a,b}", "a b"),
        ("out/{a,{b,c}}d", "ad bd cd"),
        ("out/{{a,b},c}", "a b c"),
        ("out/{a}{b,c}", "{a}b {a}c"),
        ("out/{x{b,c}", "{xb {xc"),
        ("out/a}{b,c}", "a}b a}c"),
        ("out/{a,b", "{a,b"),
    ],
)
def test_braces(pattern: str, names: str) -> None:
    globs = Globs([pattern], ["out"])
    for name in names.split():
        assert globs.is_match(name, globs.enter("out", globs.start))


_PARTS = st.sampled_from(["a", "b", "*", "**", "?", "a*", "*b", "*a*b", "[ab]", "[!a]", "a?*"])
_NAMES = st.text(alphabet="abc", min_size=1, max_size=4)


@given(parts=st.lists(_PARTS, min_size=1, max_size=5), names=st.lists(_NAMES, min_size=1, max_size=5))
def test_patterns_mean_what_a_regular_expression_of_them_means(parts: list[str], names: list[str]) -> None:
    globs = Globs(["/".join(["out", *parts])], ["out"])
    position = globs.enter("out", globs.start)
    for name in names[:-1]:
        position = globs.enter(name, position)
    signs = {"*": "[^/]*", "?": "[^/]"}
    texts = [re.sub(r"\*|\?", lambda sign: signs[sign[0]], part.replace("[!", "[^/")) for part in parts]
    expression = "".join("(/[^/]+)*" if part == "**" else f"/{text}" for part, text in zip(parts, texts, strict=True))
    assert globs.is_match(names[-1], position) == bool(re.fullmatch(expression, "".join(f"/{name}" for name in names)))


def test_unclosed_signs_are_characters(workspace: Workspace) -> None:
    for name in ("[a", "{a", "{a}", "a]", "}{,"):
        (workspace.out_dir / name).write_text("x")
        assert names(workspace, f"out/{name}") == [f"out/{name}"]


@pytest.mark.row("F12", "F24")
def test_what_a_file_says(workspace: Workspace) -> None:
    (workspace.out_dir / "ü.json").write_text('{"a": 1}')
    (workspace.out_dir / "empty.txt").touch()
    text, empty = workspace.collect(["out/ü.json", "out/empty.txt"]).files[::-1]
    assert (text.name, text.size, text.mime_type, text.data) == ("out/ü.json", 8, "application/json", b'{"a": 1}')
    assert (empty.name, empty.size, empty.mime_type, empty.data) == ("out/empty.txt", 0, "text/plain", b"")
    assert text.changed_ns == (workspace.out_dir / "ü.json").stat().st_ctime_ns
    assert not text.truncated


@pytest.mark.row("F12")
def test_max_files(workspace: Workspace) -> None:
    found = workspace.collect(["**/*.csv"], max_files=3)
    assert [file.name for file in found.files] == ["out/[x].csv", "out/a.csv", "out/deep/c.csv"]
    assert found.limits_hit == ("max_files",)
    assert workspace.collect(["out/deep/**"], max_files=3).limits_hit == ()


@pytest.mark.row("F12")
def test_max_file_bytes(workspace: Workspace) -> None:
    found = workspace.collect(["out/*.csv"], max_file_bytes=10)
    assert [(file.data, file.size, file.truncated) for file in found.files] == [
        (b"out/[x].cs", 11, True),
        (b"out/a.csv", 9, False),
    ]
    assert found.limits_hit == ("max_file_bytes",)


@pytest.mark.row("F12")
def test_max_total_bytes(workspace: Workspace) -> None:
    found = workspace.collect(["out/**/*.csv"], max_total_bytes=15)
    assert [(file.data, file.truncated) for file in found.files] == [(b"out/[x].csv", False), (b"out/", True)]
    assert found.limits_hit == ("max_total_bytes",)


def test_a_huge_file_is_not_read_as_a_whole(workspace: Workspace) -> None:
    with (workspace.out_dir / "huge.bin").open("wb") as file:
        file.truncate(1 << 40)
    [found] = workspace.collect(["out/huge.bin"], max_file_bytes=1 << 16).files
    assert (found.size, len(found.data), found.truncated) == (1 << 40, 1 << 16, True)
    with pytest.raises(WorkspacePathError, match="1099511627776 bytes; the limit is 4096") as refused:
        workspace.read("out/huge.bin", 4096)
    assert refused.value.reason == "too-large"


def test_order_is_that_of_the_paths(workspace: Workspace) -> None:
    for name in ("s/a", "s-a", "s.a", "s0"):
        path = workspace.out_dir / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert names(workspace, "out/s*/**", "out/s*") == ["out/s-a", "out/s.a", "out/s/a", "out/s0"]


def test_reading_one_file(workspace: Workspace) -> None:
    assert workspace.read("out/a.csv", 9) == b"out/a.csv"
    assert workspace.read("inputs/f.csv", 100) == workspace.read("./work//inputs/f.csv", 100) == b"work/inputs/f.csv"
    assert workspace.read_part("out/a.csv", 4, 3) == (b"a.c", 9)
    assert workspace.read_part("out/a.csv", 90, 3) == (b"", 9)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("out/none.csv", "missing"),
        ("out/none/x.csv", "missing"),
        ("out/a.csv/x", "missing"),
        ("out", "no-file"),
        ("out/deep", "no-file"),
        ("home/x", "invalid"),
        ("metadata.json", "invalid"),
        ("/etc/passwd", "invalid"),
        ("~/x", "invalid"),
        ("out/../metadata.json", "invalid"),
        ("", "invalid"),
        ("out/" + "x" * 256, "invalid"),
    ],
)
def test_reading_what_cannot_be_read(workspace: Workspace, path: str, reason: str) -> None:
    with pytest.raises(WorkspacePathError) as refused:
        workspace.read(path, 100)
    assert refused.value.reason == reason, refused.value


def test_a_workspace_that_was_never_used_has_no_files(manager: WorkspaceManager) -> None:
    assert manager.for_key("new").collect(["**"]).files == ()


def test_media_types() -> None:
    assert media_type("a.json", b"{}") == "application/json"
    assert media_type("a.tar.gz", b"\x1f\x8b\x08") == "application/gzip"
    assert media_type("A.PNG", b"\x89PNG\r\n\x1a\n\0") == "image/png"
    assert media_type("noname", b"%PDF-1.7 \xff") == "application/pdf"
    assert media_type("a.csv", b"\xff\xfe\0") == "application/octet-stream"
    assert media_type("Makefile", b"all:\n") == "text/plain"
    assert media_type("a.unheard-of", b"\0") == "application/octet-stream"
    assert media_type("../..", b"") == "text/plain"


@pytest.mark.parametrize("cut", range(5))
def test_text_that_is_cut_in_a_character_is_text(cut: int) -> None:
    assert is_text(("a" * 8190 + "€uro").encode()[: 8190 + cut])
    assert not is_text(b"\xe2\x82 euro")


def test_descriptors_are_given_back(workspace: Workspace) -> None:
    os.mkfifo(workspace.out_dir / "pipe.csv")
    before = descriptors()
    for _ in range(3):
        workspace.collect(["**"], max_files=2)
        workspace.collect(["**"])
        with pytest.raises(WorkspacePathError):
            workspace.read("out/pipe.csv", 1)
        with pytest.raises(WorkspacePathError):
            workspace.read("out/deep/none", 1)
    assert descriptors() == before


def read(path: Path) -> dict[str, object]:
    data = json.loads((path / "metadata.json").read_text())
    assert isinstance(data, dict)
    return data


@pytest.mark.row("H12")
def test_a_new_workspace(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    data = read(workspace.root)
    assert data["version"] == 1
    assert data["skills"] == {}
    assert data["inputs"] == data["outputs"] == []
    assert str(data["created_at"]) <= str(data["last_access"])
    assert stat.S_IMODE((workspace.root / "metadata.json").stat().st_mode) == 0o400
    assert [path.name for path in workspace.root.iterdir() if path.name.startswith(".")] == []


@pytest.mark.row("H12")
def test_the_time_of_access_is_that_of_each_use(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    seen = []
    for _ in range(3):
        workspace.write_event(b"{}")
        begun = (workspace.root / "metadata.json").stat().st_mtime_ns
        workspace.release()
        seen += [begun, (workspace.root / "metadata.json").stat().st_mtime_ns]
    assert seen == sorted(set(seen))
    assert read(workspace.root)["created_at"] != ""


def test_it_is_replaced_and_never_written_in_place(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    with (workspace.root / "metadata.json").open() as before:
        workspace.stage(Skill("s", None, "d1", "Do it."))
        assert json.load(before)["skills"] == {}
    assert list(read(workspace.root)["skills"]) == ["s"]  # type: ignore[call-overload]


@pytest.mark.row("H12")
def test_outputs_that_were_noted_stay(manager: WorkspaceManager) -> None:
    workspace = manager.for_key("k")
    workspace.ensure()
    workspace.release()
    data = read(workspace.root)
    data["outputs"] = [{"globs": ["out/*.txt"], "saved_as": [], "versions": [], "limits_hit": False, "ts": "t"}]
    (workspace.root / "metadata.json").chmod(0o600)
    (workspace.root / "metadata.json").write_text(json.dumps(data))
    workspace.stage(Skill("s", None, "d1", "Do it."))
    assert read(workspace.root)["outputs"] == data["outputs"]
    assert read(workspace.root)["created_at"] == data["created_at"]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _folder(path: Path) -> None:
    path.mkdir()


def _text(text: str) -> Callable[[Path], None]:
    def plant(path: Path) -> None:
        path.write_text(text)

    return plant


@pytest.mark.parametrize(
    "plant",
    [
        _pipe,
        _link,
        _text(""),
        _text("[]"),
        _text('{"version": 2}'),
        _text('{"version": 1, "created_at": "", "updated_at": "", "last_access": "", "skills": {"s": {"digest": 1}}}'),
        _text('{"version": 1, "skills": []}'),
        _text("[" * 100_000),
        _text("\0" * (5 << 20)),
    ],
)
def test_what_is_no_metadata_is_replaced_and_skills_are_staged_anew(
    manager: WorkspaceManager, plant: Callable[[Path], None]
) -> None:
    workspace = manager.for_key("k")
    inode = workspace.stage(Skill("s", None, "d1", "Do it.")).stat().st_ino
    workspace.release()
    (workspace.root / "metadata.json").unlink()
    plant(workspace.root / "metadata.json")
    assert workspace.stage(Skill("s", None, "d1", "Do it.")).stat().st_ino != inode
    assert list(read(workspace.root)["skills"]) == ["s"]  # type: ignore[call-overload]
