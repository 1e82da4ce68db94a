"""The base class of the strategies, which wrap a model."""

from __future__ import annotations

from abc import abstractmethod

from flink_skills.agents.models.base import ChatModel, OnQuota
from flink_skills.agents.state.messages import ModelRequest

__all__ = ["WrappedModel"]


class WrappedModel(ChatModel):
    """A model that passes its requests to ``model`` in another form."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.name = model.name
        self.accepts = model.accepts

    @property
    def on_quota(self) -> OnQuota | None:
        """The listener of the wrapped model."""
        return self.model.on_quota

    @on_quota.setter
    def on_quota(self, on_quota: OnQuota | None) -> None:
        self.model.on_quota = on_quota

    @abstractmethod
    def sent(self, request: ModelRequest) -> ModelRequest:
        """Return the request that the wrapped model receives for ``request``."""

    async def close(self) -> None:
        await self.model.close()
