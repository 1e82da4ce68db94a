"""What archives are refused for, and that nothing of a refused one stays (format.md, section 4)."""

import contextlib
import io
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flink_skills.errors import SourceError
from flink_skills.skill import Limits
from flink_skills.sources.archive import archive_kind, unpack
from flink_skills.sources.entries import ArchiveRefusedError
from flink_skills.sources.store import Store

SKILL = b"---\nname: greet\ndescription: Says hello.\n---\nHi\n"


def make_zip(path: Path, entries: dict[str, bytes], mode: int = 0o644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            info = zipfile.ZipInfo("placeholder")
            info.filename = info.orig_filename = name
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return path


def make_tar(path: Path, entries: dict[str, bytes | tarfile.TarInfo]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, data in entries.items():
            info = data if isinstance(data, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(data, bytes):
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    return path


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture(params=["zip", "tar", "tar.gz"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[dict[str, bytes]], Path]:
    def make_one(entries: dict[str, bytes]) -> Path:
        path = tmp_path / f"skills.{request.param}"
        return make_zip(path, entries) if request.param == "zip" else make_tar(path, dict(entries))

    return make_one


def refused(path: Path, reason: str, limits: Limits | None = None) -> None:
    store = Store(str(path.parent / "store"), limits)
    with pytest.raises(SourceError, match=reason) as error:
        store.add_archive(str(path), str(path))
    assert error.value.source == str(path)
    assert str(path) in str(error.value)
    assert not error.value.retryable
    left = [p for p in Path(store.folder).rglob("*") if p.parent.name != ".locks" and not p.name.startswith(".")]
    assert left == []


def test_a_good_archive(make: Callable[[dict[str, bytes]], Path]) -> None:
    path = make({"skills/greet/SKILL.md": SKILL, "skills/greet/scripts/run.py": b"print()", "__MACOSX/x": b"x"})
    store = Store(str(path.parent / "store"))
    folder = Path(store.add_archive(str(path), str(path)))
    assert (folder / "skills/greet/SKILL.md").read_bytes() == SKILL
    assert not (folder / "__MACOSX").exists()
    assert folder.parent == Path(store.folder)
    assert stat.S_IMODE((folder / "skills/greet/SKILL.md").stat().st_mode) == 0o444
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o555 for p in [folder, *folder.rglob("*")] if p.is_dir())
    assert store.add_archive(str(path), "again") == str(folder)
    assert list((Path(store.folder) / ".work").iterdir()) == []


def test_one_skill_at_the_root_gets_a_folder_of_its_name(make: Callable[[dict[str, bytes]], Path]) -> None:
    path = make({"SKILL.md": SKILL, "a.md": b"a"})
    folder = Path(Store(str(path.parent / "store")).add_archive(str(path), "x"))
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) == [
        "greet",
        "greet/SKILL.md",
        "greet/a.md",
    ]


def test_executable_files_stay_so(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"greet/run.sh": b"#!/bin/sh\n"}, mode=0o4755)
    folder = Path(Store(str(tmp_path / "store")).add_archive(str(path), "x"))
    assert stat.S_IMODE((folder / "greet/run.sh").stat().st_mode) == 0o555  # and no set-user-id


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["/etc/passwd"], "absolute"),
        (["C:/x"], "absolute"),
        (["c:x"], "absolute"),
        (["\\\\host\\x"], "absolute"),
        (["../x"], "leaves"),
        (["a/../../x"], "leaves"),
        (["a\\..\\..\\x"], "leaves"),
        (["a/b", "A/b"], "upper and lower case"),
        (["a/stra\u00dfe", "a/STRASSE"], "upper and lower case"),
        (["a", "a/b"], "there twice"),
        (["a/b", "a"], "there twice"),
        (["/".join("d" * 40)], "too deep"),
        (["x" * 300], "too long"),
        (["a\x07b"], "control characters"),
    ],
)
def test_names_that_are_refused(make: Callable[[dict[str, bytes]], Path], names: list[str], reason: str) -> None:
    refused(make({"ok.md": b"ok", **dict.fromkeys(names, b"x")}), reason)


def test_an_entry_that_is_there_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.md", "1")
        archive.writestr("a.md", "2")
    refused(tmp_path / "s.zip", "there twice")


@pytest.mark.parametrize(
    "info",
    [
        member("l", tarfile.SYMTYPE, "/etc/passwd"),
        member("l", tarfile.SYMTYPE, "ok.md"),
        member("l", tarfile.LNKTYPE, "ok.md"),
        member("l", tarfile.CHRTYPE),
        member("l", tarfile.BLKTYPE),
        member("l", tarfile.FIFOTYPE),
    ],
    ids=lambda info: info.type.decode() + info.linkname,
)
def test_links_and_devices_in_a_tar(tmp_path: Path, info: tarfile.TarInfo) -> None:
    refused(make_tar(tmp_path / "s.tar", {"ok.md": b"ok", "l": info}), "link")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip(tmp_path: Path, kind: int) -> None:
    refused(make_zip(tmp_path / "s.zip", {"l": b"/etc/passwd"}, mode=kind | 0o777), "link")


