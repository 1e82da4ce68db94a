"""Messages between agents and chat models, for custom chat models and for tests of agents."""

from flink_skills.models.messages import (
    AssistantMessage,
    Media,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    Verbatim,
)

__all__ = [
    "AssistantMessage",
    "Media",
    "Message",
    "ModelRequest",
    "ModelResponse",
    "ToolCall",
    "ToolMessage",
    "Usage",
    "UserMessage",
    "Verbatim",
]
