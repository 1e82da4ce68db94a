"""The plug-in point for chat models: one small base class."""

from __future__ import annotations

from abc import ABC, abstractmethod

from flink_skills.agents.messages import ModelRequest, ModelResponse

__all__ = ["ChatModel"]


class ChatModel(ABC):
    """A chat model: a request goes in, text and tool calls come out.

    One instance serves all turns of a worker at once, so it keeps nothing about a conversation: a
    request carries everything. It is used on one event loop.

        class Echo(ChatModel):
            name = "echo"

            async def request(self, request: ModelRequest) -> ModelResponse:
                return ModelResponse(text=request.messages[-1].content)
    """

    name: str
    """What logs, metrics and errors call the model, such as ``openai:gpt-x``. Holds no secret."""

    @abstractmethod
    async def request(self, request: ModelRequest) -> ModelResponse:
        """Ask the model once.

        Never tries again by itself: the turn loop does, and counts. The only error that leaves is
        :class:`~flink_skills.errors.ModelError`, ``retryable`` where the same request may succeed later
        (408, 409, 429, 5xx, broken connections, timeouts). What the *model* did wrong, such as a call of a
        tool that does not exist, is no error but part of the response. Cancelling must end the request.
        """

    async def close(self) -> None:
        """Release connections. Called once, when no request is under way; may be called again."""
        return
