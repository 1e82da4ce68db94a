"""AgentSkill, its files, its digest, and the search for skills in a tree.

Examines the internals of skill.paths on purpose.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, ResourceError
from flink_skills.skill import AgentSkill, FolderFiles, Limits, MemoryFiles, Report, digest_of, find_skills, load_folder
from tests.kit.skills import write_skill


def load(folder: Path, **options: object) -> AgentSkill:
    loaded = load_folder(str(folder), **options)  # type: ignore[arg-type]
    assert loaded.skill is not None, loaded.diagnostics
    return loaded.skill


def found(root: Path, limits: Limits | None = None) -> tuple[list[str], list[str]]:
    report = Report(str(root))
    folders = [os.path.relpath(skill.folder, root) for skill in find_skills(str(root), report, limits or Limits())]
    return folders, [diagnostic.code for diagnostic in report.diagnostics]


@pytest.mark.row("A11")
def test_a_skill_made_in_memory() -> None:
    skill = AgentSkill("greet", "Says hello.", "Say hello.", {"references/a.md": "Hi"})
    assert skill.instructions == "Say hello."
    assert dict(skill.resources) == {"references/a.md": "Hi"}
    assert skill.path is None
    assert skill.digest == AgentSkill("greet", "Says hello.", "Say hello.", {"references/a.md": "Hi"}).digest
    assert skill.digest != AgentSkill("greet", "Says hello.", "Say hello.", {"references/a.md": "Ho"}).digest
    assert skill.digest != AgentSkill("greet", "Says hello!", "Say hello.", {"references/a.md": "Hi"}).digest


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "a\u200bb"])
def test_a_skill_in_memory_has_a_usable_name(name: str) -> None:
    with pytest.raises(ConfigError, match="skill name"):
        AgentSkill(name, "Says hello.")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "SKILL.md", "a\\b", ""])
def test_resources_in_memory_stay_inside(path: str) -> None:
    with pytest.raises(ConfigError, match="resource"):
        AgentSkill("greet", "Says hello.", resources={path: "x"})


@pytest.mark.row("A11")
def test_memory_and_folder_forms_of_a_skill_have_the_same_digest(tmp_path: Path) -> None:
    skill = AgentSkill("greet", "Says hello.", "Say hello.", {"references/a.md": "Hi", "b.txt": "B"})
    folder = tmp_path / "greet"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text(skill.to_markdown())
    for path, text in skill.resources.items():
        (folder / path).write_text(text)
    assert load(folder).digest == skill.digest


@pytest.mark.row("A1")
def test_a_folder_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet", body="First.")
    (folder / "references").mkdir()
    skill = load(folder)
    (folder / "references" / "a.md").write_text("later")
    assert skill.instructions == "First."
    assert list(skill.resources) == ["references/a.md"]
    assert skill.resources["references/a.md"] == "later"
    with pytest.raises(KeyError):
        skill.resources["SKILL.md"]


def test_after_the_digest_a_change_is_an_error(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet")
    (folder / "a.md").write_text("one")
    skill = load(folder)
    digest = skill.digest
    assert skill.resources["a.md"] == "one"
    (folder / "a.md").write_text("two")
    (folder / "b.md").write_text("new")
    with pytest.raises(ResourceError, match="has changed"):
        skill.files.read("a.md", 0, 10)
    with pytest.raises(ResourceError, match="did not exist"):
        skill.files.read("b.md", 0, 10)
    (folder / "a.md").write_text("one")  # the same content under another time stamp is the same file
    assert skill.files.read("a.md", 0, 10).data == b"one"
    assert skill.digest == digest


def test_the_digest_depends_on_names_sizes_and_content(tmp_path: Path) -> None:
    digests = set()
    for number, files in enumerate([{"a": "x"}, {"a": "y"}, {"b": "x"}, {"a": "x", "b": ""}, {"a": ""}, {}]):
        folder = tmp_path / str(number) / "greet"
        write_skill(folder)
        for name, text in files.items():
            (folder / name).write_text(text)
        digests.add(load(folder).digest)
    assert len(digests) == 6


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../other/SKILL.md",
        "a/../../x",
        "a\\b",
        "a\0b",
        "%2e%2e/x",
        "a%2Fb",
        "~/x",
        "C:/x",
        "",
        ".",
    ],
)
def test_paths_that_are_refused(tmp_path: Path, path: str) -> None:
    write_skill(tmp_path / "other")
    skill = load(write_skill(tmp_path / "greet"))
    with pytest.raises(ResourceError, match="cannot read"):
        skill.files.read(path, 0, 10)


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet")
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "dir").mkdir()
    skill = load(folder)
    for path in ("fifo", "link", "dir"):
        with pytest.raises(ResourceError):
            skill.files.read(path, 0, 10)
    assert skill.files.paths() == ("SKILL.md",)


def test_links_count_inside_their_source(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_skill(root / "greet")
    (root / "shared.md").write_text("shared")
    (tmp_path / "outside.md").write_text("outside")
    (root / "greet" / "in.md").symlink_to("../shared.md")
    (root / "greet" / "out.md").symlink_to("../../outside.md")
    (root / "greet" / "loop").symlink_to("..")
    skill = load(root / "greet", root=str(root.resolve()))
    assert skill.files.read("in.md", 0, 10).data == b"shared"
    assert "out.md" not in skill.files.paths()
    with pytest.raises(ResourceError, match="leaves"):
        skill.files.read("out.md", 0, 10)


def test_a_skill_file_behind_a_link_that_leaves_is_refused(tmp_path: Path) -> None:
    write_skill(tmp_path / "outside")
    folder = tmp_path / "root" / "greet"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to("../../outside/SKILL.md")
    loaded = load_folder(str(folder), root=str((tmp_path / "root").resolve()))
    assert loaded.skill is None
    assert [diagnostic.code for diagnostic in loaded.diagnostics] == ["S04"]
    assert load_folder(str(folder), root=str(tmp_path.resolve())).skill is not None


def test_files_of_a_nested_skill_are_its_own(tmp_path: Path) -> None:
    outer = write_skill(tmp_path / "outer")
    write_skill(outer / "parts" / "inner")
    (outer / "parts" / "inner" / "x.md").write_text("x")
    (outer / "parts" / "y.md").write_text("y")
    skill = load(outer)
    assert skill.files.paths() == ("SKILL.md", "parts/y.md")
    with pytest.raises(ResourceError, match="no file"):
        skill.files.read("parts/inner/x.md", 0, 10)
    assert found(tmp_path)[0] == ["outer", "outer/parts/inner"]


def test_limits_hold_before_reading(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet", body="x" * 1000)
    loaded = load_folder(str(folder), limits=Limits(skill_file=500))
    assert [diagnostic.code for diagnostic in loaded.diagnostics] == ["S05"]
    (folder / "SKILL.md").unlink()
    os.mkfifo(folder / "SKILL.md")
    loaded = load_folder(str(folder))
    assert [diagnostic.code for diagnostic in loaded.diagnostics] == ["D05"]


def test_a_large_body_behind_small_front_matter(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet", body="x\n" * 200_000)
    skill = load(folder)
    assert len(skill.instructions) == 399_999


@pytest.mark.row("A5")
def test_a_missing_name_is_the_folders(tmp_path: Path) -> None:
    folder = tmp_path / "greet"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\ndescription: d\n---\n")
    assert load(folder).name == "greet"
    assert load(folder, folder_name="other").name == "other"


def test_the_search_finds_skills_at_every_place(tmp_path: Path) -> None:
    for name in ("b", "a", ".curated/c", "deep/er/d"):
        write_skill(tmp_path / name)
    for name in (".git/x", "node_modules/y", "__MACOSX/z"):
        write_skill(tmp_path / name)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "skill.md").write_text("---\nname: old\ndescription: d\n---\n")
    (tmp_path / "both").mkdir()
    for name in ("SKILL.md", "skill.md"):
        (tmp_path / "both" / name).write_text("x")
    assert found(tmp_path) == ([".curated/c", "a", "b", "both", "deep/er/d", "old"], [])
    report = Report()
    files = {Path(f.folder).name: f.skill_file for f in find_skills(str(tmp_path), report, Limits())}
    assert (files["both"], files["old"]) == ("SKILL.md", "skill.md")


def test_the_root_itself_can_be_a_skill(tmp_path: Path) -> None:
    write_skill(tmp_path / "greet")
    assert found(tmp_path / "greet") == (["."], [])


def test_links_in_the_search(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_skill(root / "z" / "real")
    write_skill(tmp_path / "outside")
    (root / "a-link").symlink_to("z/real")
    (root / "b-loop").symlink_to(".")
    (root / "c-out").symlink_to("../outside")
    assert found(root) == (["z/real"], ["S04"])
    (root / "z" / "real").rename(root / "z" / ".git")  # no longer found by itself, only through the link
    (root / "a-link").unlink()
    (root / "a-link").symlink_to("z/.git")
    assert found(root) == (["a-link"], ["S04"])


def test_a_link_to_itself_hides_no_skill(tmp_path: Path) -> None:
    for name in "abcdefgh":
        write_skill(tmp_path / name)
        (tmp_path / f"{name}-loop").symlink_to(f"{name}-loop")
    assert found(tmp_path) == (list("abcdefgh"), [])


def test_a_skill_whose_file_is_a_link_comes_after_what_it_links_to(tmp_path: Path) -> None:
    write_skill(tmp_path / "b")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "SKILL.md").symlink_to("../b/SKILL.md")
    assert [Path(each.folder).name for each in find_skills(str(tmp_path), Report(), Limits())] == ["b", "a"]


def test_limits_of_the_search(tmp_path: Path) -> None:
    write_skill(tmp_path / "1" / "2" / "3" / "deep")
    write_skill(tmp_path / "a")
    assert found(tmp_path, Limits(tree_depth=3)) == (["a"], ["D01"])
    assert found(tmp_path, Limits(tree_depth=4)) == (["1/2/3/deep", "a"], [])
    folders, codes = found(tmp_path, Limits(tree_directories=3))
    assert folders == []
    assert codes == ["D01"]


def left_out(folder: Path, limits: Limits) -> list[tuple[str, int]]:
    report = Report()
    list(find_skills(str(folder), report, limits))
    return [(each.message, each.left_out) for each in report.diagnostics]


def test_the_number_of_skills_that_a_limit_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        write_skill(tmp_path / f"p{number}" / "skills" / f"s{number}")
    (tmp_path / "p0" / "skills" / "s0" / "references").mkdir()
    assert left_out(tmp_path, Limits(tree_directories=31)) == []
    assert left_out(tmp_path, Limits(tree_directories=13)) == [
        ("6 skills are left out: the search stopped after 13 folders", 6)
    ]
    assert left_out(tmp_path, Limits(tree_directories=28)) == [
        ("1 skill is left out: the search stopped after 28 folders", 1)
    ]
    assert left_out(tmp_path, Limits(tree_depth=2)) == [
        ("10 skills are left out: folders more than 2 levels down are not searched", 10)
    ]
    # The search that counts them has its own limit.
    monkeypatch.setattr("flink_skills.skill.loader._MAX_COUNTED", 8)
    ((message, number),) = left_out(tmp_path, Limits(tree_directories=4))
    assert message.startswith(f"at least {number} skill")
    assert 0 < number < 9


def test_a_limit_that_leaves_out_no_skill_is_not_reported(tmp_path: Path) -> None:
    write_skill(tmp_path / "a")
    (tmp_path / "z" / "1" / "2" / "3").mkdir(parents=True)
    assert found(tmp_path, Limits(tree_depth=2)) == (["a"], [])
    assert found(tmp_path, Limits(tree_directories=3)) == (["a"], [])


def test_folders_inside_a_skill_are_counted_apart(tmp_path: Path) -> None:
    for number in range(4):
        for name in ("references", "scripts"):
            (write_skill(tmp_path / f"s{number}") / name).mkdir()
    assert found(tmp_path, Limits(tree_directories=5)) == (["s0", "s1", "s2", "s3"], [])
    assert found(tmp_path, Limits(tree_directories=4)) == (["s0", "s1", "s2"], ["D01"])
    for number in range(3):
        (tmp_path / "s1" / f"deep{number}").mkdir()
    write_skill(tmp_path / "s1" / "z-nested")
    folders, codes = found(tmp_path, Limits(tree_directories=5))
    assert (folders, codes) == (["s0", "s1", "s2", "s3"], ["D01"])


def test_a_file_counts_where_it_lies_and_not_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that becomes a link between the search and the reading leads nowhere."""
    from flink_skills.skill import file_rules

    root, outside = tmp_path / "root", write_skill(tmp_path / "outside")
    inside = write_skill(root / "greet")
    opened = os.open

    def swapped(path: str, flags: int) -> int:
        inside.rename(tmp_path / "gone")
        inside.symlink_to(outside)
        return opened(path, flags)

    monkeypatch.setattr(file_rules.os, "open", swapped)
    assert file_rules.open_inside(str(inside / "SKILL.md"), str(root)) is None
    monkeypatch.undo()
    assert load_folder(str(inside), root=str(root.resolve())).skill is None


