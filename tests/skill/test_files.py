"""Files of a skill whose list is known before anything is read, and digests."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from flink_skills.errors import ResourceError
from flink_skills.skill import FolderFiles, Limits, MemoryFiles, digest_of

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
