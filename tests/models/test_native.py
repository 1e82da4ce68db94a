"""Examines the internals of models.native on purpose."""

from __future__ import annotations

import pytest

from flink_skills.models import AssistantMessage, ModelRequest, ModelResponse, NativeCalls, Usage, UserMessage
from flink_skills.models.native import calls_in_text
from flink_skills.testing import ScriptedModel, call, calls
from tests.models.conftest import TOOLS

OFFERED = ["load_skill", "execute_shell_command"]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "load_skill", "arguments": {"name": "a"}}',
        '  {"name": "load_skill", "parameters": {"name": "a"}}\n',
        '{"tool": "load_skill", "input": {"name": "a"}}',
        '{"tool_name": "load_skill", "args": {"name": "a"}}',
        '{"action": "load_skill", "action_input": {"name": "a"}}',
        '{"function": {"name": "load_skill", "arguments": {"name": "a"}}}',
        '{"function": "load_skill", "arguments": {"name": "a"}}',
        '{"type": "function", "function": {"name": "load_skill", "arguments": "{\\"name\\": \\"a\\"}"}}',
        '{"tool_calls": [{"function": {"name": "load_skill", "arguments": {"name": "a"}}}]}',
        '[{"name": "load_skill", "arguments": {"name": "a"}}]',
        '```json\n{"name": "load_skill", "arguments": {"name": "a"}}\n```',
        '```\n{"name": "load_skill", "arguments": {"name": "a"}}\n```\n',
        '~~~tool_call\n{"name": "load_skill", "arguments": {"name": "a"}}\n~~~',
        '<tool_call>\n{"name": "load_skill", "arguments": {"name": "a"}}\n</tool_call>',
    ],
)
def test_a_text_that_is_a_call_is_that_call(text: str) -> None:
    [found] = calls_in_text(text, OFFERED)
    assert (found.name, found.arguments) == ("load_skill", {"name": "a"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The skill is loaded with load_skill.",
        'You can write {"name": "load_skill", "arguments": {"name": "a"}} to load it.',
        'I will do this:\n```json\n{"name": "load_skill", "arguments": {"name": "a"}}\n```',
        '{"name": "load_skill", "arguments": {"name": "a"}}\nThat is how it goes.',
        '{"name": "rm_rf", "arguments": {"path": "/"}}',
        '{"name": "load_skill"}',
        '{"name": "load_skill", "severity": "high", "arguments": {}}',
        '{"severity": "high", "summary": "load_skill failed"}',
        '{"name": "load_skill", "arguments": ["a"]}',
        '[{"name": "load_skill", "arguments": {"name": "a"}}, 5]',
        "[]",
        '"load_skill"',
        '{"name": "load_skill", "arguments": {"name": "a"}',
    ],
)
def test_everything_else_stays_text(text: str) -> None:
    assert calls_in_text(text, OFFERED) == ()


@pytest.mark.parametrize(
    "text",
    [
        '[{"tool": "load_skill", "input": {"name": "a"}}, {"tool": "load_skill", "input": {"name": "b"}}]',
        '{"tool": "load_skill", "input": {"name": "a"}}\n{"tool": "load_skill", "input": {"name": "b"}}',
        '```json\n{"tool": "load_skill", "input": {"name": "a"}}\n```\n\n'
        '```json\n{"tool": "load_skill", "input": {"name": "b"}}\n```',
    ],
)
def test_several_calls_have_ids_of_their_own(text: str) -> None:
    found = calls_in_text(text, OFFERED, position=3)
    assert [c.arguments for c in found] == [{"name": "a"}, {"name": "b"}]
    assert len({c.id for c in found}) == 2
    assert calls_in_text(text, OFFERED, position=3) == found
    assert {c.id for c in calls_in_text(text, OFFERED, position=5)}.isdisjoint(c.id for c in found)


def test_line_breaks_inside_of_strings_are_forgiven() -> None:
    [found] = calls_in_text('{"tool": "execute_shell_command", "input": {"command": "a\nb"}}', OFFERED)
    assert found.arguments == {"command": "a\nb"}


def test_a_flood_of_calls_and_endless_nesting_stay_text() -> None:
    one = '{"tool": "load_skill", "input": {"name": "a"}}'
    assert len(calls_in_text(one * 256, OFFERED)) == 256
    for many in (one * 257, f"[{', '.join([one] * 257)}]", f"```\n{one}\n```\n" * 257, one + " " * (1 << 20) + one):
        assert calls_in_text(many, OFFERED) == ()
    for deep in ("[" * 100_000, '{"function":' * 100_000, '{"tool": "load_skill", "input": "' + "[" * 100_000 + '"}'):
        assert calls_in_text(deep, OFFERED) == ()


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{0}\n```~~~\n{0}\n~~~",
        "<tool_call>{0}</tool_call>\n\n<tool_calls>[{0}]</tool_calls>",
        "```tool_call {0}```\n\t```{0}```",
        "{0},\n{0};",
    ],
)
def test_blocks_one_after_the_other(text: str) -> None:
    one = '{"tool": "load_skill", "input": {"name": "a"}}'
    assert [found.name for found in calls_in_text(text.replace("{0}", one), OFFERED)] == ["load_skill"] * 2


@pytest.mark.parametrize(
    "text", ["```{0}", "<tool_call>{0}", "<tool_call>{0}</tool_calls>", "<call>{0}</call>", "```{0}```a"]
)
def test_blocks_that_are_none_stay_text(text: str) -> None:
    assert calls_in_text(text.replace("{0}", '{"tool": "load_skill", "input": {}}'), OFFERED) == ()


async def ask(response: ModelResponse, *, tools: bool = True) -> ModelResponse:
    model = NativeCalls(ScriptedModel([response]))
    messages = [UserMessage("hi"), AssistantMessage("hm"), UserMessage("go")]
    return await model.request(ModelRequest("", messages, TOOLS if tools else ()))


async def test_the_response_becomes_a_call_and_keeps_its_usage() -> None:
    text = '{"name": "load_skill", "arguments": {"name": "a"}}'
    response = await ask(ModelResponse(text, usage=Usage(3, 4, 1), finish_reason="stop"))
    assert response.text == ""
    assert response.finish_reason == "tool_calls"
    assert response.usage == Usage(3, 4, 1)
    assert response.tool_calls[0].name == "load_skill"


async def test_native_calls_go_through_untouched() -> None:
    native = calls(call("load_skill", name="a"), text='{"name": "load_skill", "arguments": {"name": "b"}}')
    assert await ask(native) is native


async def test_without_tools_json_is_an_answer() -> None:
    answer = ModelResponse('{"name": "load_skill", "arguments": {"name": "a"}}')
    assert await ask(answer, tools=False) is answer


async def test_closing_closes_the_wrapped_model() -> None:
    inner = ScriptedModel([])
    await NativeCalls(inner).close()
    assert inner.closed
