"""Keys in files: a new key is used without a restart, and a wrong one stays an error that names its file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiohttp import web

from flink_skills.errors import ConfigError, ModelError
from flink_skills.models import ModelRequest, ModelSetup, UserMessage, create_model
from flink_skills.telemetry import TextDelta
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.kit.waiting import until
from tests.models.conftest import ModelFactory

PROVIDERS = ["openai", "openai-responses", "openai-compatible", "anthropic", "openai-chat"]
OLD, NEW = "planted-old-key-1", "planted-new-key-2"


class Guarded(ScriptedModelServer):
    """A server that accepts some keys, and repeats the others in its error."""

    def __init__(self) -> None:
        super().__init__([Rule(Reply("ok"))])
        self.accepted = {OLD}
        self.keys: list[str] = []
        self.on_request: Callable[[], object] = lambda: None

    async def _answer(self, request: web.Request, dialect: str) -> web.StreamResponse:
        key = request.headers.get("x-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.keys.append(key)
        self.on_request()
        if key in self.accepted:
            return await super()._answer(request, dialect)
        return web.json_response(
            {"error": {"message": f"wrong key: {key}", "type": "authentication_error"}}, status=401
        )


@pytest.fixture
def server() -> Iterator[Guarded]:
    with ExitStack() as stack:
        made = Guarded()
        made.start()
        stack.callback(made.stop)
        yield made


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text(f"{OLD}\n")
    return file


def renew(key_file: Path) -> None:
    """Put another file under the same name, as Kubernetes does."""
    (key_file.parent / "next").write_text(NEW)
    (key_file.parent / "next").replace(key_file)


def address(server: Guarded, provider: str) -> str:
    return server.origin if provider == "anthropic" else server.url


def request() -> ModelRequest:
    return ModelRequest("Be brief.", (UserMessage("hello"),), timeout=10)


@pytest.mark.row("K19")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_request_that_is_rejected_with_401_has_the_new_key_of_the_file(
    provider: str, streamed: bool, server: Guarded, key_file: Path, connect: ModelFactory
) -> None:
    model = connect(provider, address(server, provider), api_key_file=str(key_file))

    async def ask() -> str:
        pieces: list[str] = []
        response = await (
            model.stream(request(), lambda delta: pieces.append(delta.text) if isinstance(delta, TextDelta) else None)
            if streamed
            else model.request(request())
        )
        assert not streamed or "".join(pieces) == response.text
        return response.text

    assert await ask() == "ok"
    # After the check of the file that precedes the request, so that only the 401 can be the reason to read it.
    server.on_request = lambda: renew(key_file)
    server.accepted = {NEW}
    assert await ask() == "ok"
    assert await ask() == "ok"
    assert server.keys == [OLD, OLD, NEW, NEW]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_rejected_key_is_an_error_that_names_the_file_after_one_request(
    provider: str, server: Guarded, key_file: Path, connect: ModelFactory
) -> None:
    model = connect(provider, address(server, provider), api_key_file=str(key_file))
    server.accepted = set()
    with pytest.raises(ModelError, match=r"status 401.*check the API key in the file") as caught:
        await model.request(request())
    assert f"the file {key_file} (api_key_file)" in str(caught.value)
    assert OLD not in str(caught.value)
    assert not caught.value.retryable
    assert server.keys == [OLD]
    server.on_request = lambda: renew(key_file)
    with pytest.raises(ModelError, match="status 401") as caught:
        await model.request(request())
    assert NEW not in str(caught.value)
    assert server.keys == [OLD, OLD, NEW], "one repeat for a new key"


@pytest.mark.row("K19")
@pytest.mark.parametrize("provider", ["openai-compatible", "openai-chat"])
async def test_a_changed_file_is_used_although_the_old_key_is_accepted(
    provider: str, server: Guarded, key_file: Path, connect: ModelFactory
) -> None:
    model = connect(provider, address(server, provider), api_key_file=str(key_file))
    server.accepted = {OLD, NEW}
    assert (await model.request(request())).text == "ok"
    renew(key_file)

    async def renewed() -> bool:
        await model.request(request())
        return server.keys[-1] == NEW

    await until(renewed)


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_file_that_is_missing_or_empty_for_a_moment_keeps_the_key(
    content: str | None, server: Guarded, key_file: Path, connect: ModelFactory, caplog: pytest.LogCaptureFixture
) -> None:
    model = connect("openai", server.url, api_key_file=str(key_file))
    key_file.unlink() if content is None else key_file.write_text(content)

    async def warned() -> bool:
        assert (await model.request(request())).text == "ok"
        return "its last value stays in use" in caplog.text

    await until(warned)
    assert str(key_file) in caplog.text
    assert set(server.keys) == {OLD}


async def test_concurrent_requests_share_a_new_key(server: Guarded, key_file: Path, connect: ModelFactory) -> None:
    model = connect("openai", server.url, api_key_file=str(key_file))
    server.on_request = lambda: renew(key_file)
    server.accepted = {NEW}
    answers = await asyncio.gather(*(model.request(request()) for _ in range(20)))
    assert {answer.text for answer in answers} == {"ok"}
    assert server.keys.count(NEW) == 20
    assert server.keys.count(OLD) <= 20


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_file_without_a_key_is_an_error_at_open(provider: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name, words in (("missing", "does not exist"), ("empty", "is empty")):
        setup = ModelSetup(provider, "m", base_url="http://localhost:1", api_key_file=str(tmp_path / name))
        with pytest.raises(ConfigError, match=words) as caught:
            create_model(setup)
        assert f"{provider}:m" in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)
