"""Types of outputs that the outputs do not have: an error where they are declared, or one sentence with the field."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import pytest
from pydantic import BaseModel, Field, RootModel, field_serializer
from pyflink.common import Instant, Types
from pyflink.datastream import OutputTag
from pyflink.table import DataTypes
from typing_extensions import TypedDict

from flink_skills import Agent, AgentsExecutionEnvironment, SkillsError, load_agent_yaml
from tests.flink.agents import Tally
from tests.flink.running import agents_environment, collect, environments, failure_of

pytestmark = pytest.mark.flink


class Color(enum.Enum):
    RED = "red"


class Part(BaseModel):
    size: int = 1


class Verdict(BaseModel):
    number: int
    text: str | None = None
    share: float = 0.5
    price: decimal.Decimal = decimal.Decimal(1)
    sure: bool = True
    at: dt.datetime = dt.datetime(2026, 1, 2)
    day: dt.date = dt.date(2026, 1, 2)
    color: Color = Color.RED
    kind: Literal["a", "b"] = "a"
    parts: list[Part] = []
    part: Part = Part()
    tags: Annotated[list[str], Field(max_length=3)] = []
    data: bytes = b""
    more: Any = None


FITTING = {
    "number": "BIGINT",
    "text": "STRING",
    "share": "DOUBLE",
    "price": "DECIMAL(10, 2)",
    "sure": "BOOLEAN",
    "at": "TIMESTAMP_LTZ(3)",
    "day": "DATE",
    "color": "STRING",
    "kind": "STRING",
    "parts": "ARRAY<ROW<size INT>>",
    "part": "ROW<size INT>",
    "tags": "ARRAY<STRING>",
    "data": "BYTES",
    "more": "INT",
}


@dataclass
class Ticket:
    number: int


class Named(NamedTuple):
    number: int


class Typed(TypedDict):
    number: int


class Open(BaseModel, extra="allow"):
    number: int


class Serialized(BaseModel):
    number: int

    @field_serializer("number")
    def _as_text(self, value: int) -> str:
        return str(value)


class Root(RootModel[int]):
    pass


def output(agents_env: AgentsExecutionEnvironment, output_type: Any, **members: Any) -> Any:
    """Return the outputs of an agent with an answer type. ``members`` may have its ``on_event``."""
    agent = type("Judge", (Agent,), {"name": "judge", "model": "offline", "output_type": output_type, **members})
    env = agents_env._env
    assert env is not None
    return agents_env.from_datastream(env.from_collection([("a", 1)]), lambda event: event[0]).apply(agent)


@pytest.fixture(scope="module")
def agents_env() -> AgentsExecutionEnvironment:
    return agents_environment()


async def _annotated(self: Any, event: Any, ctx: Any) -> Verdict | None: ...


async def _emits(self: Any, event: Any, ctx: Any) -> Verdict | None:
    ctx.emit({"other": 1})
    return None


async def _unknown(self: Any, event: Any, ctx: Any) -> Any: ...


@pytest.mark.parametrize(
    ("output_type", "schema"),
    [
        (Verdict, FITTING),
        (Verdict, {"number": "DOUBLE"}),
        (None, {"answer": "STRING"}),
        (str, {"answer": "STRING"}),
        (int, {"answer": "INT"}),
        (Root, {"answer": "INT"}),
        (Ticket, {"number": "INT"}),
        (Named, {"number": "INT"}),
        (Typed, {"number": "INT"}),
        (Open, {"number": "INT", "other": "STRING"}),
        (Serialized, {"number": "STRING"}),
        (dict, {"anything": "STRING", "else": "INT"}),
        (Verdict | Ticket, {"number": "INT", "text": "STRING"}),
    ],
    ids=str,
)
def test_what_answers_have_is_accepted(agents_env: Any, output_type: Any, schema: dict[str, str]) -> None:
    output(agents_env, output_type).to_table(schema)


@pytest.mark.parametrize(
    ("output_type", "schema", "problem"),
    [
        (Verdict, {"numbr": "INT"}, "unknown field 'numbr' in to_table(schema) of agent judge.*'number'?"),
        (Verdict, {"part": "ROW<sizes INT>"}, "unknown field 'sizes' in .* Part, field 'part': did you mean 'size'?"),
        (Ticket, {"numbr": "INT"}, "did you mean 'number'?"),
        (Named, {"numbr": "INT"}, "did you mean 'number'?"),
        (Typed, {"numbr": "INT"}, "did you mean 'number'?"),
        (Verdict | None, {"numbr": "INT"}, "did you mean 'number'?"),
        (Verdict, {"text": "INT"}, "field 'text' of the outputs is str instead of INT: declare STRING"),
        (Verdict, {"number": "STRING"}, "field 'number' of the outputs is int instead of STRING: declare LONG"),
        (Verdict, {"share": "INT"}, "field 'share' of the outputs is float instead of INT: declare DOUBLE"),
        (Verdict, {"sure": "INT"}, "field 'sure' of the outputs is bool instead of INT"),
        (Verdict, {"at": "STRING"}, "field 'at' of the outputs is datetime instead of STRING"),
        (Verdict, {"color": "INT"}, "field 'color' of the outputs is str instead of INT"),
        (Verdict, {"kind": "INT"}, "field 'kind' of the outputs is str instead of INT"),
        (Verdict, {"tags": "STRING"}, "field 'tags' of the outputs is list.* instead of STRING"),
        (Verdict, {"tags": "ARRAY<INT>"}, r"field 'tags\.\[\]' of the outputs is str instead of INT"),
        (Verdict, {"part": "STRING"}, "field 'part' of the outputs is Part instead of STRING"),
        (str, {"a": "STRING", "b": "INT"}, "an output is str instead of ROW: declare STRING, or another output_type"),
        (None, {"a": "INT"}, "field 'a' of the outputs is str instead of INT"),
        (int, {"a": "STRING"}, "field 'a' of the outputs is int instead of STRING"),
        (Root, {"a": "STRING"}, "field 'a' of the outputs is int instead of STRING"),
    ],
    ids=str,
)
def test_what_answers_do_not_have_is_an_error_at_to_table(
    agents_env: Any, output_type: Any, schema: dict[str, str], problem: str
) -> None:
    with pytest.raises(SkillsError, match=f"(?s){problem.replace('(schema)', '.schema.').replace('?', '.')}"):
        output(agents_env, output_type).to_table(schema)


def test_other_forms_of_schemas_and_type_infos_are_checked(agents_env: Any) -> None:
    verdicts, texts = output(agents_env, Verdict), output(agents_env, str)
    with pytest.raises(SkillsError, match=r"unknown field 'numbr'"):
        verdicts.to_table(DataTypes.ROW([DataTypes.FIELD("numbr", DataTypes.INT())]))
    with pytest.raises(SkillsError, match=r"unknown field 'numbr' in to_datastream\(type_info\) of agent judge"):
        verdicts.to_datastream(Types.ROW_NAMED(["numbr"], [Types.INT()]))
    with pytest.raises(SkillsError, match=r"unknown field 'f0'"):
        verdicts.to_datastream(Types.ROW([Types.INT()]))
    with pytest.raises(SkillsError, match="an output is Verdict instead of STRING"):
        verdicts.to_datastream(Types.STRING())
    with pytest.raises(SkillsError, match="an output is str instead of INT: declare STRING"):
        texts.to_datastream(Types.INT())
    texts.to_datastream(Types.STRING())
    verdicts.to_datastream(Types.PICKLED_BYTE_ARRAY())


def test_error_records_and_events_have_known_fields(agents_env: Any) -> None:
    of = output(agents_env, Verdict, on_event=_unknown)
    of.to_table({"key": "STRING", "turn": "INT", "error": "STRING"}, tag="errors")
    with pytest.raises(SkillsError, match=r"unknown field 'eror' in .*error records: did you mean 'error'"):
        of.to_table({"eror": "STRING"}, tag="errors")
    with pytest.raises(SkillsError, match="field 'error' of the outputs is str instead of INT"):
        of.to_table({"error": "INT"}, tag="errors")
    with pytest.raises(SkillsError, match=r"unknown field 'knd' in .*events: did you mean 'kind'"):
        of.to_datastream(Types.ROW_NAMED(["knd"], [Types.STRING()]), tag="events")
    of.to_table({"whatever": "STRING"}, tag="audit")


def test_an_on_event_says_by_its_annotation_what_it_returns(agents_env: Any) -> None:
    with pytest.raises(SkillsError, match=r"unknown field 'numbr'"):
        output(agents_env, None, on_event=_annotated).to_table({"numbr": "INT"})
    for other in (_emits, _unknown):
        output(agents_env, Verdict, on_event=other).to_table({"numbr": "INT"})


def test_answers_of_an_agent_of_yaml_are_json(agents_env: Any, tmp_path: Any) -> None:
    file = tmp_path / "judge.yaml"
    file.write_text("name: judge\nmodel: offline\noutput_type: {number: int, text: str}\n", encoding="utf-8")
    env = agents_env._env
    given = agents_env.from_datastream(env.from_collection([("a", 1)]), lambda event: event[0])
    given.apply(load_agent_yaml(file)).to_table({"number": "INT", "text": "STRING"})
    with pytest.raises(SkillsError, match=r"unknown field 'txt'.* did you mean 'text'"):
        given.apply(load_agent_yaml(file)).to_table({"txt": "STRING"})


class Emitter(Agent):
    name = "emitter"
    made: ClassVar[Callable[[], Any]]

    async def on_event(self, event: Any, ctx: Any) -> Any:
        return type(self).made()


def emitted(agents_env: AgentsExecutionEnvironment, value: Callable[[], Any]) -> Any:
    agent = type("Made", (Emitter,), {"made": staticmethod(value)})
    env = agents_env._env
    assert env is not None
    return agents_env.from_datastream(env.from_collection([("a", 1)]), lambda event: event[0]).apply(agent)


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        (
            lambda: {"m": 1},
            {"n": "INT"},
            "an output does not fit its type: expected one or more of the fields n: unknown field 'n'",
        ),
        (lambda: {"n": "x"}, {"n": "INT"}, "field 'n' of an output does not fit its type: expected INT, got str"),
        (
            lambda: {"n": 1.5, "m": 1},
            {"n": "INT"},
            "field 'n' of an output does not fit its type: expected a whole number for INT",
        ),
        (
            lambda: {"n": 2**40},
            {"n": "INT"},
            "field 'n' of an output does not fit its type: expected a number in the range of INT",
        ),
        (
            lambda: {"n": {"m": [1, "x"]}},
            {"n": "ROW<m ARRAY<INT>>"},
            r"field 'n\.m\.\[\]' of an output does not fit its type: expected INT, got str",
        ),
        (
            lambda: "x",
            {"n": "INT", "m": "INT"},
            "an output does not fit its type: expected a row with the fields n, m, got str: emit a dict",
        ),
        (
            lambda: [1],
            {"n": "INT", "m": "INT"},
            "an output does not fit its type: expected values for the fields n, m, got 1 values",
        ),
    ],
)
def test_an_output_that_does_not_fit_fails_the_job_in_one_sentence(
    value: Callable[[], Any], schema: dict[str, str], problem: str
) -> None:
    agents_env = agents_environment()
    table = emitted(agents_env, value).to_table(schema)
    t_env = agents_env.table_environment()
    message = failure_of(t_env.to_data_stream(table))
    assert message is not None
    assert problem.replace("\\", "") in message
    assert "to_table(schema) of agent emitter: " in message


def test_values_are_converted_where_nothing_is_lost() -> None:
    agents_env = agents_environment()
    stream = emitted(agents_env, lambda: Verdict(number=3, parts=[Part(size=2)], tags=["t"])).to_datastream(
        Types.ROW_NAMED(
            ["number", "share", "at", "color", "parts", "tags", "more"],
            [
                Types.LONG(),
                Types.DOUBLE(),
                Types.INSTANT(),
                Types.STRING(),
                Types.OBJECT_ARRAY(Types.ROW_NAMED(["size"], [Types.INT()])),
                Types.OBJECT_ARRAY(Types.STRING()),
                Types.INT(),
            ],
        )
    )
    (found,) = collect(stream.map(tuple, Types.PICKLED_BYTE_ARRAY()))
    number, share, at, color, parts, tags, more = found
    assert (number, share, color, tags, more) == (3, 0.5, "red", ["t"], None)
    assert at == Instant(1767312000, 0)
    assert [tuple(part) for part in parts] == [(2,)]


EVENTS = [("a", 1), ("a", -2), ("a", 3), ("b", 4)]
TYPE = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])


@pytest.mark.both_versions
def test_outputs_errors_and_a_side_output_by_tag_and_by_flink() -> None:
    env, agents_env = environments(parallelism=2)
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally)
    main = output.to_datastream()
    records = collect(
        main,
        output.to_datastream(tag="errors"),
        output.to_datastream(tag="audit"),
        main.get_side_output(OutputTag("errors", Types.PICKLED_BYTE_ARRAY())),
        main.get_side_output(OutputTag("audit")),
        output.to_datastream(tag="nobody emits to this"),
    )
    main_records = [record for record in records if "last" in record]
    assert sorted(main_records, key=lambda r: r["last"]) == [
        {"key": "a", "seen": [1], "last": 1},
        {"key": "a", "seen": [1, 3], "last": 3},  # the failed turn left no trace in the state
        {"key": "b", "seen": [4], "last": 4},
    ]
    errors = [record for record in records if "error" in record]
    assert len(errors) == 2
    assert errors[0] == errors[1]
    assert errors[0] == {
        "agent": "tally",
        "key": "a",
        "turn": 2,
        "output": None,
        "error": "ValueError: -2 is below zero",
        "skills": [],
        "tool_calls": [],
        "usage": {"input_tokens": 0, "output_tokens": 0, "requests": 0},
        "event": {"k": "a", "v": -2},
    }
    audits = [record for record in records if "audit" in record]
    assert len(audits) == 6
    assert {(record["audit"], record["seen"]) for record in audits} == {("a", 1), ("a", 2), ("b", 1)}


def test_rows_of_a_declared_type() -> None:
    env, agents_env = environments()
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally)
    rows = Types.ROW_NAMED(
        ["last", "key", "missing", "seen"],
        [Types.INT(), Types.STRING(), Types.LONG(), Types.OBJECT_ARRAY(Types.INT())],
    )
    typed = output.to_datastream(rows)
    assert typed.get_type() == rows
    audit = output.to_datastream(Types.ROW_NAMED(["seen", "audit"], [Types.INT(), Types.STRING()]), tag="audit")
    records: list[Any] = collect(
        typed.map(lambda row: ("main", tuple(row)), Types.PICKLED_BYTE_ARRAY()),
        audit.map(lambda row: ("audit", tuple(row)), Types.PICKLED_BYTE_ARRAY()),
    )
    assert sorted(of for kind, of in records if kind == "main") == [
        (1, "a", None, [1]),
        (3, "a", None, [1, 3]),
        (4, "b", None, [4]),
    ]
    assert sorted(of for kind, of in records if kind == "audit") == [(1, "a"), (1, "b"), (2, "a")]


def test_on_error_fail_fails_the_job_with_one_message() -> None:
    env, agents_env = environments({"skills.turn.on-error": "fail"})
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally)
    message = failure_of(output.to_datastream())
    assert message == 'agent tally, key "a", turn 2 failed: ValueError: -2 is below zero'
