"""OpenAI's strict mode is requested only for schemas that it accepts as they are."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills.agents.models import is_strict, schema_name

CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FREE = {"type": "object", "additionalProperties": {"type": "string"}}


def holding(schema: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": {"a": schema}}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        (holding(CLOSED), True),
        (holding({"type": "array", "items": CLOSED}), True),
        (holding({"anyOf": [CLOSED, {"type": "null"}]}), True),
        ({**holding({"$ref": "#/$defs/x"}), "$defs": {"x": CLOSED}}, True),
        (FREE, False),
        ({"type": "object"}, False),
        (holding(FREE), False),
        (holding({"type": "array", "items": FREE}), False),
        (holding({"anyOf": [FREE, {"type": "null"}]}), False),
        ({**holding({"$ref": "#/$defs/x"}), "$defs": {"x": FREE}}, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        (holding({"oneOf": [CLOSED]}), False),
    ],
)
def test_strict(schema: dict[str, Any], strict: bool) -> None:
    assert is_strict(schema) is strict


@pytest.mark.parametrize(
    ("title", "name"), [("A verdict!", "A_verdict_"), ("", "answer"), ("x" * 80, "x" * 64), ("Größe", "Gr__e")]
)
def test_names_are_identifiers(title: str, name: str) -> None:
    assert schema_name({"title": title}) == name
