"""Job files that are small and would take long, or end in a traceback: each is refused in few words.

Examines the internals of job.job_reading and documents.schema_validation on purpose.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flink_skills.documents import DocumentError, read_document, schema_validation
from flink_skills.errors import near_misses
from flink_skills.job import job_reading
from flink_skills.texts import visible
from tests.job.files import PLAIN, problems_of


def _refused(folder: Path, text: str) -> str:
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        read_document(file)
    return str(raised.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 3_000, "- " * 3_000])
def test_what_is_nested_too_deep_is_refused_while_it_is_scanned(tmp_path: Path, text: str) -> None:
    assert "is nested more than 50 deep" in _refused(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["".join(f"k{n}: 1\n" for n in range(20_000)), "[" + "1," * 20_000, "[" + "{}," * 20_000]
)
def test_too_many_values_are_refused_while_they_are_scanned(tmp_path: Path, text: str) -> None:
    assert "the file has more than 10,000 keys and values; expected a job file or an agent file" in _refused(
        tmp_path, text
    )


@pytest.mark.parametrize(
    "number", ["0x" + "f" * 5_000, "19:" * 1_000 + "20", "1" * 5_000, "1:" * 300 + "1.5", "1" * 4_000]
)
def test_a_number_that_nobody_can_write_is_refused(tmp_path: Path, number: str) -> None:
    found = _refused(tmp_path, f"name: {number}")
    assert "write it in quotes" in found
    assert len(found) < 400


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "job.yaml"
    os.mkfifo(pipe)
    with pytest.raises(DocumentError, match="is not a regular file"):
        read_document(pipe)


def test_names_are_searched_for_the_first_wrong_keys_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def counted(name: str, known: list[str]) -> list[str]:
        searched.append(name)
        return near_misses(name, known)

    monkeypatch.setattr(schema_validation, "near_misses", counted)
    monkeypatch.setattr(job_reading, "near_misses", counted)
    many = "".join(f"k{n}: 1\n" for n in range(1_000))
    found = problems_of(tmp_path, PLAIN + many)
    assert len(found) == 41
    assert any("… and 960 more unknown keys" in problem for problem in found)
    found = problems_of(tmp_path, options="{" + ", ".join(f"k{n}: 1" for n in range(1_000)) + "}")
    assert len(found) == 41
    assert any("… and 960 more, which were not checked" in problem for problem in found)
    assert len(searched) == 80


def test_one_text_says_the_same_once(tmp_path: Path) -> None:
    found = problems_of(tmp_path, name="'" + "${env:A:-" * 50_000 + "'")
    assert len(found) == 1
    assert "is never closed" in found[0]


def test_a_long_value_is_cut_in_messages(tmp_path: Path) -> None:
    found = problems_of(tmp_path, options="{skills.turn.timeout: '${env:HOME}" + "x" * 50_000 + "'}")
    assert len(found) == 1
    assert len(found[0]) < 1_000


@pytest.mark.parametrize(
    "char", "\x1b\u202e\u034f\u115f\u1160\u17b4\u17b5\u180e\u2065\u2800\u3164\uffa0\U000e0100\U000e0fff"
)
def test_what_shows_nothing_is_written_as_its_code(char: str) -> None:
    assert visible(f"a{char}b") == f"a<U+{ord(char):04X}>b"


@pytest.mark.parametrize(
    "text",
    [
        "two\n\tlines",
        "\u2764\ufe0f\u200d\U0001f525 \U0001f468\u200d\U0001f469 1\ufe0f\u20e3 \U0001f44d\U0001f3fd",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u1820\u180b \ud55c\uae00 \u65e5\u672c",
    ],
    ids=["spaces", "emoji", "Persian", "Mongolian and East Asian"],
)
def test_ordinary_text_stays(text: str) -> None:
    assert visible(text) == text
