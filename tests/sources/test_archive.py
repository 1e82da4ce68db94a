"""Hostile archives are refused, and a refused archive leaves no files (format.md, section 4).

Examines the internals of sources.archive on purpose.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import stat
import struct
import sys
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
from flink_skills.sources import ArchiveRefusedError, Store
from flink_skills.sources.archive import archive_kind, unpack
from tests.sources import bombs

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
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, data in entries.items():
            info = data if isinstance(data, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(data, bytes):
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    path.write_bytes(compressed(plain.getvalue(), path.suffix))
    return path


def compressed(data: bytes, suffix: str) -> bytes:
    if suffix == ".zst":
        zstandard = pytest.importorskip("zstandard")
        made: bytes = zstandard.ZstdCompressor().compress(data)
        return made
    ways = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    return ways[suffix](data) if suffix in ways else data


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture(params=["zip", "tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"])
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
    assert {str(left.relative_to(store.folder)) for left in Path(store.folder).rglob("*")} <= {".work", ".locks"}


@pytest.mark.row("B19")
def test_a_good_archive(make: Callable[[dict[str, bytes]], Path]) -> None:
    path = make({"skills/greet/SKILL.md": SKILL, "skills/greet/scripts/run.py": b"print()", "__MACOSX/x": b"x"})
    store = Store(str(path.parent / "store"))
    folder = Path(store.add_archive(str(path), str(path)).path)
    assert (folder / "skills/greet/SKILL.md").read_bytes() == SKILL
    assert not (folder / "__MACOSX").exists()
    assert folder.parent == Path(store.folder)
    assert stat.S_IMODE((folder / "skills/greet/SKILL.md").stat().st_mode) == 0o444
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o555 for p in [folder, *folder.rglob("*")] if p.is_dir())
    assert store.add_archive(str(path), "again").path == str(folder)
    assert list((Path(store.folder) / ".work").iterdir()) == []


@pytest.mark.row("B19")
def test_one_skill_at_the_root_gets_a_folder_of_its_name(make: Callable[[dict[str, bytes]], Path]) -> None:
    path = make({"SKILL.md": SKILL, "a.md": b"a"})
    folder = Path(Store(str(path.parent / "store")).add_archive(str(path), "x").path)
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) == [
        "greet",
        "greet/SKILL.md",
        "greet/a.md",
    ]


@pytest.mark.row("B11")
def test_executable_files_stay_so(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"greet/run.sh": b"#!/bin/sh\n"}, mode=0o4755)
    folder = Path(Store(str(tmp_path / "store")).add_archive(str(path), "x").path)
    assert stat.S_IMODE((folder / "greet/run.sh").stat().st_mode) == 0o555  # and no set-user-id


@pytest.mark.row("B11")
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
        (["caf\u00e9", "cafe\u0301"], "Unicode form only"),
        (["a/\u1e69.md", "a/S\u0307\u0323.md"], "Unicode form only"),
        (["a."], "the name 'a.' is not allowed: the name ends with a dot or a space"),
        (["a/b ", "c"], "the name 'a/b ' is not allowed: the name ends with a dot or a space"),
        (["a ./b"], "ends with a dot or a space"),
        (["a/.../b"], "ends with a dot or a space"),
        (["report\u202egnp.sh"], r"change the direction of text \(U\+202E\)"),
        (["a\u2066b"], r"change the direction of text \(U\+2066\)"),
        (["a\u200bb"], "hidden characters"),
        (["a\u2028b"], "control characters"),
        (["a\x85b"], "control characters"),
        (["a\x7fb"], "control characters"),
        (["NUL"], "device"),
        (["a/con.txt"], "device"),
        (["a/Com1.tar.gz/b"], "device"),
        (["lpt\u00b9"], "device"),
        (["aux .md"], "device"),
        (["a", "a/b"], "is duplicated"),
        (["a/b", "a"], "is duplicated"),
        (["/".join("d" * 40)], "too deep"),
        (["x" * 300], "more than 255 bytes in one part"),
        (["a\x07b"], "control characters"),
    ],
)
def test_names_that_are_refused(make: Callable[[dict[str, bytes]], Path], names: list[str], reason: str) -> None:
    refused(make({"ok.md": b"ok", **dict.fromkeys(names, b"x")}), reason)


def test_an_entry_that_is_there_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.md", "1")
        archive.writestr("a.md", "2")
    refused(tmp_path / "s.zip", "is duplicated")


def test_names_that_only_look_odd_are_taken(make: Callable[[dict[str, bytes]], Path], tmp_path: Path) -> None:
    names = [
        "a/.hidden",
        "console.md",
        "com10",
        "nula",
        "a b.md",
        "\u0440\u0443\u0441.md",
        "\u2764\ufe0f.md",
        "e\u0301.md",
    ]
    path = make({"greet/SKILL.md": b"---\nname: greet\ndescription: Greets.\n---\n", **dict.fromkeys(names, b"x")})
    tree = Store(str(tmp_path / "store")).add_archive(str(path), "x")
    assert {name for name in names if Path(tree.path, name).is_file()} == set(names)


@pytest.mark.row("B11")
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


@pytest.mark.row("B11")
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


@pytest.mark.row("B5")
def test_other_compression(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "s.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.md", "x")
    refused(tmp_path / "s.zip", "deflate")


def test_an_entry_larger_than_its_header_says(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x" * 1000})
    patched(path, b"PK\x01\x02", 24, struct.pack("<L", 10))
    refused(path, "two headers")
    patched(path, b"PK\x03\x04", 22, struct.pack("<L", 10))
    refused(path, "damaged")  # by its checksum; and with one that fits what is read first:
    refused(patched(path, b"PK\x01\x02", 16, struct.pack("<L", zlib.crc32(b"x" * 11))), "larger than the 10")


def test_an_entry_smaller_than_its_header_says(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x" * 1000})
    patched(path, b"PK\x03\x04", 22, struct.pack("<L", 2000))
    refused(patched(path, b"PK\x01\x02", 24, struct.pack("<L", 2000)), "header declares 2000")


def test_a_wrong_checksum(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x" * 1000})
    refused(patched(path, b"PK\x01\x02", 16, b"\0\0\0\0"), "damaged")


@pytest.mark.row("B10")
def test_bombs(make: Callable[[dict[str, bytes]], Path], tmp_path: Path) -> None:
    path = make({f"{n}.bin": bytes(1 << 20) for n in range(4)})
    if path.suffix != ".tar":
        refused(path, "200 times the archive")
    refused(path, "the content is larger than", Limits(total=3 << 20, ratio=1_000_000))
    refused(path, "limit for a file", Limits(file=1 << 19))
    refused(path, "more than 3 entries", Limits(entries=3, ratio=1_000_000))
    refused(path, "The limit is 100", Limits(download=100))


@pytest.mark.row("B10")
def test_entries_are_counted_before_they_take_memory(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a": b""})
    refused(patched(path, b"PK\x05\x06", 10, b"\xff\xff"), "more than 10000 entries")


def test_a_huge_extended_header_is_not_read_into_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 200 << 20
    (tmp_path / "s.tar").write_bytes(info.tobuf() + b"\0" * 4096)
    refused(tmp_path / "s.tar", "65536 bytes of headers")


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9, 0.999])
def test_what_is_cut_off_is_refused(make: Callable[[dict[str, bytes]], Path], keep: float) -> None:
    path = make({f"{n}.bin": os.urandom(20_000) for n in range(10)})
    data = path.read_bytes()
    if path.suffix == ".tar":
        data = data.rstrip(b"\0")  # after the last entry a tar is padded
    path.write_bytes(data[: int(len(data) * keep)])
    refused(path, "damaged|truncated|incomplete")


def test_a_tar_without_an_end_is_refused(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "s.tar", {"a.md": b"x" * 512, "b.md": b"y"})
    path.write_bytes(path.read_bytes()[:1024])  # all of a.md, nothing of b.md
    refused(path, "truncated")


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "s.bin").write_bytes(b"hello")
    refused(tmp_path / "s.bin", "is not an archive")
    (tmp_path / "s.zip").write_bytes(b"hello")
    refused(tmp_path / "s.zip", "the zip archive is incomplete")


@pytest.mark.row("B5")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x.ZIP", "zip"),
        ("x.tar", "tar"),
        ("x.tar.gz", "tar.gz"),
        ("x.TGZ", "tar.gz"),
        ("x.tar.bz2", "tar.bz2"),
        ("x.tbz2", "tar.bz2"),
        ("x.tar.xz", "tar.xz"),
        ("x.txz", "tar.xz"),
        ("x.tar.zst", "tar.zst"),
        ("x.tzst", "tar.zst"),
        ("x.gz", None),
        ("x", None),
    ],
)
def test_the_kind_comes_from_the_name(name: str, kind: str | None) -> None:
    assert archive_kind(name, b"#!") == kind


@pytest.mark.row("B5")
def test_else_from_the_content(make: Callable[[dict[str, bytes]], Path]) -> None:
    path = make({"greet/SKILL.md": SKILL})
    assert archive_kind("x", path.read_bytes()[:512]) == path.name.removeprefix("skills.")
    nameless = path.rename(path.with_name("download"))
    tree = Store(str(path.parent / "store")).add_archive(str(nameless), "x")
    assert Path(tree.path, "greet/SKILL.md").read_bytes() == SKILL


def test_a_name_that_says_something_else(tmp_path: Path) -> None:
    make_tar(tmp_path / "s.tar.xz", {"a.md": b"x"}).rename(tmp_path / "s.tar.gz")
    refused(tmp_path / "s.tar.gz", r"the file is named like a tar\.gz but is a tar\.xz")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_compressed_streams_one_after_another(tmp_path: Path, suffix: str) -> None:
    """As parallel compressors write them."""
    plain = make_tar(tmp_path / "s.tar", {"greet/SKILL.md": SKILL, "greet/x": os.urandom(50_000)}).read_bytes()
    parts = [compressed(plain[at : at + 10_000], suffix) for at in range(0, len(plain), 10_000)]
    path = tmp_path / f"s.tar{suffix}"
    path.write_bytes(b"".join(parts) + (bytes(8) if suffix == ".xz" else b""))
    tree = Store(str(tmp_path / "store")).add_archive(str(path), "x")
    assert Path(tree.path, "greet/SKILL.md").read_bytes() == SKILL
    (tmp_path / "other").mkdir()
    longer = tmp_path / "other" / path.name
    longer.write_bytes(b"".join(parts) + b"garbage")
    refused(longer, "damaged|goes on")


def test_zstd_without_a_library_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tar(tmp_path / "s.tar.zst", {"greet/SKILL.md": SKILL})
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    refused(path, "install the package 'zstandard'")


class Unseekable(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise OSError

    def tell(self) -> int:
        raise OSError


def streamed_zip() -> bytes:
    """Sizes stand after each entry, as programs write that cannot go back."""
    stream = Unseekable()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("greet/", b"")
        archive.writestr("greet/SKILL.md", SKILL)
    return stream.getvalue()


def large_zip() -> bytes:
    """Zip64 fields at an entry that would not need them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("greet/SKILL.md", "w", force_zip64=True) as entry:
        entry.write(SKILL)
    return buffer.getvalue()


