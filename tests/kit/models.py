"""Models that follow a script: in the process of a test, and as servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from flink_skills.models import ModelRequest, Provider, ToolMessage, register_provider, unregister_provider
from flink_skills.testing import Reply, Rule, ScriptedModel, ScriptedModelServer

__all__ = ["Script", "ServerFactory", "model_servers", "offered", "results", "scripted_provider"]

#: Takes the answers (a list, or a function of the request) and returns the model that gives them.
Script = Callable[[Any], ScriptedModel]
#: Takes a script and options of :class:`ScriptedModelServer`.
ServerFactory = Callable[..., ScriptedModelServer]


@contextmanager
def scripted_provider(name: str, *, strategies: bool = False) -> Iterator[Script]:
    """Have models of the provider ``name`` answer by the latest script meanwhile."""

    def use(answers: Any) -> ScriptedModel:
        model = ScriptedModel(answers)
        register_provider(
            Provider(name, lambda setup, config: model, needs_model=False, strategies=strategies), replace=True
        )
        return model

    use(lambda request: "an answer")
    try:
        yield use
    finally:
        unregister_provider(name)


@contextmanager
def model_servers() -> Iterator[ServerFactory]:
    """Start servers by ``serve(Reply("hi"))`` or any other script; they stop at the end."""
    with ExitStack() as stack:

        def serve(script: Any = None, **options: Any) -> ScriptedModelServer:
            if script is None or isinstance(script, Reply):
                script = [Rule(script or Reply("ok"))]
            server = ScriptedModelServer(script, **options).start()
            stack.callback(server.stop)
            return server

        yield serve


def results(asked: ScriptedModel | ModelRequest, number: int = -1) -> list[str]:
    """Return the results of tools in a request. ``number`` is that of a request of the model."""
    request = asked if isinstance(asked, ModelRequest) else asked.requests[number]
    return [message.content for message in request.messages if isinstance(message, ToolMessage)]


def offered(asked: ScriptedModel | ModelRequest, number: int = -1) -> list[str]:
    """Return the names of the tools in a request. ``number`` is that of a request of the model."""
    request = asked if isinstance(asked, ModelRequest) else asked.requests[number]
    return [spec.name for spec in request.tools]
