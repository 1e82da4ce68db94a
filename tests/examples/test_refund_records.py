"""Records of the bridge for refunds: bad ones are skipped and shown, and the others stay. Fields of arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from examples.refunds.arguments import fields_of, problems_of, read_json
from examples.refunds.demo import lines
from examples.refunds.questions import Questions
from examples.refunds.records import MAX_LINE, Files
from tests.examples.refund_questions import ask, question, raw

#: Everything at which str.splitlines() splits, except the line feed.
SEPARATORS = [character for character in map(chr, range(0x11000)) if len(f"a{character}b".splitlines()) > 1]


@pytest.fixture
def questions(tmp_path: Path) -> Questions:
    return Questions(Files(tmp_path / "questions", tmp_path / "decisions", tmp_path / "failures"))


def opened(questions: Questions) -> list[str]:
    return [of["wait_id"] for of in questions.all()["open"]]


def problems(questions: Questions) -> list[tuple[str, str]]:
    return [(of["place"], of["problem"]) for of in questions.all()["problems"]]


def line(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize("separator", [of for of in SEPARATORS if of not in "\n\r\x0b\x0c\x1c\x1d\x1e"])
def test_a_line_separator_in_a_text_hides_no_question(tmp_path: Path, questions: Questions, separator: str) -> None:
    text = f"Pay{separator}ann?"
    raw(tmp_path, line(question("a", question=text)) + line(question("b")))
    assert (opened(questions), problems(questions)) == (["a", "b"], [])
    assert questions.all()["open"][0]["question"] == text
    file = raw(tmp_path, line(question("a", question=text)), "copies")
    assert [of["question"] for of in lines(file)] == [text]


@pytest.mark.parametrize("separator", [of for of in SEPARATORS if of != "\n"])
def test_an_escaped_separator_hides_no_question(tmp_path: Path, questions: Questions, separator: str) -> None:
    ask(tmp_path, question("a", question=f"Pay{separator}ann?"), question("b"))
    assert (opened(questions), problems(questions)) == (["a", "b"], [])


BAD: list[tuple[bytes, str]] = [
    (b"{broken\n", "it is not JSON"),
    (b"\xff\xfe{}\n", "it is not"),
    (b'{"wait_id": "\xff"}\n', "it is not UTF-8"),
    (b"[1]\n", "it is not a JSON object"),
    (b"null\n", "it is not a JSON object"),
    (b"[" * 100_000 + b"\n", "nested too deeply"),
    (b'{"wait_id": ' + b"9" * 10_000 + b"}\n", ""),
    (b'{"wait_id": "x", "wait_id": "y", "status": "open"}\n', "the name 'wait_id' occurs twice"),
    (line(question("x") | {"since": None}), "since is missing"),
    (line({name: of for name, of in question("x").items() if name != "since"}), "since is missing"),
    (line({name: of for name, of in question("x").items() if name != "wait_id"}), "wait_id is missing"),
    (line({name: of for name, of in question("x").items() if name != "key"}), "key is missing"),
    (line(question("x", status="paused")), 'status is "paused", expected one of open'),
    (line(question("x", status=["open"])), 'status is ["open"]'),
    (line(question("x", kind="sleep")), 'kind is "sleep"'),
    (line(question("x", since="yesterday")), 'since is "yesterday"'),
    (line(question("x", since=True)), "since is true"),
    (line(question("x", since=-1)), "since is -1"),
    (line(question("x", since=10**40)), "expected milliseconds"),
    (line(question("x", arguments=None)), "arguments is missing"),
    (line(question("x", arguments="[1]")), "arguments is not a JSON object"),
    (line(question("x", arguments='{"cents": 1, "cents": 9}')), "'cents' occurs twice"),
    (line(question("x", payload="{")), "payload cannot be read"),
    *[(line(question("x", payload="[" * depth + "]" * depth)), "nested too deeply") for depth in (150, 400, 900)],
    *[
        (line({**question("x"), name: value}), name)
        for name in question("x")
        for value in (3.5, True, [1], {"a": 1})
        if name != "status"
    ],
]


@pytest.mark.parametrize(("bad", "said"), BAD)
def test_a_bad_record_is_skipped_and_shown_with_its_place(
    tmp_path: Path, questions: Questions, bad: bytes, said: str
) -> None:
    raw(tmp_path, line(question("a")) + bad + line(question("b")))
    assert opened(questions) == ["a", "b"]
    ((place, problem),) = problems(questions)
    assert place == "questions: part-0, line 2"
    assert said in problem
    # Later polls show it as well, once.
    assert opened(questions) == ["a", "b"]
    assert (len(problems(questions)), questions.all()["problem_count"]) == (1, 1)


def test_bad_answers_and_errors_are_shown_as_well(tmp_path: Path, questions: Questions) -> None:
    ask(tmp_path, question("a"))
    raw(tmp_path, b'{"answer": "x"}\n', "decisions")
    raw(tmp_path, b'{"error": 3}\n', "failures")
    assert opened(questions) == ["a"]
    assert {place for place, _ in problems(questions)} == {"answers: part-0, line 1", "errors: part-0, line 1"}


def test_a_huge_line_is_skipped_with_its_size(tmp_path: Path, questions: Questions) -> None:
    huge = line(question("x", question="x" * (3 * MAX_LINE)))
    raw(tmp_path, line(question("a")) + huge + line(question("b")))
    assert opened(questions) == ["a", "b"]
    ((place, problem),) = problems(questions)
    assert place == "questions: part-0, line 2"
    assert f"the line has {len(huge)} bytes" in problem


def test_a_half_written_last_line_is_read_when_it_is_complete(tmp_path: Path, questions: Questions) -> None:
    second = line(question("b", question="Ünd?"))
    cut = second.index("Ü".encode()) + 1
    file = raw(tmp_path, line(question("a")) + second[:cut])
    assert opened(questions) == ["a"]
    assert problems(questions) == [("questions: part-0, line 2", "the line has no end yet, and is read again")]
    with file.open("ab") as more:
        more.write(second[cut:-1])
    assert opened(questions) == ["a", "b"], "a complete object needs no line feed"
    assert problems(questions) == []
    with file.open("ab") as more:
        more.write(b"\n" + line(question("c")) + b"{\n")
    assert opened(questions) == ["a", "b", "c"]
    ((place, _),) = problems(questions)
    assert place == "questions: part-0, line 4"


def test_files_can_disappear_and_be_replaced(tmp_path: Path, questions: Questions) -> None:
    file = raw(tmp_path, line(question("a")) + b"{")
    assert opened(questions) == ["a"]
    assert len(problems(questions)) == 1
    file.unlink()
    assert opened(questions) == ["a"], "a question is open until its end"
    assert problems(questions) == []
    file.write_bytes(line(question("b")) * 3)
    assert opened(questions) == ["a", "b"]
    # As long as the one before, and in its place.
    file.write_bytes(line(question("c")) * 2 + line(question("d")))
    os.utime(file, ns=(1, 1))
    assert opened(questions) == ["a", "b", "c", "d"]
    file.write_bytes(line(question("e")))
    assert opened(questions) == ["a", "b", "c", "d", "e"]


def test_files_in_progress_are_not_read(tmp_path: Path, questions: Questions) -> None:
    ask(tmp_path, question("a"))
    folder = tmp_path / "questions"
    for name in (".part-1.inprogress.1", "_part-2", "_temporary/part-3", ".staging/part-4", "day=1/.part-5"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(line(question("x")))
    (folder / "day=1" / "part-6").write_bytes(line(question("b")))
    os.mkfifo(folder / "pipe")
    (folder / "gone").symlink_to(folder / "nothing")
    assert (opened(questions), problems(questions)) == (["a", "b"], [])


def test_a_file_that_cannot_be_opened_is_shown_until_it_can(
    tmp_path: Path, questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(tmp_path, question("a"))
    file = raw(tmp_path, line(question("b")))
    open_file = Path.open

    def refuse(path: Path, *more: Any) -> Any:
        if path == file:
            raise PermissionError(13, "Permission denied")
        return open_file(path, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refuse)
        assert opened(questions) == ["a"]
        assert problems(questions) == [("questions: part-1", "the file cannot be read: Permission denied")]
    assert (opened(questions), problems(questions)) == (["a", "b"], [])


def test_repeated_records_are_one_question(tmp_path: Path, questions: Questions) -> None:
    ask(tmp_path, question("a"), question("a"))
    assert opened(questions) == ["a"]
    end = question("a", status="answered", by="ann", at=1_700_000_001_000)
    ask(tmp_path, end, end, question("a"))
    assert opened(questions) == [], "the question does not come back"
    assert [of["by"] for of in questions.all()["ended"]] == ["ann"]


def test_an_end_that_is_read_first_ends_its_question(tmp_path: Path, questions: Questions) -> None:
    ask(tmp_path, question("a", status="timed_out"))
    ask(tmp_path, question("a"))
    assert opened(questions) == []
    ask(tmp_path, question("b", status="cancelled", at=10), question("b", since=20))
    assert opened(questions) == ["b"], "it was asked again after its end"


def test_times_can_be_timestamps_of_tables(tmp_path: Path, questions: Questions) -> None:
    ask(tmp_path, question("a", since="2023-11-14 22:13:20Z", deadline="2023-11-14T22:13:21.5Z"))
    (found,) = questions.all()["open"]
    assert (found["since"], found["deadline"]) == (1_700_000_000_000, 1_700_000_001_500)


def test_the_payload_is_shown_as_pairs_and_the_timeout_as_its_effect(tmp_path: Path, questions: Questions) -> None:
    payload = {"on_timeout": "refuse", "payload": {"reason": "late", "order": {"no": 7, "tags": ["a", "b"]}}}
    ask(tmp_path, question("a", payload=json.dumps(payload)))
    (found,) = questions.all()["open"]
    assert found["on_timeout"] == "refuse"
    assert found["background"] == [["reason", "late"], ["order.no", "7"], ["order.tags", "a\nb"]]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ('{"approved": true}', "Approved"),
        ('{"approved": true, "arguments": {"cents": 5}}', "Approved with other arguments (cents: 5)"),
        ('{"approved": false, "reason": "late"}', "Refused: late"),
        ('"tomorrow"', "Answered: tomorrow"),
        ("{broken", "Answered: {broken"),
    ],
)
def test_an_ended_question_has_its_decision_in_words(
    tmp_path: Path, questions: Questions, answer: str, outcome: str
) -> None:
    ask(tmp_path, question("a"), question("a", status="answered", answer=answer))
    assert questions.all()["ended"][0]["outcome"] == outcome


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("A-1", "text", "A-1"),
        ("0012", "text", "0012"),
        (9007199254740993, "integer", "9007199254740993"),
        (1.0, "number", "1.0"),
        (True, "boolean", True),
        (None, "json", "null"),
        ([1, "a"], "json", '[\n  1,\n  "a"\n]'),
        ({}, "json", "{}"),
        ("abc\u202edef", "json", '"abc\\u202edef"'),
        ("a\u2028b", "json", '"a\\u2028b"'),
        ("a\rb", "json", '"a\\rb"'),
        ("\ud800", "json", '"\\ud800"'),
        ("Zoë\n2", "text", "Zoë\n2"),
    ],
)
def test_a_field_without_a_schema_has_the_type_of_its_value(value: Any, kind: str, text: Any) -> None:
    (field,) = fields_of({"x": value})
    assert (field["kind"], field["value"], field["required"]) == (kind, text, True)
    assert json.loads(field["json"]) == value


SCHEMA = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "description": "The order."},
        "cents": {"type": "integer"},
        "share": {"type": "number"},
        "fast": {"type": "boolean"},
        "currency": {"enum": ["EUR", "USD"], "type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "other": True,
    },
    "required": ["order", "cents"],
}


def test_fields_have_the_types_of_the_schema() -> None:
    fields = fields_of({"order": "A-1", "cents": "9000", "currency": "EUR", "share": 1}, SCHEMA)
    assert {of["name"]: (of["kind"], of["value"], of["required"]) for of in fields} == {
        "order": ("text", "A-1", True),
        # Not of its type: the person sees exactly what the tool receives.
        "cents": ("json", '"9000"', True),
        "share": ("number", "1", False),
        "fast": ("boolean", "", False),
        "currency": ("choice", '"EUR"', False),
        "note": ("json", "", False),
        "other": ("json", "", False),
    }
    assert [of["choices"] for of in fields if "choices" in of] == [['"EUR"', '"USD"']]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"order": "A-1", "cents": 5}, []),
        ({"order": "A-1", "cents": 5, "share": 1, "fast": False, "currency": "USD", "note": None}, []),
        ({"order": 1, "cents": "5"}, ["cents", "order"]),
        ({"order": "A-1"}, ["cents"]),
        ({"order": "A-1", "cents": 5, "currency": "GBP"}, ["currency"]),
        ({"order": "A-1", "cents": 5, "fast": "no", "share": True}, ["fast", "share"]),
        ({"order": "A-1", "cents": 5, "Cents": 9}, ["Cents"]),
    ],
)
def test_arguments_are_checked_with_the_schema(arguments: dict[str, Any], wrong: list[str]) -> None:
    fields = fields_of({"order": "A-1", "cents": 1}, SCHEMA)
    assert sorted(problems_of(arguments, fields, has_schema=True)) == wrong


def test_a_json_text_has_one_meaning() -> None:
    for text in (
        '{"a": 1, "a": 2}',
        "[" * 101 + "]" * 101,
        "NaN",
        "-Infinity",
        "1e999",
        "[" * 100_000,
        b"\xff",
        "{'a': 1}",
    ):
        with pytest.raises(ValueError, match=r"."):
            read_json(text)
    assert read_json('{"a": 9007199254740993}') == {"a": 9007199254740993}
