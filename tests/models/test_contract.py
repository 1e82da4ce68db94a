"""The shipped contract holds for every model that we ship."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flink_skills.models import (
    ChatModel,
    ModelRequest,
    ModelResponse,
    ModelSetup,
    OfflineModel,
    ToolCall,
    Usage,
    create_model,
)
from flink_skills.testing import Call, ChatModelContract, Reply, Rule, ScriptedModel, ScriptedModelServer


class TestOffline(ChatModelContract):
    def create(self) -> ChatModel:
        return OfflineModel()


class TestScripted(ChatModelContract):
    def create(self) -> ChatModel:
        return ScriptedModel(lambda request: "ok")


class OverTheWire(ChatModelContract):
    provider = ""
    strategy: str | None = None

    @pytest.fixture(autouse=True)
    def serve(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("TEST_MODEL_KEY", "k")
        tools = (Call("lookup", {"key": "a"}), Call("lookup", {"key": "b"}))
        with ScriptedModelServer([Rule(Reply("ok"), messages=1), Rule(Reply(tool_calls=tools))]) as server:
            self.server = server
            yield

    def create(self) -> ChatModel:
        url = self.server.origin if self.provider == "anthropic" else self.server.url
        setup = ModelSetup(self.provider, "m", base_url=url, api_key_env="TEST_MODEL_KEY", strategy=self.strategy)  # type: ignore[arg-type]
        return create_model(setup)


class TestOpenAI(OverTheWire):
    provider = "openai"


class TestResponses(OverTheWire):
    provider = "openai-responses"


class TestAnthropic(OverTheWire):
    provider = "anthropic"


class TestJsonStrategy(OverTheWire):
    provider = "openai-compatible"
    strategy = "json"


@pytest.mark.parametrize(
    "bad",
    [
        ModelResponse("no usage"),
        ModelResponse("", (ToolCall("", "t", {}),), Usage(requests=1)),
        ModelResponse("", (ToolCall("1", "t", {}), ToolCall("1", "t", {})), Usage(requests=1)),
    ],
    ids=["usage", "no id", "same ids"],
)
def test_the_contract_finds_a_model_that_breaks_it(bad: ModelResponse) -> None:
    class Bad(ChatModel):
        name = "bad"

        async def request(self, request: ModelRequest) -> ModelResponse:
            return bad

    class Contract(ChatModelContract):
        def create(self) -> ChatModel:
            return Bad()

    with pytest.raises(AssertionError):
        Contract().test_it_answers_a_question()
