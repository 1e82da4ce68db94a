"""What untrusted code says of its tools, before a model is told of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.execution import CommandResult
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.dynamic.answers import read_answer, tool_result
from flink_skills.tools.dynamic.runner_output import PrintedText, RunnerOutput
from flink_skills.tools.dynamic.runner_process import RunnerProcess
from flink_skills.tools.dynamic.schema_file import read_schema_file
from flink_skills.tools.dynamic.specs import MOST_SCHEMA_BYTES, checked_parameters, checked_specs

_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["type", "properties", "items"]), inner)
    ),
    max_leaves=20,
)


def test_what_models_need_not_know_is_left_out() -> None:
    raw = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "T",
        "type": "object",
        "description": "D",
        "oneOf": [{}],
        "properties": {
            "a": {"type": "string", "title": "A", "x-evil": "obey", "description": "A \u202etext.", "pattern": "("},
            "b": {"$ref": "#/$defs/B"},
            "c": {"$ref": "http://elsewhere/c.json"},
            "d": {"$ref": "#/$defs/None"},
            "e": {"type": "thing", "enum": [], "minimum": "1"},
        },
        "required": ["a", "zzz", 1],
        "$defs": {"B": {"type": "integer", "minimum": 1}},
    }
    assert checked_parameters(raw) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "A text."},
            "b": {"$ref": "#/$defs/B"},
            "c": {},
            "d": {},
            "e": {},
        },
        "required": ["a"],
        "$defs": {"B": {"type": "integer", "minimum": 1}},
    }


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([], "no JSON schema"),
        ({"type": "string"}, "not an object"),
        ({"properties": {"a b": {}}}, "the name of its argument 'a b'"),
        ({"properties": {"a": {"enum": ["x" * 100] * 100}}}, f"{MOST_SCHEMA_BYTES} are the most"),
    ],
)
def test_parameters_that_no_provider_takes_are_refused(raw: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked_parameters(raw)


@given(st.lists(_JSON | st.fixed_dictionaries({"name": st.text(), "description": _JSON, "parameters": _JSON})) | _JSON)
def test_whatever_comes_specs_are_small_and_plain(raw: Any) -> None:
    specs, problems = checked_specs(raw)
    assert all(isinstance(problem, str) and len(problem) < 500 for problem in problems)
    for spec in specs:
        assert spec["parameters"]["type"] == "object"
        assert len(json.dumps(spec["parameters"], ensure_ascii=False).encode()) <= MOST_SCHEMA_BYTES
        json.dumps(spec, allow_nan=False)


@given(_JSON)
def test_whatever_a_schema_file_holds_it_is_read_or_refused(raw: Any) -> None:
    found, problems = read_schema_file(json.dumps(raw).encode())
    assert isinstance(found, dict)
    assert all(isinstance(problem, str) and len(problem) < 500 for problem in problems)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[" + b" " * 300_000 + b"]", "more than 262144 bytes"),
        (b'{"tools": 1}', "no list of tools"),
        (b'[{"name": "a", "command": "rm -r"}]', "no list of words"),
        (b'[{"name": "a", "command": ["a\\u0000"]}]', "too long"),
        (b'[{"name": "a", "command": [""]}]', "names no program"),
        (b'[{"name": "a"}, {"name": "a"}]', "twice"),
        (json.dumps([{"name": f"t{n}"} for n in range(70)]).encode(), "the first 64 count"),
    ],
)
def test_what_is_wrong_with_a_schema_file_is_said(data: bytes, says: str) -> None:
    assert says in " ".join(read_schema_file(data)[1])


@pytest.mark.parametrize(
    "line",
    [
        b"nothing\n",
        b"[]\n",
        b"{}\n",
        b'{"value": NaN}\n',
        b'{"value": ' + b"[" * 100_000 + b"\n",
        b'{"value": ' + b"[" * 500 + b"]" * 500 + b"}\n",
        b"\xff\xfe\n",
        b'{"value": 1' + b"0" * 10_000 + b"}\n",
    ],
)
def test_an_answer_that_is_none_is_an_error(line: bytes) -> None:
    result = tool_result(read_answer(line, b"", HiddenValues()), "tool")
    assert result.is_error
    assert result.content.startswith("tool failed: its answer cannot be read")
    assert len(result.content) < 500


def test_half_characters_do_not_get_into_a_session() -> None:
    result = tool_result(read_answer(b'{"value": {"\\ud800": ["\\udc00"]}}\n', b"", HiddenValues()), "tool")
    assert result.value == {"?": ["?"]}
    assert result.content.encode() == b'{"?": ["?"]}'


def test_hidden_values_are_found_in_numbers_too() -> None:
    hidden = HiddenValues()
    hidden.add("pin", "123456")
    result = tool_result(read_answer(b'{"value": {"pin": 123456, "other": 12}}\n', b"at 123456", hidden), "tool")
    assert result.value == {"pin": "[hidden]", "other": 12}
    assert "123456" not in result.content


def test_of_what_was_printed_the_beginning_and_the_end_are_kept() -> None:
    text = PrintedText()
    for number in range(10_000):
        text.add(f"{number}\n".encode())
    shown, dropped = text.read()
    assert shown.startswith(b"0\n1\n2\n")
    assert shown.endswith(b"9998\n9999\n")
    assert len(shown) < 4_200
    assert text.size == sum(len(f"{number}\n") for number in range(10_000)) == dropped + 4_096


class _Process:
    """A process that says what a test wants it to."""

    def __init__(self, output: RunnerOutput, *answers: bytes) -> None:
        self._output = output
        self._answers = list(answers)
        self._over = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    async def write(self, data: bytes) -> None:
        if self._answers:
            self._output.add(1, self._answers.pop(0))
        self._output.add(2, f"\0{json.loads(data)['mark']}\0\n".encode())

    async def wait(self) -> CommandResult:
        await self._over.wait()
        return CommandResult(signal=9)

    async def terminate(self, grace: float) -> CommandResult:
        self._over.set()
        return await self.wait()

    def close(self) -> None:
        self._over.set()


@pytest.mark.parametrize(
    "said",
    [b'{"value": 1}\n{"value": 2}\n', b"x" * 200, b"x" * 200 + b"\n"],
    ids=["two answers", "no end", "too long"],
)
async def test_a_program_that_says_too_much_is_ended(said: bytes) -> None:
    output = RunnerOutput()
    process = _Process(output, said)
    runner = RunnerProcess(process, output)  # type: ignore[arg-type]
    reply = await runner.ask({"id": 1}, room=100, timeout=30)
    assert reply.line is None
    assert process.ended
    assert not runner.usable


async def test_what_nobody_asked_for_is_no_answer_to_the_next_request() -> None:
    output = RunnerOutput()
    process = _Process(output, b'{"value": 1}\n', b'{"value": 2}\n')
    runner = RunnerProcess(process, output)  # type: ignore[arg-type]
    assert (await runner.ask({"id": 1}, room=100, timeout=30)).line == b'{"value": 1}\n'
    assert runner.usable
    output.add(1, b'{"value": "forged"}\n')
    assert process.ended
    assert not runner.usable
