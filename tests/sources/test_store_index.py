"""The store's index says what reading the folder says, faster, and nothing when it is for something else.

Examines the internals of sources.catalog_index on purpose.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import io
import json
import os
import sys
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.errors import ResourceError, SourceError
from flink_skills.skill import Diagnostic, Limits, LoadResult, Report, find_skills, load_folder
from flink_skills.sources import Store, StoredTree, catalog_index
from flink_skills.sources.catalog_index import from_record, index_name, read_index, size_on_disk, to_record
from tests.skill.writing import load, write
from tests.sources.test_store import add, archive, as_root, in_a_process


def skill(name: str, more: str = "", body: str = "Hi") -> bytes:
    return f"---\nname: {name}\ndescription: Says hello.\n{more}---\n{body}\n".encode()


ODD = {
    "good/SKILL.md": skill("good", "license: MIT\nmetadata:\n  version: 1.0\nallowed-tools: Read Bash(git:*)\n"),
    "good/references/a.md": b"A",
    "good/scripts/run.py": b"print()",
    "other-folder/SKILL.md": skill("named-otherwise", "triggers: [a, b]\ncontext: fork\n"),
    "nested/SKILL.md": skill("nested"),
    "nested/inner/SKILL.md": skill("inner"),
    "nested/inner/x.md": b"x",
    "lower/skill.md": skill("lower").replace(b"\n", b"\r\n"),
    "broken/SKILL.md": b"no front matter",
    "unclosed/SKILL.md": b"---\nname: unclosed\n",
    "colon/SKILL.md": b"---\nname: colon\ndescription: Use when: always\n---\n",
    "bytes/SKILL.md": b"\xef\xbb\xbf---\nname: bytes\ndescription: \xff\xfe\n---\n",
    "heading/SKILL.md": b"# A heading\n\nText\n",
    "heading/schema.json": b"{}",
    "/".join("abcdefghijklmn") + "/SKILL.md": skill("deep"),
    "\u00fcml\u00e4ut/SKILL.md": skill("\u00fcml\u00e4ut"),
    "README.md": b"# Skills",
}


def stored(store: Store, folder: Path, entries: dict[str, bytes]) -> StoredTree:
    path = folder / "s.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return store.add_archive(str(path), "x")


def read_folder(tree: StoredTree, limits: Limits) -> tuple[list[LoadResult], list[Diagnostic]]:
    report = Report(tree.path)
    results = [
        load_folder(folder, root=tree.path, skill_file=file, origin="o", remote=True, limits=limits)
        for folder, file, _ in find_skills(tree.path, report, limits)
    ]
    return results, report.diagnostics


def told(found: tuple[list[LoadResult], list[Diagnostic]] | None) -> object:
    assert found is not None
    results, remarks = found
    return remarks, [
        (result.diagnostics, result.strict_valid, described(result) if result.skill else None) for result in results
    ]


def described(result: LoadResult) -> object:
    one = result.skill
    assert one is not None
    fields = (one.name, one.description, one.license, one.compatibility, dict(one.metadata), one.allowed_tools)
    place = (one.path, one.origin, one.remote, one.form, one.files.skill_file, one.files.paths())
    return fields, dict(one.extra), place, one.digest, one.instructions, dict(one.files.manifest())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def test_it_says_what_reading_the_folder_says(tmp_path: Path, store: Store) -> None:
    tree = stored(store, tmp_path, ODD)
    found = read_index(tree, origin="o", remote=True, limits=Limits())
    assert told(found) == told(read_folder(tree, Limits()))
    assert found is not None
    assert {result.skill.name for result in found[0] if result.skill} >= {"good", "inner", "lower", "heading"}
    assert [remark.code for remark in found[1]] == ["D01"]


def test_a_skill_at_the_root_and_a_single_file_have_one_too(tmp_path: Path, store: Store) -> None:
    for tree in (
        stored(store, tmp_path, {"SKILL.md": skill("greet"), "a.md": b"a"}),
        store.add_file(skill("greet"), "SKILL.md", "x"),
    ):
        found = read_index(tree, origin="o", remote=True, limits=Limits())
        assert told(found) == told(read_folder(tree, Limits()))
        assert found is not None
        assert found[0][0].skill is not None
        assert found[0][0].skill.path == f"{tree.path}/greet"


def test_a_tar_has_the_same_as_a_zip(tmp_path: Path, store: Store) -> None:
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as archive:
        for name, data in ODD.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    tree = store.add_archive(str(tmp_path / "s.tar.gz"), "x")
    assert told(read_index(tree, origin="o", remote=True, limits=Limits())) == told(read_folder(tree, Limits()))


def test_each_set_of_limits_has_its_own(tmp_path: Path, store: Store) -> None:
    tree = stored(store, tmp_path, ODD)
    shallow = Limits(tree_depth=1)
    assert read_index(tree, origin="o", remote=True, limits=shallow) is None
    assert index_name(shallow) != index_name(Limits())
    other = Store(store.folder, shallow).open_tree(tree.sha256)
    assert other is not None
    assert other.index != tree.index
    assert told(read_index(other, origin="o", remote=True, limits=shallow)) == told(read_folder(tree, shallow))
    assert read_index(tree, origin="o", remote=True, limits=Limits()) is not None


def test_one_of_another_version_is_not_used_and_made_anew(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = stored(store, tmp_path, ODD)
    monkeypatch.setattr(catalog_index, "_VERSION", 1_000_000)
    assert read_index(tree, origin="o", remote=True, limits=Limits()) is None
    newer = store.open_tree(tree.sha256)
    assert newer is not None
    assert newer.index != tree.index
    assert told(read_index(newer, origin="o", remote=True, limits=Limits())) == told(read_folder(tree, Limits()))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]\n", b'{"version": 1', b"\xff\n", None])
def test_a_damaged_one_is_not_used(tmp_path: Path, store: Store, content: bytes | None) -> None:
    tree = stored(store, tmp_path, ODD)
    assert tree.index is not None
    index = Path(tree.index)
    if content is None:
        index.write_bytes(index.read_bytes()[:400])  # a whole header, half a catalog
    else:
        index.write_bytes(content)
    assert read_index(tree, origin="o", remote=True, limits=Limits()) is None
    index.unlink()
    assert read_index(tree, origin="o", remote=True, limits=Limits()) is None
    assert size_on_disk(tree.index) is None
    assert read_index(StoredTree(tree.path, "", lease=tree.lease), origin="", remote=False, limits=Limits()) is None


def test_a_file_list_that_was_changed_is_refused(tmp_path: Path, store: Store) -> None:
    tree = stored(store, tmp_path, {"greet/SKILL.md": skill("greet"), "greet/a.md": b"a"})
    [result], _ = read_index(tree, origin="o", remote=True, limits=Limits()) or ([], [])
    assert result.skill is not None
    assert tree.index is not None
    data = Path(tree.index).read_bytes()
    Path(tree.index).write_bytes(data.replace(b'"a.md":[1,', b'"a.md":[2,'))
    with pytest.raises(ResourceError, match="damaged or gone"):
        result.skill.files.manifest()


def test_it_counts_the_bytes_of_the_tree(tmp_path: Path, store: Store) -> None:
    tree = stored(store, tmp_path, {"greet/SKILL.md": skill("greet"), "greet/a.bin": bytes(10_000)})
    assert tree.index is not None
    assert size_on_disk(tree.index) == 2 * 4096 + 4096 + 3 * 4096 + 4096


def test_file_lists_are_not_in_memory(tmp_path: Path) -> None:
    """What is kept of a skill does not grow with the number of its files."""

    def kept(files: int) -> int:
        store = Store(str(tmp_path / str(files)))
        entries = {f"s{n}/SKILL.md": skill(f"s{n}") for n in range(50)}
        entries |= {f"s{n}/references/{m}.md": b"x" for n in range(50) for m in range(files)}
        tree = stored(store, tmp_path, entries)

        def once() -> int:
            gc.collect()
            tracemalloc.start()
            found = read_index(tree, origin="o", remote=True, limits=Limits())
            gc.collect()
            current, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert found is not None
            assert len(found[0]) == 50
            return current

        # Threads of other tests can allocate during a measurement.
        return min(once() for _ in range(3))

    few, many = kept(0), kept(20)
    assert many < few * 1.2 + 4096
    assert many / 50 < 4096


def test_an_index_is_made_of_text_that_any_reader_can_read(tmp_path: Path, store: Store) -> None:
    tree = stored(store, tmp_path, {"greet/SKILL.md": skill("greet")})
    assert tree.index is not None
    header, catalog, lists = Path(tree.index).read_bytes().split(b"\n")
    assert json.loads(header)["catalog"] == len(catalog)
    assert json.loads(catalog)["skills"][0][0] == "greet"
    assert list(json.loads(lists)) == ["SKILL.md"]
    assert sys.getsizeof(header) < 300


FILES = [
    "---\nname: a\ndescription: d\n---\nBody",
    "---\nname: a\ndescription: d\nlicense: MIT\ncompatibility: all\nmetadata: {a: 1.0}\n"
    "allowed-tools: A B\nx: [1, null]\n---\n",
    "---\nname: a\ndescription: d\nallowed-tools: []\n---\n",
    "---\nname: other\ndescription: Use when: asked\n---\n",
    "# no skill",
    "---\nname: a\ndescription: \udce9\n---\n",
]


def same(one: LoadResult, other: LoadResult) -> None:
    assert one.diagnostics == other.diagnostics
    assert one.strict_valid == other.strict_valid
    assert (one.skill is None) == (other.skill is None)
    if one.skill is None or other.skill is None:
        return
    for name in (
        "name",
        "description",
        "license",
        "compatibility",
        "metadata",
        "allowed_tools",
        "extra",
        "path",
        "form",
    ):
        assert getattr(one.skill, name) == getattr(other.skill, name), name
    assert one.skill.instructions == other.skill.instructions
    assert one.skill.digest == other.skill.digest
    assert one.skill.files.skill_file == other.skill.files.skill_file


@pytest.mark.parametrize("text", FILES)
@pytest.mark.parametrize("file", ["SKILL.md", "skill.md"])
@pytest.mark.parametrize("below", ["a", "deep/a", "."])
def test_a_record_reads_back_to_the_same(tmp_path: Path, text: str, file: str, below: str) -> None:
    root = (tmp_path / "root").resolve()
    write(root / below, text.encode(errors="surrogateescape"), file)
    result = load(root / below, root=str(root), format="heading" if text.startswith("#") else "skill")
    record = json.loads(json.dumps(to_record(result, str(root))))
    assert str(tmp_path) not in json.dumps(record)
    back = from_record(
        record, root=str(root), real_root=str(root.resolve()), origin="there", remote=True, limits=Limits()
    )
    same(result, back)
    if back.skill is not None:
        assert (back.skill.origin, back.skill.remote) == ("there", True)


def test_a_record_holds_wherever_the_tree_lies(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    write(one / "a", FILES[3])
    write(other / "a", FILES[3])
    (tmp_path / "link").symlink_to("one")
    for root in (one.resolve(), tmp_path / "link"):
        loaded = load(root / "a", root=str(one.resolve()))
        record = to_record(loaded, str(one.resolve()))
        back = from_record(
            record, root=str(other), real_root=str(other.resolve()), origin="", remote=False, limits=Limits()
        )
        same(load(other / "a", root=str(other.resolve())), back)


def test_files_and_digest_are_taken_where_they_are_known(tmp_path: Path) -> None:
    result = load(write(tmp_path / "a", FILES[0]))
    assert result.skill is not None
    record = to_record(result, str(tmp_path))
    known = {"SKILL.md": (3, "0" * 64)}
    place = {"root": str(tmp_path), "real_root": str(tmp_path.resolve())}
    back = from_record(record, **place, origin="", remote=False, limits=Limits(), known=lambda: known, digest="ab12")
    assert back.skill is not None
    assert back.skill.digest == "ab12"
    assert back.skill.files.manifest() is known


def test_diagnostics_as_json() -> None:
    diagnostic = Diagnostic("F07", "warning", "text", "a", "/a/SKILL.md", 3, "fix")
    assert Diagnostic.from_json(json.loads(json.dumps(diagnostic.to_json()))) == diagnostic


@as_root
def test_a_store_below_a_folder_that_another_user_made_in_the_temporary_folder(readable: Path) -> None:
    path = archive(readable)
    readable.chmod(0o1777)
    planted = readable / "ours"
    planted.mkdir(mode=0o777)
    planted.chmod(0o777)
    os.chown(planted, 65533, 65533)
    said = in_a_process(add, path, str(planted / "deeper" / "store"), user=65534)
    assert "belongs to user 65533 and is in a directory that all users can write to" in said
    assert f"remove {planted}" in said
    assert not (planted / "deeper").exists()


def test_a_tree_that_another_process_locks_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path / "store"))
    tree = store.add_archive(archive(tmp_path), "x")
    tree.lease.close()
    monkeypatch.setattr("flink_skills.sources.locking._LEASE_SECONDS", 0.1)
    held = os.open(tree.path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(SourceError, match=rf"process {os.getpid()} locks {tree.path}\); end that process"):
        store.open_tree(tree.sha256)
    os.close(held)
    assert store.open_tree(tree.sha256) is not None


@pytest.mark.parametrize("plant", [lambda path: os.symlink("/nowhere", path), os.mkfifo, os.mkdir])
def test_what_is_no_lock_file_is_an_error_that_names_it(tmp_path: Path, plant: Callable[[str], None]) -> None:
    path, store = archive(tmp_path), Store(str(tmp_path / "store"))
    lock = Path(store.folder, ".locks", hashlib.sha256(Path(path).read_bytes()).hexdigest())
    lock.parent.mkdir(parents=True)
    plant(str(lock))
    with pytest.raises(SourceError, match=f"the store {store.folder} cannot be written"):
        store.add_archive(path, "x", deadline=time.monotonic() + 5)


@as_root
def test_what_a_command_of_the_same_user_closed_is_open_again(readable: Path) -> None:
    path, store = archive(readable), readable / "open" / "store"
    store.parent.mkdir()
    tree = Path(in_a_process(add, path, str(store)))
    for each in (store, *store.rglob("*")):
        os.chown(each, 65534, 65534)
    for folder in (tree, store / ".locks", store / ".work", store):
        folder.chmod(0)
    assert in_a_process(add, path, str(store), user=65534) == str(tree)
