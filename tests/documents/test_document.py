"""YAML with places: what is read, what is refused, and where it says that the trouble is."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.documents import DocumentError, Place, path_text, read_document


def problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        read_document("f.yaml", text=text)
    return str(caught.value).splitlines()


def test_values_are_plain_and_know_their_places() -> None:
    document = read_document(
        "f.yaml", text="name: a\nflink:\n  x.y: 10 s\n  n: 3\n  on: yes\n  d: 2024-01-02\n  list: [1, {b: null}]\n"
    )
    assert document.data == {
        "name": "a",
        "flink": {"x.y": "10 s", "n": 3, "on": True, "d": "2024-01-02", "list": [1, {"b": None}]},
    }
    assert document.places["flink", "n"] == Place(4, 6)
    assert document.keys["flink", "n"] == Place(4, 3)
    assert document.places["flink", "list", 1, "b"] == Place(7, 17)
    assert document.place(("flink", "list", 1, "nowhere", "below")) == Place(7, 13)
    assert path_text(("flink", "list", 1, "b")) == "flink.list[1].b"


@pytest.mark.parametrize("style", ["|", ">-", "|2"])
def test_lines_inside_of_a_block_are_those_of_the_file(style: str) -> None:
    document = read_document("f.yaml", text=f"a: 1\ntables: {style}\n  one\n  two\n")
    assert str(document.problem(("tables",), "bad", line=2)) == "f.yaml:4: tables: bad"


def test_everything_odd_is_found_at_once() -> None:
    text = "a: 1\na: 2\nb: !!python/name:os.system x\nc: !mine [1]\nd: !!int three\n? [k]\n: v\ne: {x: 1, x: 2}\n"
    assert problems(text) == [
        "f.yaml:2:1: a: the key is duplicated, first in line 1; keep one of them",
        "f.yaml:3:4: b: the value has the YAML tag '!!python/name:os.system'; remove it",
        "f.yaml:4:4: c: the value has the YAML tag '!mine'; remove it",
        "f.yaml:5:4: d: 'three' is not a valid int; write it in quotes",
        "f.yaml:6:3: a key is a list or a mapping; write a string",
        "f.yaml:8:11: e.x: the key is duplicated, first in line 8; keep one of them",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x 1\nb: *x\n", "f.yaml:1:4: YAML anchors and aliases are not used here (&x): write the value again"),
        ("a: {<<: *y}\n", "f.yaml:1:9: YAML anchors and aliases are not used here (*y): write the value again"),
        ("", "f.yaml: the file is empty"),
        ("a: 1\nb: x\a\n", "f.yaml:2:5: invalid YAML: the character U+0007 is not allowed; remove it"),
        ('a: "\\U00110000"\n', "f.yaml:1:7: invalid YAML: chr() arg not in range(0x110000)"),
        ("a: !!int ''\n", "f.yaml:1:4: a: '' is not a valid int; write it in quotes"),
        ("a: !!bool x\n", "f.yaml:1:4: a: 'x' is not a valid bool; write it in quotes"),
        ('a: "\\uD800"\n', "f.yaml:1:4: a: the value contains half of a character, \\uD800; write the whole one"),
        ("# only this\n", "f.yaml: the file is empty"),
        ("a: [1\nb: 2\n", "f.yaml:2:2: invalid YAML: expected ',' or ']', but got ':'"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: invalid YAML: but found another document"),
        ("a:\n\t- 1\n", "f.yaml:2:1: invalid YAML: found character '\\t' that cannot start any token"),
    ],
)
def test_what_is_no_such_yaml_is_refused_with_its_line(text: str, problem: str) -> None:
    assert problems(text) == [problem]


def test_a_deep_document_is_refused_and_not_followed() -> None:
    (problem,) = problems("a: " + "[" * 20_000 + "]" * 20_000)
    assert "the document is nested more than 50 deep" in problem


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"none\.yaml: No such file or directory"):
        read_document(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe4\n")
    with pytest.raises(DocumentError, match=r"latin\.yaml:2: the file is not UTF-8 text"):
        read_document(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(DocumentError, match="the file is larger than 4 MiB"):
        read_document(tmp_path / "large.yaml")
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_document(tmp_path / "bom.yaml").data == {"a": 1, "b": 2}
