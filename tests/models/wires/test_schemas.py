"""OpenAI's strict mode is requested only for schemas that it accepts, and tools of any schema reach each provider."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flink_skills import ToolSpec
from flink_skills.models import JsonActions, ModelRequest, UserMessage, is_strict, schema_name, tool_schema
from flink_skills.models.wires import AnthropicMessages, ChatCompletions, Responses
from flink_skills.testing import ScriptedModel
from tests.kit.strict_servers import check_request

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


TEXT = {"type": "string"}
FILE = {"type": "object", "properties": {"path": TEXT, "mode": TEXT}, "required": ["path"]}
LINK = {"type": "object", "properties": {"url": TEXT, "mode": {"type": "integer"}}, "required": ["url", "mode"]}
BOTH = {"path": TEXT, "mode": {"anyOf": [TEXT, {"type": "integer"}]}, "url": TEXT}
OF_ANY_DRAFT = [
    {},
    {"type": "object"},
    {"type": "object", "properties": None, "required": None},
    {"properties": {"a": TEXT}},
    {"type": ["object", "null"], "properties": {"a": TEXT}},
    {"type": "string"},
    {"oneOf": [FILE, LINK]},
    {"type": "object", "anyOf": [FILE, LINK, {"type": "null"}], "description": "Where."},
    {"allOf": [FILE, {"$ref": "#/$defs/link"}], "$defs": {"link": LINK}},
    {"$ref": "#/definitions/node", "definitions": {"node": {"oneOf": [FILE, {"$ref": "#/definitions/node"}]}}},
    {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"type": "object", "properties": {}, "not": {"required": ["a"]}, "enum": [{}]},
    {"type": "object", "oneOf": None, "anyOf": "x", "allOf": [True, None]},
]


@pytest.mark.parametrize("schema", OF_ANY_DRAFT, ids=range(len(OF_ANY_DRAFT)))
@pytest.mark.parametrize("wire", [ChatCompletions, Responses, AnthropicMessages])
async def test_a_tool_of_any_schema_reaches_each_provider(wire: Any, schema: Any) -> None:
    request = ModelRequest("s", [UserMessage("q")], [ToolSpec("look", "Looks.", schema)])
    check_request(json.loads(wire("m", "m").body(request, {}, stream=False)))
    # The strategy json describes the tool in the prompt and in the schema of the action.
    await JsonActions(ScriptedModel(lambda request: "x")).request(request)


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (FILE, FILE),
        (
            {"oneOf": [{**FILE, "required": ["path", "mode"]}, LINK]},
            {
                "type": "object",
                "properties": BOTH,
                "required": ["mode"],
                "description": "Give the arguments of one of these: mode, path; mode, url.",
            },
        ),
        ({"allOf": [FILE, LINK]}, {"type": "object", "properties": BOTH, "required": ["path", "mode", "url"]}),
        (
            {"$ref": "#/$defs/f", "$defs": {"f": FILE}},
            {"$defs": {"f": FILE}, "type": "object", "properties": FILE["properties"], "required": ["path"]},
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {
                "type": "object",
                "properties": {"a": TEXT},
                "description": "Give the arguments of one of these: a; b.",
            },
        ),
        (
            holding({"type": "array", "items": [TEXT, {"type": "any"}], "additionalItems": False, "enum": None}),
            holding({"type": "array", "items": {"anyOf": [TEXT, {}]}}),
        ),
        (
            holding({"type": "number", "minimum": 1, "exclusiveMinimum": True, "required": True, "default": None}),
            holding({"type": "number", "default": None, "exclusiveMinimum": 1}),
        ),
        (
            holding(
                {
                    **{"type": "STRING", "minLength": "3", "maxLength": -1, "title": 5, "description": ["x"]},
                    **{"uniqueItems": "true", "pattern": None, "examples": "x", "multipleOf": 0, "minimum": 1},
                }
            ),
            holding({"type": "string", "minimum": 1}),
        ),
        (holding({"type": 5, "required": ["a", "a"]}), holding({"required": ["a"]})),
        (holding({"type": [["x"], "string", "string"], "enum": "x"}), holding({"type": ["string"]})),
        (
            holding({"properties": {"type": True, "no": False}}),
            holding({"properties": {"type": {}, "no": {"not": {}}}}),
        ),
    ],
)
def test_the_schema_that_is_sent(schema: Any, sent: Any) -> None:
    assert tool_schema(schema) == sent


@pytest.mark.parametrize(
    "reference",
    ["https://example.com/address.json", "#/$defs/none", "address", "#/properties/a/b", "#/$defs/f~1g/x", 5],
)
def test_a_reference_to_nothing_is_omitted(reference: Any) -> None:
    about = {"$ref": reference, "description": "Where it goes."}
    sent = tool_schema({**holding({"type": "array", "items": about}), "$defs": {"f/g": TEXT}})
    assert sent == {**holding({"type": "array", "items": {"description": "Where it goes."}}), "$defs": {"f/g": TEXT}}


@pytest.mark.parametrize("reference", ["#", "#/$defs/f~1g", "#/%24defs/f~1g", "#/$defs/g/anyOf/1", "#/properties/a"])
def test_a_reference_to_a_part_is_sent(reference: str) -> None:
    schema = {**holding({"$ref": reference}), "$defs": {"f/g": TEXT, "g": {"anyOf": [TEXT, {"type": "null"}]}}}
    assert tool_schema(schema) == schema


def test_names_that_anthropic_rejects_are_replaced() -> None:
    schema = {"type": "object", "properties": {"order id": TEXT, "b": TEXT}, "required": ["order id"]}
    request = ModelRequest("s", [UserMessage("q")], [ToolSpec("look", "Looks.", schema)])
    sent = json.loads(AnthropicMessages("m", "m").body(request, {}, stream=False))["tools"][0]["input_schema"]
    assert (list(sent["properties"]), sent["required"]) == (["order_id", "b"], ["order_id"])


def test_a_hostile_schema_is_merged_in_bounded_time() -> None:
    many = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{m}"} for m in range(40)]} for n in range(40)}
    assert tool_schema({"$ref": "#/$defs/d0", "$defs": many})["properties"] == {}
    deep: Any = {}
    for _ in range(500):
        deep = {"anyOf": [deep, deep]}
    assert tool_schema(deep)["properties"] == {}
