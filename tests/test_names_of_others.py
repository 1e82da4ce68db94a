"""Names and forms of Apache Flink Agents and of trpc-agent: each works, or its error says what to use."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flink_skills
from flink_skills import Agent, PlanError, ResourceDescriptor, ResourceName, chat_model_setup, tool_set
from flink_skills.agents import compile_plan
from flink_skills.tools import ToolContext

_PARTS = Path(__file__).with_name("names_of_others.txt").read_text().split("\n\n")
FLINK_AGENTS, TRPC, MODELS = (part.partition(":\n")[2].split() for part in _PARTS)


@pytest.mark.parametrize("name", [*FLINK_AGENTS, *TRPC])
@pytest.mark.parametrize("module", ["flink_skills", "flink_skills.tools"])
def test_a_name_is_ours_or_has_advice(module: str, name: str) -> None:
    if module == "flink_skills.tools" and name not in TRPC:
        return
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        assert str(error).startswith(f"{module} has no {name}: ")
    else:
        assert found is not None


@pytest.mark.parametrize("name", MODELS)
def test_a_name_of_a_chat_model_is_ours_or_has_advice(name: str) -> None:
    try:
        found = getattr(ResourceName.ChatModel, name)
    except AttributeError as error:
        assert str(error).startswith(f"ResourceName.ChatModel has no {name}: ")
    else:
        assert found.rpartition(".")[2] in ("connection", "setup")


@pytest.mark.parametrize("name", ["EmbeddingModel", "VectorStore", "SKILLS"])
def test_other_resources_have_advice(name: str) -> None:
    with pytest.raises(AttributeError, match=f"ResourceName has no {name}: "):
        getattr(ResourceName, name)


def test_a_misspelled_resource_has_the_nearest_name() -> None:
    with pytest.raises(AttributeError, match="did you mean OPENAI_SETUP"):
        ResourceName.ChatModel.OPENAI_SETUPS  # noqa: B018


@pytest.mark.parametrize(
    "name", ["OPENAI_COMPLETIONS_SETUP", "OPENAI_RESPONSES_SETUP", "VLLM_SETUP", "AZURE_OPENAI_SETUP"]
)
def test_a_setup_by_the_name_of_flink_agents_compiles(name: str) -> None:
    class Desk(Agent):
        @chat_model_setup
        @staticmethod
        def model() -> ResourceDescriptor:
            return ResourceDescriptor(
                clazz=getattr(ResourceName.ChatModel, name), model="m", base_url="https://models.example.org/v1"
            )

    assert compile_plan(Desk).models


@pytest.mark.parametrize(
    ("name", "advice"),
    [("session", "context.state"), ("session_state", "context.state"), ("agent_context", "context.state")],
)
def test_attributes_of_the_context_of_a_tool_have_advice(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"ToolContext has no attribute '{name}': .*{advice}"):
        getattr(ToolContext(), name)


def test_an_error_inside_a_declaration_is_its_own() -> None:
    class Desk(Agent):
        @tool_set
        def tools(self) -> Any:
            return len(5)  # type: ignore[arg-type]

    with pytest.raises(PlanError, match=r"@tool_set tools\(\) failed: TypeError: object of type 'int' has no len"):
        compile_plan(Desk)


#: Made by the runtime only, or an error.
NOT_MADE = {"AgentEvent", "Record", "AgentPlan", "ApprovalRequest", "ToolContext", "Option"}


def public_constructors() -> Iterator[type]:
    for module in ("flink_skills", "flink_skills.tools.web", "flink_skills.tools.mcp", "flink_skills.testing"):
        package = importlib.import_module(module)
        for name in package.__all__:
            found = getattr(package, name)
            if not inspect.isclass(found) or issubclass(found, (Exception, tuple)) or name in NOT_MADE:
                continue
            if any(each.default not in (each.empty, None) for each in inspect.signature(found).parameters.values()):
                yield found


SAMPLES = {
    "approved": True, "name": "n", "description": "d", "instructions": "i", "content": "c", "severity": "error",
    "code": "c", "message": "m", "text": "t", "url": "http://example.org", "title": "t", "query": "q", "command": "c",
    "server_params": "x", "connection_params": "http://example.org", "field": "f", "models": {"a": "b"}, "default": "b",
    "replies": [], "script": [], "data": b"x", "media_type": "image/png",
}  # fmt: skip


#: Arguments that a class needs although each has a default.
ALSO = {"McpClientCredentials": {"client_secret": "${env:SECRET}", "issuer": "https://login.example.org"}}


@pytest.mark.parametrize("made", [*public_constructors()], ids=lambda cls: cls.__name__)
def test_none_is_the_default_of_each_argument_of_a_public_constructor(made: type) -> None:
    parameters = inspect.signature(made).parameters.values()
    defaults = [each for each in parameters if each.default not in (each.empty, None)]
    required = [each.name for each in parameters if each.default is each.empty and each.kind not in (2, 4)]
    given = {name: SAMPLES.get(name, "x") for name in required} | ALSO.get(made.__name__, {})
    first = made(**given)
    for each in defaults:
        if each.name in given:
            continue
        again = made(**given, **{each.name: None})
        assert type(again) is type(first)
        if hasattr(first, each.name):
            assert type(getattr(again, each.name)) is type(getattr(first, each.name)), each.name


def test_the_classes_are_found() -> None:
    names = {cls.__name__ for cls in public_constructors()}
    assert {"WebFetchTool", "ToolResult", "Prompt", "McpStdioServerParameters"} <= names
    assert flink_skills.FunctionTool.__name__ not in names, "its defaults are None"
