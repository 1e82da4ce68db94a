from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from flink_skills import ToolSpec
from flink_skills.manager import MenuEntry, render_menu
from flink_skills.models import ChatModel, ModelSetup, create_model
from tests.kit.agents import isolation, open_agent, script, skill_folder
from tests.kit.models import ServerFactory, model_servers

__all__ = ["isolation", "open_agent", "script", "skill_folder"]

ModelFactory = Callable[..., ChatModel]


def tool(name: str, required: Sequence[str] = (), /, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, f"The tool {name}.", schema)


TEXT = {"type": "string"}
LOAD = tool("load_skill", ["name"], name=TEXT)
UNLOAD = tool("unload_skill", ["name"], name=TEXT)
RESOURCE = tool("load_skill_resource", ["name", "path"], name=TEXT, path=TEXT)
SHELL = tool("execute_shell_command", ["command"], command=TEXT, timeout={"type": "number"}, stdin=TEXT, cwd=TEXT)
TOOLS = (LOAD, UNLOAD, RESOURCE, SHELL)


def menu(**skills: str) -> str:
    entries = [MenuEntry(name.replace("_", "-"), description) for name, description in skills.items()]
    return "You are a tester.\n\n" + render_menu(entries, 16_000).text


@pytest.fixture
def serve() -> Iterator[ServerFactory]:
    with model_servers() as start:
        yield start


@pytest.fixture
async def connect() -> AsyncIterator[ModelFactory]:
    """Make models; they are closed after the test."""
    opened: list[ChatModel] = []

    def make(provider: str, base_url: str | None = None, **fields: Any) -> ChatModel:
        model = create_model(ModelSetup(provider, "test-model", base_url=base_url, **fields))
        opened.append(model)
        return model

    yield make
    for model in opened:
        await model.close()
