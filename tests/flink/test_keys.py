"""``from_datastream``: every way to say what the key is."""

from __future__ import annotations

from typing import Any

import pytest
from pyflink.common import Row, Types
from pyflink.datastream import KeySelector

from flink_skills import UnknownNameError
from tests.flink.agents import Echo
from tests.flink.running import collect, environments, nodes, operators

pytestmark = pytest.mark.flink

EVENTS = [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": 3}, {"z": 4}]
ROWS = Types.ROW_NAMED(
    ["k", "v", "tags", "inner"],
    [
        Types.STRING(),
        Types.INT(),
        Types.OBJECT_ARRAY(Types.STRING()),
        Types.ROW_NAMED(["x"], [Types.DOUBLE()]),
    ],
)


class ByFirstLetter(KeySelector):  # type: ignore[misc]
    """Has state of its own: ``open`` must have been called."""

    def open(self, runtime_context: Any) -> None:
        self.upper = str.upper

    def get_key(self, value: dict[str, Any]) -> str:
        return self.upper(str(value.get("k", "none"))[0])


def key_or_set(event: dict[str, Any]) -> Any:
    return (event["k"], event["v"] > 1) if "k" in event else {event["z"]}


@pytest.mark.both_versions
def test_a_callable_a_selector_a_field_and_a_keyed_stream() -> None:
    env, agents_env = environments(parallelism=2)
    events = env.from_collection(EVENTS)
    inputs = {
        "callable": agents_env.from_datastream(events, key_or_set),
        "selector": agents_env.from_datastream(events, ByFirstLetter()),
        "field": agents_env.from_datastream(events, "k"),
        "keyed": agents_env.from_datastream(events.key_by(len)),
        "keyed again": agents_env.from_datastream(events.key_by(len), "k"),
    }
    outputs = [given.apply(Echo(name), name=name) for name, given in inputs.items()]
    records = collect(*(o.to_datastream(tag=tag) for o in outputs for tag in ("", "errors")))

    def turns(name: str) -> dict[Any, list[tuple[int, Any]]]:
        of_key: dict[Any, list[tuple[int, Any]]] = {}
        for record in records:
            if record["agent"] == name and "error" not in record:
                event = record["event"]
                of_key.setdefault(record["key"], []).append((record["turn"], event.get("v", event.get("z"))))
        return {key: sorted(of) for key, of in of_key.items()}

    assert turns("callable") == {("a", False): [(1, 1)], ("b", True): [(1, 2)], ("a", True): [(1, 3)]}
    assert turns("selector") == {"A": [(1, 1), (2, 3)], "B": [(1, 2)], "N": [(1, 4)]}
    assert turns("field") == {"a": [(1, 1), (2, 3)], "b": [(1, 2)]}
    assert turns("keyed") == {2: [(1, 1), (2, 2), (3, 3)], 1: [(1, 4)]}
    assert turns("keyed again") == turns("field")
    errors = [record for record in records if "error" in record]
    assert sorted(record["agent"] for record in errors) == ["callable", "field", "keyed again"]
    assert [record["event"] for record in errors] == [{"z": 4}] * 3
    problems = sorted(record["error"] for record in errors)
    assert "a key is set ({4})" in problems[0]
    assert problems[1] == problems[2]
    assert "the event has no key field 'k'" in problems[1]
    assert "it has: z" in problems[1]


@pytest.mark.both_versions
def test_typed_rows_need_no_python_stage() -> None:
    env, agents_env = environments(parallelism=2)
    rows = env.from_collection([("a", 1, ["x", "y"], Row(0.5)), ('ü\n"', -2, None, None), ("a", 3, [], None)], ROWS)
    by_text = agents_env.from_datastream(rows, "k").apply(Echo("text")).to_datastream()
    by_number = agents_env.from_datastream(rows, "v").apply(Echo("number")).to_datastream()
    classes = operators(env)
    assert sum("AgentOperator" in name for name in classes) == 2
    assert [name for name in classes if "python" in name.lower()] == []

    records = collect(by_text, by_number)
    assert {record["kind"] for record in records} == {"Record"}
    text = {(r["key"], r["turn"]): r["event"] for r in records if r["agent"] == "text"}
    assert text == {
        ("a", 1): {"k": "a", "v": 1, "tags": ["x", "y"], "inner": {"x": 0.5}},
        ("a", 2): {"k": "a", "v": 3, "tags": [], "inner": None},
        ('ü\n"', 1): {"k": 'ü\n"', "v": -2, "tags": None, "inner": None},
    }
    assert text[("a", 1)].tags == ["x", "y"]
    assert sorted(record["key"] for record in records if record["agent"] == "number") == [-2, 1, 3]


def test_the_key_stage_of_untyped_events_is_python_and_of_a_double_too() -> None:
    env, agents_env = environments()
    doubles = env.from_collection([(1.5,)], Types.ROW_NAMED(["x"], [Types.DOUBLE()]))
    agents_env.from_datastream(doubles, "x").apply(Echo)
    assert "key events" in {node["type"] for node in nodes(agents_env)}
    assert any("python" in name.lower() for name in operators(env))


def test_a_row_without_the_field_is_said_at_once() -> None:
    env, agents_env = environments()
    rows = env.from_collection([("a", 1, None, None)], ROWS)
    with pytest.raises(UnknownNameError, match=r"unknown key field 'kk' .*did you mean 'k'"):
        agents_env.from_datastream(rows, "kk")
