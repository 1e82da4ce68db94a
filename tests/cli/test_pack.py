"""``flink-skills pack``: the same bytes whatever the files' times, order and owner, and nothing that is refused."""

from __future__ import annotations

import hashlib
import os
import random
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import ROOT
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill
from tests.tools.mcp.skills_site import OPEN, Site
from tests.tools.mcp.skills_site import write_skill as write_served_skill

KINDS = ["skills.zip", "skills.tar", "skills.tar.gz", "skills.tgz"]


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """The umask of before, after a test that changes it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def write_tree(folder: Path, order: list[int]) -> Path:
    """Skills whose files are made in this order: a nested one, one below a folder, links inside, other files."""
    files: list[tuple[str, bytes, int]] = [
        ("one/SKILL.md", b"---\nname: one\ndescription: d\n---\n", 0o644),
        ("one/scripts/run.sh", b"#!/bin/sh\n", 0o744),
        ("one/assets/\xc3\xa9t\xc3\xa9.bin".encode("latin-1").decode(), bytes(range(256)) * 90, 0o600),
        ("one/zeros", bytes(400_000), 0o644),
        ("one/inner/SKILL.md", b"---\nname: inner\ndescription: d\n---\n", 0o644),
        ("group/two/SKILL.md", b"---\nname: two\ndescription: d\n---\n", 0o664),
        ("group/two/" + 30 * "long-" + "/" + 30 * "name-", b"x", 0o644),
        ("README.md", b"not of a skill", 0o644),
        ("one/.git/config", b"not of a skill", 0o644),
    ]
    for number in order:
        name, data, mode = files[number]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        os.utime(path, (number * 1e8, number * 1e8))
    (folder / "one/linked.sh").symlink_to("../one/scripts/run.sh")
    return folder


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("usual_umask")
def test_the_same_skills_are_the_same_bytes_with_the_same_digests(
    name: str, flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    archives = []
    for seed in range(3):
        order = random.Random(seed).sample(range(9), 9)
        os.umask(0o022 if seed else 0o077)
        write_tree(tmp_path / str(seed) / "tree", order)
        os.umask(0o077 if seed else 0o022)
        target = tmp_path / str(seed) / name
        said = flink_skills("pack", f"{seed}/tree", "-o", target, "--format", "json")
        assert said.code == 0, said.stderr
        archives.append(target.read_bytes())
        assert said.json["archive"] == {
            "path": str(target),
            "sha256": hashlib.sha256(archives[-1]).hexdigest(),
            "bytes": len(archives[-1]),
        }
        assert target.stat().st_mode & 0o777 == (0o600 if seed else 0o644)
        assert sorted(path.name for path in target.parent.iterdir()) == sorted([name, "tree"])
    assert archives[0] == archives[1] == archives[2]
    packed = {skill["name"]: skill for skill in said.json["skills"]}
    assert {name: skill["path"] for name, skill in packed.items()} == {
        "one": "one",
        "inner": "one/inner",
        "two": "group/two",
    }
    for source in ("2/tree", f"2/{name}"):
        rows = flink_skills("list", source, "--format", "json").json
        assert {row["name"]: row["digest"] for row in rows} == {name: skill["digest"] for name, skill in packed.items()}
        assert {row["name"]: row["bytes"] for row in rows} == {name: skill["bytes"] for name, skill in packed.items()}


def test_entries_are_sorted_dated_alike_and_owned_by_nobody(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", list(range(9)))
    assert flink_skills("pack", "tree", "-o", "a.zip").code == flink_skills("pack", "tree", "-o", "a.tar.gz").code == 0
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        entries = archive.infolist()
    names = [entry.filename for entry in entries]
    assert names == sorted(names)
    assert "README.md" not in names
    assert not [name for name in names if ".git" in name]
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in entries}
    assert {name for name, mode in modes.items() if mode == 0o755} == {"one/linked.sh", "one/scripts/run.sh"}
    assert set(modes.values()) == {0o755, 0o644}
    with tarfile.open(tmp_path / "a.tar.gz") as packed:
        members = packed.getmembers()
    assert [member.name for member in members] == names
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}


def test_one_skill_keeps_its_folder_s_name_also_where_the_word_is_a_dot(
    flink_skills: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / "s/alone", scripts__x="1")
    write_skill(tmp_path / "t/other")
    said = flink_skills("pack", "s/alone", "t", "-o", "a.zip", "--format", "json")
    assert [skill["path"] for skill in said.json["skills"]] == ["alone", "other"]
    first = (tmp_path / "a.zip").read_bytes()
    assert flink_skills("pack", "s", "t/other", "-o", "a.zip").code == 0
    assert (tmp_path / "a.zip").read_bytes() == first
    monkeypatch.chdir(tmp_path / "s/alone")
    assert flink_skills("pack", ".", "../../t", "-o", "../../b.zip").code == 0
    assert (tmp_path / "b.zip").read_bytes() == first


def test_the_project_s_skills_as_text(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    said = flink_skills("pack", ROOT / "skills", "-o", "skills.zip")
    rows = flink_skills("list", "skills.zip", "--format", "json").json
    for row in rows:
        assert any(line.startswith(row["name"]) and line.endswith(row["digest"]) for line in said.stdout.splitlines())
    sha256 = hashlib.sha256((tmp_path / "skills.zip").read_bytes()).hexdigest()
    assert said.stdout.splitlines()[-1].endswith(f"sha256 {sha256}")
    pinned = flink_skills("list", f"skills.zip#sha256={sha256}", "--format", "json")
    assert [row["digest"] for row in pinned.json] == [row["digest"] for row in rows]


def test_everything_that_would_be_refused_is_said_at_once(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (write_skill(tree / "links") / "out").symlink_to("/etc/hostname")
    (tree / "links/out-folder").symlink_to("/etc")
    (tree / "links/dangling").symlink_to("nothing")
    os.mkfifo(write_skill(tree / "pipes") / "fifo")
    (write_skill(tree / "large") / "data").write_bytes(bytes(3000))
    write_skill(tree / "cases", README="1", Readme="2")
    write_skill(tree / "names") / "a"
    (tree / "names/new\nline").write_text("x")
    write_skill(tree / "twin-a", name="twin")
    write_skill(tree / "twin-b", name="twin", description="Another.")
    write_skill(tree / "copy-a", name="copy")
    write_skill(tree / "copy-b", name="copy")
    (write_skill(tree / "broken") / "SKILL.md").write_text("---\nname: broken\n---\n")
    said = flink_skills(
        "pack", "tree", "nowhere", "-o", "a.zip", "--set", "skills.limits.file=2000", "--format", "json"
    )
    assert (said.code, said.json["archive"], said.json["skills"]) == (1, None, [])
    errors = {
        (found["code"], os.path.relpath(found["path"], tree))
        for found in said.json["diagnostics"]
        if found["severity"] == "error"
    }
    assert errors == {
        ("S04", "links/out"),
        ("S04", "links/out-folder"),
        ("D05", "links/dangling"),
        ("D05", "pipes/fifo"),
        ("S05", "large/data"),
        ("D06", "cases/Readme"),
        ("D06", "names/new\nline"),
        ("D02", "twin-b"),
        ("F08", "broken/SKILL.md"),
        ("D06", "../nowhere"),
    }
    assert [found["path"] for found in said.json["diagnostics"] if found["code"] == "D03"] == [str(tree / "copy-b")]
    assert not (tmp_path / "a.zip").exists()
    assert "a.zip is not written because of 10 errors" in said.stderr


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("skills.limits.entries=3", "4 files are more than an archive may have, 3"),
        ("skills.limits.skill-files=1", "more than 1 files"),
        ("skills.limits.total=200", "more than an archive may unpack to, 200"),
        ("skills.limits.download=300", "the limit is 300"),
        ("skills.limits.tree-directories=2", "stopped after 2 folders"),
        ("skills.limits.skill-file=20", "the limit is 20"),
    ],
)
def test_limits_of_loading_are_limits_of_packing(
    limit: str, message: str, flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        write_skill(tmp_path / "s" / name, more=100 * name)
    (tmp_path / "a.zip").write_text("what was there before")
    said = flink_skills("pack", "s", "-o", "a.zip", "--set", limit)
    assert (said.code, said.stdout) == (1, "")
    assert message in said.stderr
    assert (tmp_path / "a.zip").read_text() == "what was there before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "s", "tmp"]


def test_strict_refuses_what_is_not_valid_to_the_letter(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/a", name="b")
    lenient = flink_skills("pack", "s", "-o", "a.zip")
    assert lenient.code == 0
    assert "warning F07" in lenient.stderr
    strict = flink_skills("pack", "s", "-o", "b.zip", "--strict")
    assert (strict.code, (tmp_path / "b.zip").exists()) == (1, False)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("skills.rar", "name it .zip, .tar, .tar.gz or .tgz"),
        ("skills", "name it .zip"),
        ("no/skills.zip", "does not exist"),
        ("folder.zip", "the target is a directory; name a file"),
        ("s/a/skills.zip", "the target is inside the skill"),
    ],
)
def test_targets_that_cannot_be(target: str, message: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/a")
    (tmp_path / "folder.zip").mkdir()
    said = flink_skills("pack", "s", "-o", target)
    assert (said.code, said.stdout) == (2, "")
    assert message in said.stderr


def test_a_file_that_shrinks_a_thousandfold_loads_again(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (write_skill(tmp_path / "s/zeros") / "data").write_bytes(bytes(5_000_000))
    assert flink_skills("pack", "s", "-o", "a.zip").code == 0
    assert flink_skills("list", "a.zip", "--format", "json").json[0]["bytes"] > 5_000_000
    assert flink_skills("pack", "s", "-o", "a.tar.gz").code == 0
    assert flink_skills("list", "a.tar.gz", "--format", "json").json[0]["bytes"] > 5_000_000


def test_skills_without_front_matter_where_that_is_asked_for(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "s/notes").mkdir(parents=True)
    (tmp_path / "s/notes/SKILL.md").write_text("# Takes notes\n")
    assert flink_skills("pack", "s", "-o", "a.zip").code == 1
    assert flink_skills("pack", "s#format=heading", "-o", "a.zip").code == 0
    (row,) = flink_skills("list", "a.zip#format=heading", "--format", "json").json
    assert (row["name"], row["description"]) == ("notes", "Takes notes")
    pinned = flink_skills("pack", f"s#sha256={64 * '0'}", "-o", "a.zip")
    assert (pinned.code, pinned.stdout) == (2, "")
    assert "lock file" in pinned.stderr


@pytest.mark.parametrize("name", ["skills.zip", "skills.tar"])
def test_a_backslash_in_a_name_is_refused_for_what_it_is(name: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (write_skill(tmp_path / "skills/one") / "a\\b.md").write_text("x")
    said = flink_skills("pack", "skills", "-o", name)
    assert (said.code, said.stdout) == (1, "")
    assert "backslash" in said.stderr
    assert "changed" not in said.stderr
    assert not (tmp_path / name).exists()


def test_a_folder_behind_a_url_works_with_every_command(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for path, data in {"one/SKILL.md": b"---\nname: one\ndescription: d\n---\nHi\n", "one/a.md": b"a"}.items():
        memory.pipe(f"/packed/{path}", data)
    url = "memory://packed/"
    assert [row["name"] for row in flink_skills("list", url, "--format", "json").json] == ["one"]
    assert flink_skills("validate", url).code == 0
    assert "Hi" in flink_skills("show", "one", "--source", url).stdout
    assert flink_skills("lock", url, "-o", "skills.lock").code == 0
    said = flink_skills("pack", url, "-o", "url.tar", "--format", "json")
    assert said.code == 0, said.stderr
    assert flink_skills("list", f"{url}#sha256={said.json['archive']['sha256']}").code == 0
    missing = flink_skills("pack", "memory://none/", "-o", "none.tar")
    assert missing.code != 0
    assert "memory://none/" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_lock_fetches_the_files_of_a_server(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_served_skill(tmp_path / "site" / "acme" / "refunds")
    site = Site(tmp_path / "site", tmp_path / "store")
    options = [
        word for key, value in {**OPEN, "skills.store.dir": site.store}.items() for word in ("--set", f"{key}={value}")
    ]
    source = f"{site.url}#label=acme"
    try:
        assert [row["name"] for row in flink_skills("list", source, *options, "--format", "json").json] == ["refunds"]
        assert flink_skills("lock", source, *options).code == 0
        assert site.asked("resources/read") == []
        assert flink_skills("lock", source, "--fetch", *options).code == 0
        assert len(site.asked("resources/read")) == 3
        assert flink_skills("lock", source, "--check", *options).code == 0
        (tmp_path / "site/acme/refunds/refs/notes.md").write_text("Other\n")
        said = flink_skills("lock", source, "--check", *options)
        assert said.code == 1
        assert "'refunds' of MCP server acme has the digest" in said.stderr
    finally:
        site.close()
