"""The bytes of requests, without sending them."""

from __future__ import annotations

from flink_skills.errors import ConfigError
from flink_skills.models.messages import ModelRequest
from flink_skills.models.registry import create_model, has_wire
from flink_skills.models.setup import ModelSetup, keys_not_needed
from flink_skills.models.wires.http_model import HttpModel
from flink_skills.models.wrapped import WrappedModel
from flink_skills.options import SkillConfig

__all__ = ["request_body"]


def request_body(setup: ModelSetup, request: ModelRequest, config: SkillConfig, *, stream: bool = False) -> bytes:
    """Return the body that a model of ``setup`` sends for ``request``, to the byte. No network and no key is needed.

    The request of a turn also has an ``affinity``, from which ``prompt_cache_key`` follows.

    Args:
        setup: The model, with its strategy.
        request: The request of a turn.
        config: The options of the job.
        stream: Whether the answer is requested as a stream.

    Raises:
        ConfigError: Another library sends the requests of this provider.

    >>> request_body(ModelSetup.parse("openai:gpt-x"), ModelRequest("", [UserMessage("hi")]), SkillConfig())
    b'{"model":"gpt-x","messages":[{"role":"user","content":"hi"}]}'
    """
    if has_wire(setup):
        with keys_not_needed():
            model = create_model(setup, config)
        if isinstance(model, WrappedModel) and isinstance(model.model, HttpModel):
            return model.model.body(model.sent(request), stream=stream)
    raise ConfigError(
        f"the bytes that model {setup.label} receives are not known: requests of provider {setup.provider!r} are sent "
        "by another library. choose a model of openai, openai-responses, anthropic, azure, ollama or openai-compatible"
    )