def patched(path: Path, signature: bytes, offset: int, value: bytes) -> Path:
    data = bytearray(path.read_bytes())
    at = data.index(signature) + offset
    data[at : at + len(value)] = value
    path.write_bytes(bytes(data))
    return path


def test_an_encrypted_entry(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x"})
    refused(patched(path, b"PK\x01\x02", 8, b"\x01\x00"), "encrypted")


def test_other_compression(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "s.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.md", "x")
    refused(tmp_path / "s.zip", "deflate")


def test_an_entry_larger_than_its_header_says(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x" * 1000})
    patched(path, b"PK\x01\x02", 24, struct.pack("<L", 10))
    refused(path, "damaged")  # by its checksum; and with one that fits what is read first:
    refused(patched(path, b"PK\x01\x02", 16, struct.pack("<L", zlib.crc32(b"x" * 11))), "larger than the 10")


def test_an_entry_smaller_than_its_header_says(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x" * 1000})
    refused(patched(path, b"PK\x01\x02", 24, struct.pack("<L", 2000)), "header says 2000")


def test_a_wrong_checksum(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x" * 1000})
    refused(patched(path, b"PK\x01\x02", 16, b"\0\0\0\0"), "damaged")


def test_bombs(make: Callable[[dict[str, bytes]], Path], tmp_path: Path) -> None:
    path = make({f"{n}.bin": bytes(1 << 20) for n in range(4)})
    if path.suffix != ".tar":
        refused(path, "200 times its size")
    refused(path, "unpacks to more than", Limits(total=3 << 20, ratio=1_000_000))
    refused(path, "limit for a file", Limits(file=1 << 19))
    refused(path, "more than 3 entries", Limits(entries=3, ratio=1_000_000))
    refused(path, "the limit is 100", Limits(download=100))


def test_entries_are_counted_before_they_take_memory(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a": b""})
    refused(patched(path, b"PK\x05\x06", 10, b"\xff\xff"), "more than 10000 entries")


def test_a_huge_extended_header_is_not_read_into_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 200 << 20
    (tmp_path / "s.tar").write_bytes(info.tobuf() + b"\0" * 4096)
    refused(tmp_path / "s.tar", "header of")


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9, 0.999])
def test_what_is_cut_off_is_refused(make: Callable[[dict[str, bytes]], Path], keep: float) -> None:
    path = make({f"{n}.bin": os.urandom(20_000) for n in range(10)})
    data = path.read_bytes()
    if path.suffix == ".tar":
        data = data.rstrip(b"\0")  # after the last entry a tar is padded
    path.write_bytes(data[: int(len(data) * keep)])
    refused(path, "damaged|cut off|no complete")


def test_a_tar_without_an_end_is_refused(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "s.tar", {"a.md": b"x" * 512, "b.md": b"y"})
    path.write_bytes(path.read_bytes()[:1024])  # all of a.md, nothing of b.md
    refused(path, "cut off")


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "s.bin").write_bytes(b"hello")
    refused(tmp_path / "s.bin", "is no archive")
    (tmp_path / "s.zip").write_bytes(b"hello")
    refused(tmp_path / "s.zip", "no complete zip")


def test_the_kind_comes_from_the_name_else_from_the_content(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "s.tar", {"a.md": b"x"})
    assert archive_kind("x", path.read_bytes()[:512]) == "tar"
    assert archive_kind("x.TGZ", b"") == "tar.gz"
    assert archive_kind("x", b"\x1f\x8b") == "tar.gz"
    assert archive_kind("x", b"PK\x03\x04") == "zip"
    assert archive_kind("x", b"#!") is None


def test_an_impossible_offset(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x"})
    at = path.read_bytes().index(b"PK\x05\x06")
    refused(patched(path, b"PK\x05\x06", 16, struct.pack("<L", at + 1000)), "damaged")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_archives_raise_nothing_else(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    name = data.draw(st.sampled_from(["s.zip", "s.tar", "s.tar.gz"]))
    entries = {"a/SKILL.md": SKILL, "a/b.md": b"b" * 700}
    path = make_zip(folder / name, entries) if name == "s.zip" else make_tar(folder / name, dict(entries))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    target = folder / "out"
    target.mkdir()
    kind = archive_kind(name, b"")
    assert kind is not None
    with contextlib.suppress(ArchiveRefusedError):
        unpack(str(path), kind, str(target), Limits())
    assert {p.name for p in folder.iterdir()} == {name, "out"}
    assert not [p for p in folder.rglob("*") if p.is_symlink()]
