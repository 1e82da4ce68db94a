"""Examines the internals of models.registry on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.models import (
    ChatModel,
    JsonActions,
    ModelRequest,
    ModelResponse,
    ModelSetup,
    NativeCalls,
    OfflineModel,
    Provider,
    ToolCall,
    Usage,
    UserMessage,
    check_setup,
    create_model,
    provider_names,
    register_provider,
    registry,
    unregister_provider,
)
from flink_skills.options import SkillConfig
from flink_skills.testing import Call, ChatModelContract, Reply, Rule, ScriptedModel, ScriptedModelServer


class Echo(ChatModel):
    name = "echo"

    async def request(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(text=str(request.messages[-1]))


def create_echo(setup: ModelSetup, config: SkillConfig) -> ChatModel:
    return Echo()


@pytest.fixture
def restore_registry() -> Iterator[None]:
    # Modules of examples register providers when they are imported.
    before = provider_names()
    yield
    for name in provider_names():
        if name not in before:
            unregister_provider(name)


def test_a_setup_survives_json() -> None:
    setup = ModelSetup(
        "openai-compatible",
        "qwen",
        base_url="http://localhost:8000/v1",
        api_key_env="MY_KEY",
        strategy="json",
        settings={"temperature": 0, "stop_sequences": ["x"]},
        extra={"headers": {"X-Team": "a"}},
    )
    assert ModelSetup.from_json(json.loads(json.dumps(setup.to_json()))) == setup
    assert ModelSetup.parse("offline").to_json() == {"provider": "offline", "model": ""}


def test_a_model_name_may_hold_colons() -> None:
    assert ModelSetup.parse("ollama:qwen2.5:1.5b").model == "qwen2.5:1.5b"


def test_an_unknown_field_of_a_setup_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'base_url'"):
        ModelSetup.from_json({"provider": "openai", "baseurl": "http://x"})


@pytest.mark.parametrize(
    ("setup", "error", "words"),
    [
        (ModelSetup("opnai", "x"), UnknownNameError, "did you mean 'openai'"),
        (ModelSetup("openai"), ConfigError, "needs the name of a model"),
        (ModelSetup("openai-compatible", "x"), ConfigError, "needs base_url"),
        (ModelSetup("openai", "x", strategy="jsn"), UnknownNameError, "'json'"),  # type: ignore[arg-type]
        (ModelSetup("openai", "x", settings={"temprature": 1}), UnknownNameError, "'temperature'"),
        (ModelSetup("openai", "x", base_url="localhost:80"), ConfigError, "http://localhost"),
        (ModelSetup("openai", "x", base_url="https://u:hunter2@h/v1"), ConfigError, "credentials"),
        (ModelSetup("openai", "x", base_url="https://h/v1?key=hunter2"), ConfigError, "credentials"),
        (ModelSetup("openai", "x", api_key_env="sk-hunter2"), ConfigError, "never the key"),
        (ModelSetup("openai", "x", api_key_file="sk-hunter2"), ConfigError, "never the key"),
        (ModelSetup("openai", "x", api_key_env="A", api_key_file="/a"), ConfigError, "omit one"),
        (
            ModelSetup("openai", "x", settings={"extra_headers": {"Authorization": "hunter2"}}),
            ConfigError,
            "looks like a credential",
        ),
        (ModelSetup("openai", "x", extra={"headers": {"X-Api-Key": "hunter2"}}), ConfigError, "credential"),
        (ModelSetup("anthropic", "x", settings={"cache": "1d"}), UnknownNameError, "there are: 1h, 5m, auto, off"),
        (ModelSetup("anthropic", "x", settings={"anthropic_cache": True}), ConfigError, "write cache=auto"),
        (ModelSetup(""), ConfigError, "needs a provider"),
    ],
)
def test_what_can_be_known_without_a_network_is_checked(setup: ModelSetup, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        check_setup(setup, place="model 'm' of agent Triage")
    assert "Triage" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "setup",
    [
        ModelSetup("offline"),
        ModelSetup("openai", "x", api_key_env="NOT_SET_ON_THE_CLIENT"),
        ModelSetup("openai", "x", api_key_file="/not/on/the/client"),
        ModelSetup("openai", "x", settings={"openai_reasoning_effort": "low", "seed": 1}),
        ModelSetup("anthropic", "x"),
        ModelSetup("ollama", "x"),
        ModelSetup("groq", "x", settings={"groq_reasoning_format": "hidden"}),
        ModelSetup("openai-responses", "x"),
    ],
    ids=lambda setup: setup.label,
)
def test_a_good_setup_passes_without_keys(setup: ModelSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    check_setup(setup)
    with pytest.raises(UnknownNameError, match="'json'"):
        check_setup(replace(setup, strategy="jsn"))  # type: ignore[arg-type]


def test_providers_that_other_code_relies_on() -> None:
    # In a new process, because examples register more when they are imported.
    code = "from flink_skills.models import provider_names; print(*provider_names())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == [
        "anthropic",
        "azure",
        "azure-responses",
        "offline",
        "ollama",
        "openai",
        "openai-compatible",
        "openai-responses",
    ]


@pytest.mark.usefixtures("restore_registry")
async def test_a_registered_provider_makes_models() -> None:
    register_provider(Provider("echo", create_echo, needs_model=False, strategies=False))
    model = create_model(ModelSetup("echo"))
    response = await model.request(ModelRequest("", [UserMessage("hi")]))
    assert "hi" in response.text
    with pytest.raises(ConfigError, match="exists already"):
        register_provider(Provider("echo", create_echo))


def test_a_provider_of_the_package_is_back_when_its_replacement_is_removed() -> None:
    register_provider(Provider("offline", create_echo, needs_model=False, strategies=False), replace=True)
    try:
        assert create_model(ModelSetup("offline")).name == "echo"
    finally:
        unregister_provider("offline")
    assert create_model(ModelSetup("offline")).name == "offline"
    unregister_provider("offline")
    assert "offline" in provider_names()


def test_an_entry_point_adds_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("third-party", f"{__name__}:create_echo", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert "third-party" in provider_names()
    model = create_model(ModelSetup("third-party", "m"))
    assert model.name == "echo"


@pytest.mark.usefixtures("restore_registry")
def test_a_missing_library_is_a_hint() -> None:
    register_provider(Provider("gone", "no_such_module_at_all:create", "install no-such-module"))
    with pytest.raises(ConfigError, match="install no-such-module"):
        create_model(ModelSetup("gone", "x"))


@pytest.mark.parametrize(
    ("option", "own", "wrapper"),
    [
        ("auto", None, NativeCalls),
        ("native", None, NativeCalls),
        ("json", None, JsonActions),
        ("json", "native", NativeCalls),
        ("auto", "json", JsonActions),
    ],
)
def test_the_strategy_is_the_setups_or_else_the_options(option: str, own: str | None, wrapper: type) -> None:
    config = SkillConfig({"skills.model.strategy": option})
    setup = ModelSetup("ollama", "x", strategy=own)  # type: ignore[arg-type]
    assert type(create_model(setup, config)) is wrapper


def test_the_offline_model_acts_in_its_own_way() -> None:
    model = create_model(ModelSetup("offline"), SkillConfig({"skills.model.strategy": "json"}))
    assert model.name == "offline"
    assert not isinstance(model, (JsonActions, NativeCalls))


def test_importing_models_imports_no_client_library() -> None:
    code = (
        "import sys, flink_skills.models as m; m.create_model(m.ModelSetup('offline'));"
        "m.check_setup(m.ModelSetup('openai', 'x'));"
        "print([n for n in ('pydantic_ai', 'openai', 'anthropic', 'aiohttp') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("openai", "OPENAI_BASE_URL"), ("anthropic", "ANTHROPIC_BASE_URL"), ("azure", "AZURE_OPENAI_ENDPOINT")],
)
def test_an_address_in_a_variable_of_a_client_is_checked(
    provider: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pydantic_ai")
    monkeypatch.setenv(variable, "https://me:S3CRET/x@host/v1")
    with pytest.raises(ConfigError, match=rf"^model {provider}:m: {variable} cannot be used: ") as raised:
        create_model(ModelSetup(provider, "m"), SkillConfig())
    assert raised.value.__context__ is None
    assert "S3CRET" not in str(raised.value)


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
