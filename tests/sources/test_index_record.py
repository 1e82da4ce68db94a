"""Loaded skills as JSON and back.

Examines the internals of sources.catalog_index on purpose.
"""

import json
from pathlib import Path

import pytest

from flink_skills.skill import Diagnostic, Limits, LoadResult
from flink_skills.sources.catalog_index import from_record, to_record
from tests.skill.writing import load, write

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