def zip64_end() -> bytes:
    """A zip64 end at a directory that would not need it."""
    local, central = bombs.one_entry_zip(b"greet/SKILL.md")
    ends = bombs.end64(1, len(central), len(local)) + bombs.end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    return local + central + ends


def commented_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("greet/SKILL.md", SKILL)
        archive.comment = b"0123456789abcdef0123456789abcdef01234567"  # as git writes it
    return buffer.getvalue()


@pytest.mark.parametrize("make_bytes", [streamed_zip, large_zip, zip64_end, commented_zip])
def test_unusual_zips_that_are_right(tmp_path: Path, make_bytes: Callable[[], bytes]) -> None:
    (tmp_path / "s.zip").write_bytes(make_bytes())
    tree = Store(str(tmp_path / "store")).add_archive(str(tmp_path / "s.zip"), "x")
    assert Path(tree.path, "greet/SKILL.md").read_bytes() == SKILL


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_format_of_tar(tmp_path: Path, tar_format: int) -> None:
    long_name = "greet/references/" + "a" * 90 + "/" + "\u00e9" * 45 + ".md"
    headers = {"comment": "0123456789abcdef"} if tar_format == tarfile.PAX_FORMAT else {}
    with tarfile.open(tmp_path / "s.tar", "w", format=tar_format, pax_headers=headers) as archive:
        for name in ("greet/SKILL.md", long_name):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(SKILL), 1_700_000_000.25 if headers else 0
            archive.addfile(info, io.BytesIO(SKILL))
    tree = Store(str(tmp_path / "store")).add_archive(str(tmp_path / "s.tar"), "x")
    assert Path(tree.path, long_name).read_bytes() == SKILL


def test_an_impossible_offset(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "s.zip", {"a.md": b"x"})
    at = path.read_bytes().index(b"PK\x05\x06")
    refused(patched(path, b"PK\x05\x06", 16, struct.pack("<L", at + 1000)), "damaged")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_archives_raise_nothing_else(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    name = data.draw(st.sampled_from(["s.zip", "s.tar", "s.tar.gz", "s.tar.bz2", "s.tar.xz"]))
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
