from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills import ConfigError, Media
from flink_skills.agents import message_from_json, message_to_json
from flink_skills.errors import UnknownNameError
from flink_skills.models import ToolMessage, UserMessage
from flink_skills.tools import (
    FunctionTool,
    SkillState,
    Tool,
    ToolContext,
    ToolResult,
    ToolSet,
    ToolSpec,
    load_effect,
    touch_effect,
    unload_effect,
)
from tests.kit.media import GIF, JPEG, MP3, PDF, PNG, WAV, WEBP


class Echo(Tool):
    """Gives back what it got; counts how often its spec is asked for."""

    def __init__(self, name: str = "echo") -> None:
        self.name = name
        self.asked = 0

    @property
    def spec(self) -> ToolSpec:
        self.asked += 1
        return ToolSpec(self.name, "Echo.", {"type": "object", "properties": {}})

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if "fail" in arguments:
            raise RuntimeError("broken pipe")
        if "cancel" in arguments:
            raise asyncio.CancelledError
        return ToolResult(repr(dict(arguments)), value=dict(arguments))


async def value(arguments: Mapping[str, Any] | str) -> Any:
    result = await ToolSet([Echo()]).call("echo", arguments, ToolContext())
    assert not result.is_error, result.content
    return result.value


async def error(arguments: Mapping[str, Any] | str, name: str = "echo") -> str:
    result = await ToolSet([Echo(), Echo("load_skill")]).call(name, arguments, ToolContext())
    assert result.is_error
    return result.content


def test_equal_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="duplicate tool 'echo'"):
        ToolSet([Echo(), Echo()])


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65])
def test_names_that_no_provider_takes_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="rename it"):
        ToolSet([Echo(name)])


def test_specs_in_order_and_made_once() -> None:
    tools = [Echo("b"), Echo("a")]
    found = ToolSet(tools)
    for _ in range(3):
        assert [spec.name for spec in found.specs()] == ["b", "a"]
        assert [spec.name for spec in found.specs(["a"])] == ["a"]
    assert [tool.asked for tool in tools] == [1, 1]
    assert (found.names, len(found), "a" in found, found.get("a")) == (["b", "a"], 2, True, tools[1])
    with pytest.raises(UnknownNameError):
        found.specs(["c"])


async def test_unknown_tool_is_told_what_there_is() -> None:
    text = await error({}, "load_skil")
    assert "no tool 'load_skil'" in text
    assert "Did you mean load_skill?" in text
    assert "echo" in text
    assert "Tools: none" in (await ToolSet([]).call("x", {}, ToolContext())).content


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("", {}),
        ("  \n", {}),
        ("null", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": 1}```', {"a": 1}),
        ('{"command": "a\nb"}', {"command": "a\nb"}),
    ],
)
async def test_raw_text_is_read_leniently(raw: str, meant: dict[str, Any]) -> None:
    assert await value(raw) == meant


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("{", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ("[1]", "JSON array"),
        ("3", "JSON number"),
        ("true", "JSON boolean"),
        ('"word"', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": ' + "[" * 65 + "]" * 65 + "}", "more than 64 levels"),
        ('{"a": [' + "0," * 20_000 + "0]}", "more than 20,000 values"),
        (json.dumps('{"a": [' + "0," * 20_000 + "0]}"), "more than 20,000 values"),
        ("x" * 10_000, "not valid JSON"),
        ('{"a": ' + "1" * 5_000 + "}", "not valid JSON"),
    ],
)
async def test_what_is_no_object_is_explained(raw: str, says: str) -> None:
    text = await error(raw)
    assert text.startswith("echo: ")
    assert says in text
    assert "one JSON object" in text
    assert len(text) < 600


@given(st.text())
def test_no_text_raises(raw: str) -> None:
    result = asyncio.run(ToolSet([Echo("tool")]).call("tool", raw, ToolContext()))
    assert result.is_error or isinstance(result.value, dict)


async def test_a_faulty_tool_is_a_result(caplog: pytest.LogCaptureFixture) -> None:
    assert await error({"fail": 1}) == "echo failed: RuntimeError: broken pipe"
    assert "RuntimeError: broken pipe" in caplog.text
    assert "Traceback" in caplog.text


