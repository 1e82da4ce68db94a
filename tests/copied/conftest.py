"""A run of an agent with some tools, for programs in the words of other products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flink_skills import Agent, AgentsExecutionEnvironment, ToolSpec, tool_set
from flink_skills.testing import calls
from tests.kit.models import Script, scripted_provider


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted_provider("copied") as use:
        yield use


class Run:
    """A run of an agent with some tools, whose model makes some calls, each in one request."""

    def __init__(self, script: Script, tools: Any, *made: Any, event: Any = "an event", **attributes: Any) -> None:
        def declared(self: Any) -> Any:
            # Clients belong into the worker.
            return tools() if callable(tools) else tools

        steps = [*(calls(each, prefix=f"c{number}") for number, each in enumerate(made)), "done"]
        model = script(lambda request: steps[sum(type(m).__name__ == "ToolMessage" for m in request.messages)])
        env = AgentsExecutionEnvironment.get_execution_environment()
        for key, value in {"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}.items():
            env.get_config().set(key, value)
        agent = type("Lab", (Agent,), {"model": "copied:any", "tools_of_lab": tool_set(declared), **attributes})
        out = env.from_list([event], lambda value: "k").apply(agent)
        assert (out.to_list(), out.to_list("errors")) == (["done"], [])
        first, *later = model.requests
        #: The tools of the first request by name.
        self.specs: dict[str, ToolSpec] = {spec.name: spec for spec in first.tools}
        #: The results in the next requests.
        self.results: list[Any] = [request.messages[-1] for request in later]

    @property
    def texts(self) -> list[str]:
        return [str(result.content) for result in self.results]