def test_the_layer_imports_nothing_above_it() -> None:
    import subprocess

    script = "import sys, flink_skills.manager; print([m for m in sys.modules if m.split('.')[0] in {banned}])"
    banned = {"pyflink", "pydantic_ai", "openai", "anthropic", "aiohttp", "fsspec"}
    command = [sys.executable, "-c", script.replace("{banned}", repr(banned))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


CONTENT = {
    "SKILL.md": b"---\nname: a\ndescription: b\n---\n",
    "references/a.md": b"A" * 1000,
    "z.bin": bytes(range(256)),
}


def manifest_of(content: Mapping[str, bytes]) -> dict[str, tuple[int, str]]:
    return {path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in content.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, data in CONTENT.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return tmp_path


class Known:
    """A manifest that counts how often it is asked for."""

    def __init__(self, manifest: Mapping[str, tuple[int, str]] | None = None) -> None:
        self.manifest = manifest or manifest_of(CONTENT)
        self.asked = 0

    def __call__(self) -> Mapping[str, tuple[int, str]]:
        self.asked += 1
        return self.manifest


def known_files(folder: Path, known: Known) -> FolderFiles:
    return FolderFiles(str(folder), str(folder), "SKILL.md", Limits(), known)


def test_a_known_manifest_reads_no_tree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known()
    files = known_files(folder, known)
    assert known.asked == 0

    def fail(*_: object) -> None:
        raise AssertionError("the tree was read")

    for name in ("open", "listdir", "scandir", "stat"):
        monkeypatch.setattr(os, name, fail)
    assert files.manifest() == manifest_of(CONTENT)
    assert files.paths() == ("SKILL.md", "references/a.md", "z.bin")
    assert files.digest() == digest_of(manifest_of(CONTENT))
    assert known.asked == 1


def test_it_is_the_manifest_that_reading_gives(folder: Path) -> None:
    files = FolderFiles(str(folder), str(folder), "SKILL.md", Limits())
    assert files.manifest() == known_files(folder, Known()).manifest()
    assert files.digest() == MemoryFiles(CONTENT).digest()


@pytest.mark.parametrize(
    "entry",
    [(1000, hashlib.sha256(b"B" * 1000).hexdigest()), (999, hashlib.sha256(b"A" * 1000).hexdigest())],
    ids=["content", "size"],
)
def test_a_file_that_is_not_the_known_one_is_not_read(folder: Path, entry: tuple[int, str]) -> None:
    files = known_files(folder, Known({**manifest_of(CONTENT), "references/a.md": entry}))
    with pytest.raises(ResourceError, match="has changed since"):
        files.read("references/a.md", 0, 10)
    assert files.read("z.bin", 1, 2) == (b"\x01\x02", 256)


def test_a_file_is_verified_once_and_then_by_its_stamp(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = known_files(folder, Known())
    read = 0
    pread = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal read
        data = pread(descriptor, size, offset)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    files.read("references/a.md", 0, 10)
    assert read == 1000 + 10
    files.read("references/a.md", 10, 10)
    assert read == 1000 + 20
    (folder / "references/a.md").write_bytes(b"A" * 1000)  # written again, with the same content
    files.read("references/a.md", 0, 10)
    assert read == 2000 + 30
    (folder / "references/a.md").write_bytes(b"A" * 999 + b"B")
    with pytest.raises(ResourceError, match="has changed since"):
        files.read("references/a.md", 0, 10)


def test_a_file_that_is_not_in_the_known_manifest_is_not_read(folder: Path) -> None:
    (folder / "new.md").write_text("new")
    files = known_files(folder, Known())
    with pytest.raises(ResourceError, match="did not exist when the skill was loaded"):
        files.read("new.md", 0, 10)
    with pytest.raises(ResourceError, match=r"there is no file 'refrences/a.md'.*did you mean 'references/a.md'"):
        files.read("refrences/a.md", 0, 10)


def test_what_gives_the_manifest_may_fail(folder: Path) -> None:
    def gone() -> Mapping[str, tuple[int, str]]:
        raise ResourceError("the index is gone")

    files = FolderFiles(str(folder), str(folder), "SKILL.md", Limits(), gone)
    with pytest.raises(ResourceError, match="the index is gone"):
        files.read("z.bin", 0, 1)
    with pytest.raises(ResourceError, match="the index is gone"):
        files.paths()


def test_a_digest_depends_on_names_and_content_alone() -> None:
    one = digest_of(manifest_of(CONTENT))
    assert one == digest_of(dict(reversed(manifest_of(CONTENT).items())))
    others = [
        {**CONTENT, "references/a.md": b"A" * 999 + b"B"},
        {**CONTENT, "empty": b""},
        {("A.md" if path == "z.bin" else path): data for path, data in CONTENT.items()},
    ]
    assert len({one, *(digest_of(manifest_of(other)) for other in others)}) == 4


def test_names_that_are_no_text_have_a_digest(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff\n.md", "wb") as file:
        file.write(b"x")
    (tmp_path / "SKILL.md").write_bytes(CONTENT["SKILL.md"])
    assert len(FolderFiles(str(tmp_path), str(tmp_path), "SKILL.md", Limits()).digest()) == 64