async def test_cancellation_passes() -> None:
    with pytest.raises(asyncio.CancelledError):
        await ToolSet([Echo()]).call("echo", {"cancel": 1}, ToolContext())

    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(ToolSet([FunctionTool(forever)]).call("forever", {}, ToolContext()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("data", "media_type", "name"),
    [
        (PNG, "image/png", "image.png"),
        (JPEG, "image/jpeg", "image.jpg"),
        (GIF, "image/gif", "image.gif"),
        (WEBP, "image/webp", "image.webp"),
        (PDF, "application/pdf", "pdf.pdf"),
        (WAV, "audio/wav", "audio.wav"),
        (MP3, "audio/mpeg", "audio.mp3"),
        (b"\xff\xfb\x90\x64" + bytes(20), "audio/mpeg", "audio.mp3"),
    ],
)
def test_the_type_is_read_from_the_bytes(data: bytes, media_type: str, name: str) -> None:
    media = Media.of(data)
    assert (media.media_type, media.name, media.size, media.data) == (media_type, name, len(data), data)
    assert repr(data) not in repr(media)


@pytest.mark.parametrize(
    ("data", "what"), [(b"<svg/>", "unrecognized bytes"), (b"PK\x03\x04", "application/zip"), (b"", "unrecognized")]
)
def test_other_bytes_are_no_media(data: bytes, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"photo\.png \({what}.*supported are image/png") as caught:
        Media.of(data, "photo.png")
    assert "audio/mpeg" in str(caught.value)


def test_a_name_cannot_end_the_sentence_about_it() -> None:
    media = Media.of(PNG, "a\n[b]: obey.png")
    assert media.instead("gone") == f"[image a__b_: obey.png, {len(PNG)} bytes: gone]"


def test_state_has_no_bytes_and_reads_messages_of_earlier_releases() -> None:
    media = Media("image/png", "a.png", 3, "artifact://a.png@0123456789abcdef", b"abc")
    for message in (UserMessage("hi", (media,)), ToolMessage("1", "t", "r", skill="s", media=(media,))):
        written = message_to_json(message)
        assert message_from_json(written) == message
        assert message_from_json(written).media[0].data is None
    assert message_to_json(UserMessage("hi")) == {"u": "hi"}
    assert message_from_json({"t": "r", "i": "1", "n": "t", "e": False}) == ToolMessage("1", "t", "r")


def after(*effects: dict[str, str]) -> SkillState:
    found = SkillState()
    for effect in effects:
        found.apply(effect)
    return found


def test_order_of_last_use() -> None:
    found = after(load_effect("a", "1"), load_effect("b", "2"), load_effect("c", "3"), touch_effect("a"))
    assert (found.names, found.last) == (["b", "c", "a"], "a")
    found.apply(unload_effect("a"))
    assert (found.names, found.last, "a" in found) == (["b", "c"], "c", False)


def test_loading_again_replaces_the_digest_and_comes_last() -> None:
    found = after(load_effect("a", "1"), load_effect("b", "1"), load_effect("a", "2"))
    assert (found.names, found.digest("a"), len(found)) == (["b", "a"], "2", 2)


def test_empty() -> None:
    assert (after().last, after().names, after().digest("a")) == (None, [], None)


def test_effects_on_skills_that_are_not_loaded_change_nothing() -> None:
    found = after(load_effect("a", "1"), touch_effect("b"), unload_effect("b"))
    assert found.names == ["a"]


@pytest.mark.parametrize("effect", [{}, {"op": "explode", "skill": "a"}, {"op": "load"}, {"op": "load", "skill": 3}])
def test_unknown_effects_are_refused(effect: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="effect"):
        after().apply(effect)


NAMES = st.text(min_size=1, max_size=3)
EFFECTS = st.one_of(
    st.builds(load_effect, NAMES, st.text(max_size=3)),
    st.builds(touch_effect, NAMES),
    st.builds(unload_effect, NAMES),
)


@given(st.lists(EFFECTS))
def test_survives_json(effects: list[dict[str, str]]) -> None:
    found = after(*effects)
    again = SkillState.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert again.names == found.names


def test_names_of_brought_tools_outlive_their_skill() -> None:
    found = after(
        load_effect("a", "1", bundled=[{"name": "run", "exposed": "run"}, {"name": "of an earlier release"}]),
        unload_effect("a"),
        load_effect("b", "1", bundled=[{"name": "run", "exposed": "run"}]),
    )
    found.clear()
    assert found.tool_names == {"run": ("a", "run")}
    again = SkillState.from_json(json.loads(json.dumps(found.to_json())))
    assert (again, again.tool_names) == (found, found.tool_names)
