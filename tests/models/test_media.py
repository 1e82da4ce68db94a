"""Media on the wires, and which models accept them."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest

from flink_skills import ConfigError, Media, UnknownNameError
from flink_skills.models import (
    AssistantMessage,
    ModelRequest,
    ModelSetup,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_setup,
)
from flink_skills.testing import Reply
from tests.kit.media import PDF, PNG, WAV
from tests.kit.models import ServerFactory
from tests.models.conftest import LOAD, ModelFactory

IMAGE, DOCUMENT, SOUND = Media.of(PNG, "photo.png"), Media.of(PDF, "contract.pdf"), Media.of(WAV, "call.wav")
ALL = {"media": ["image", "pdf", "audio"]}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEST_MODEL_KEY", "key")


def url(server: Any, provider: str) -> str:
    return str(server.origin if provider == "anthropic" else server.url)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("strategy", ["native", "json"])
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "openai-compatible", "anthropic", "openai-chat"])
async def test_bytes_arrive_with_the_message_that_has_them(
    provider: str, strategy: str, serve: ServerFactory, connect: ModelFactory
) -> None:
    server = serve(Reply('{"next": {"action": "answer", "arguments": {"content": "ok"}}}'))
    model = connect(
        provider,
        url(server, provider),
        strategy=strategy,
        extra={"media": ["image", "pdf"]},
        api_key_env="TEST_MODEL_KEY",
    )
    assert model.accepts == {"image", "pdf"}
    call = ToolCall("c1", "load_skill", {"name": "a"})
    messages = [
        UserMessage("What is this?", (IMAGE,)),
        AssistantMessage("", (call,)),
        ToolMessage("c1", "load_skill", "It has a document.", media=(DOCUMENT,)),
    ]
    await model.request(ModelRequest("Be brief.", messages, tools=[LOAD], timeout=10))
    [body] = server.requests
    sent = [message for message in body.get("messages") or body["input"] if message.get("role") != "system"]
    assert encoded(PNG) in str(sent[0])
    assert encoded(PDF) not in str(sent[0])
    assert "What is this?" in str(sent[0])
    assert encoded(PDF) in str(sent[2:])
    assert str(sent).count(encoded(PNG)) == 1


async def test_audio_arrives_where_the_setup_declares_it(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply("ok"))
    model = connect("openai", server.url, extra=ALL, api_key_env="TEST_MODEL_KEY")
    await model.request(ModelRequest("", [UserMessage("Listen.", (SOUND,))], timeout=10))
    [body] = server.requests
    [_, part] = body["messages"][-1]["content"]
    assert part == {"type": "input_audio", "input_audio": {"data": encoded(WAV), "format": "wav"}}


async def test_a_url_without_bytes_is_passed_on(serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply("ok"))
    model = connect("openai-compatible", server.url, extra={"media": ["image"]})
    media = Media("image/png", "a.png", 0, "https://example.org/a.png")
    await model.request(ModelRequest("", [UserMessage("Look.", (media,))], timeout=10))
    [body] = server.requests
    [_, part] = body["messages"][-1]["content"]
    assert part["image_url"]["url"] == "https://example.org/a.png"


@pytest.mark.parametrize(
    ("setup", "kinds"),
    [
        (ModelSetup("openai", "m"), {"image", "pdf"}),
        (ModelSetup("anthropic", "m"), {"image", "pdf"}),
        (ModelSetup("openai-compatible", "m", base_url="http://localhost:1/v1"), set()),
        (ModelSetup("ollama", "m"), set()),
        (ModelSetup("ollama", "m", extra={"media": ["image"]}), {"image"}),
        (ModelSetup("openai", "m", extra={"media": []}), set()),
    ],
)
async def test_what_a_model_accepts(
    setup: ModelSetup, kinds: set[str], connect: ModelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    assert connect(setup.provider, setup.base_url, extra=setup.extra).accepts == kinds


def test_a_wrong_kind_is_found_before_the_job_starts() -> None:
    with pytest.raises(UnknownNameError, match=r"'images' in model 'm': did you mean 'image'"):
        check_setup(ModelSetup("openai", "m", extra={"media": ["images"]}), place="model 'm'")
    with pytest.raises(ConfigError, match=r"model 'm': media is 'image': write a list of kinds"):
        check_setup(ModelSetup("openai", "m", extra={"media": "image"}), place="model 'm'")


PNG_URL, PDF_URL = f"data:image/png;base64,{encoded(PNG)}", f"data:application/pdf;base64,{encoded(PDF)}"
SENT: dict[str, tuple[Any, Any, Any, Any]] = {
    "openai": (
        {"type": "image_url", "image_url": {"url": PNG_URL}},
        {"type": "file", "file": {"filename": "contract.pdf", "file_data": PDF_URL}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "text", "text": "[PDF b.pdf: this API does not read it from a URL]"},
    ),
    "openai-responses": (
        {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
        {"type": "input_file", "filename": "contract.pdf", "file_data": PDF_URL},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
        {"type": "input_file", "file_url": "https://example.org/b.pdf"},
    ),
    "anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(PNG)}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": encoded(PDF)}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/b.pdf"}},
    ),
}


@pytest.mark.parametrize("provider", SENT)
async def test_media_in_messages_and_results(provider: str, serve: ServerFactory, connect: ModelFactory) -> None:
    server = serve(Reply("ok"))
    model = connect(provider, url(server, provider), api_key_env="TEST_MODEL_KEY", settings={"cache": "off"})
    linked = (
        Media("image/png", "a.png", 0, "https://example.org/a.png"),
        Media("application/pdf", "b.pdf", 0, "https://example.org/b.pdf"),
    )
    calls = (ToolCall("c1", "load_skill", {}), ToolCall("c2", "load_skill", {}))
    messages = [
        UserMessage(" ", (IMAGE, DOCUMENT)),
        AssistantMessage("", calls),
        ToolMessage("c1", "load_skill", "one", media=linked),
        ToolMessage("c2", "load_skill", "two"),
    ]
    await model.request(ModelRequest("", messages, tools=[LOAD], timeout=10))
    [body] = server.requests
    image, document, linked_image, linked_document = SENT[provider]
    sent = body.get("messages") or body["input"]
    assert sent[0]["content"] == [image, document]
    if provider == "anthropic":
        assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "tool_result"]
        shown = sent[2]["content"][0]["content"]
    elif provider == "openai":
        # Results contain only text there, and nothing may come between them.
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
        shown = sent[4]["content"]
    else:
        shown = sent[3]["output"]
    assert shown[1:] == [linked_image, linked_document]
    assert "text" in shown[0]
