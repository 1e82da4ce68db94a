"""The OpenAI client, tuned for many requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import openai
from openai.resources.chat.completions import AsyncCompletions

from flink_skills.agents.models.http_client import http_client

__all__ = ["openai_client"]


class _PlainCompletions(AsyncCompletions):
    """Chat completions whose messages and tools are sent as they are.

    The client walks every message along all the types that a message may have, to rename fields. Ours are
    plain JSON in the names of the wire already, and the walk was three quarters of the processor time of a
    request with 20 tool calls in its history.
    """

    async def create(self, *args: Any, **arguments: Any) -> Any:
        body = dict(arguments.pop("extra_body", None) or {})
        for name in ("messages", "tools"):
            value = arguments.get(name)
            if isinstance(value, list):
                # What the caller put into extra_body himself stays the last word.
                body.setdefault(name, value)
                arguments[name] = []
        return await super().create(*args, **arguments, extra_body=body)


def openai_client(
    *,
    api_key: str,
    base_url: str | None,
    headers: Mapping[str, str] | None,
    max_connections: int,
    own: bool,
) -> openai.AsyncOpenAI:
    """A client that never tries again by itself. ``own`` says that it talks to OpenAI: other hosts do not
    get to know an organization or project from the environment."""
    client = openai.AsyncOpenAI(
        api_key=api_key,
        base_url=base_url,
        organization=None if own else "",
        project=None if own else "",
        max_retries=0,
        default_headers=headers,
        http_client=http_client(openai, max_connections),
    )
    # Both attributes are cached properties, made to be kept on the instance.
    client.chat.__dict__["completions"] = _PlainCompletions(client)
    return client
