"""Chat models: the plug-in point, the registry, the strategies and the offline model.

Client libraries are imported when a model that needs them is made, never by importing this package.
"""

from __future__ import annotations

from flink_skills.agents.models.base import ChatModel
from flink_skills.agents.models.offline import OfflineModel
from flink_skills.agents.models.registry import (
    ModelSetup,
    Provider,
    check_setup,
    create_model,
    provider_names,
    register_provider,
)

__all__ = [
    "ChatModel",
    "ModelSetup",
    "OfflineModel",
    "Provider",
    "check_setup",
    "create_model",
    "provider_names",
    "register_provider",
]
