"""Chat models: the plug-in point, the registry, the strategies and the offline model.

Client libraries are imported when a model that needs them is made, never by importing this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.agents.models.base import ChatModel as ChatModel
    from flink_skills.agents.models.circuit import Admission as Admission
    from flink_skills.agents.models.circuit import Circuit as Circuit
    from flink_skills.agents.models.endings import AnswerEnd as AnswerEnd
    from flink_skills.agents.models.endings import end_of as end_of
    from flink_skills.agents.models.endings import neutral_reason as neutral_reason
    from flink_skills.agents.models.json import JsonActions as JsonActions
    from flink_skills.agents.models.matching import SkillIndex as SkillIndex
    from flink_skills.agents.models.native import NativeCalls as NativeCalls
    from flink_skills.agents.models.offline import OfflineModel as OfflineModel
    from flink_skills.agents.models.permits import Permits as Permits
    from flink_skills.agents.models.quota import Allowance as Allowance
    from flink_skills.agents.models.quota import Quota as Quota
    from flink_skills.agents.models.quota import retry_after as retry_after
    from flink_skills.agents.models.registry import Provider as Provider
    from flink_skills.agents.models.registry import check_setup as check_setup
    from flink_skills.agents.models.registry import create_model as create_model
    from flink_skills.agents.models.registry import has_listed_price as has_listed_price
    from flink_skills.agents.models.registry import provider_names as provider_names
    from flink_skills.agents.models.registry import register_provider as register_provider
    from flink_skills.agents.models.registry import unregister_provider as unregister_provider
    from flink_skills.agents.models.schemas import is_strict as is_strict
    from flink_skills.agents.models.schemas import schema_name as schema_name
    from flink_skills.agents.models.schemas import tool_schema as tool_schema
    from flink_skills.agents.models.setup import ModelSetup as ModelSetup
    from flink_skills.agents.models.shared_limits import SharedLimits as SharedLimits
    from flink_skills.agents.models.shared_limits import TokenCost as TokenCost

_HOMES = {
    "Admission": "circuit",
    "Allowance": "quota",
    "AnswerEnd": "endings",
    "ChatModel": "base",
    "Circuit": "circuit",
    "JsonActions": "json",
    "ModelSetup": "setup",
    "NativeCalls": "native",
    "OfflineModel": "offline",
    "Permits": "permits",
    "Provider": "registry",
    "Quota": "quota",
    "SharedLimits": "shared_limits",
    "SkillIndex": "matching",
    "TokenCost": "shared_limits",
    "check_setup": "registry",
    "create_model": "registry",
    "end_of": "endings",
    "has_listed_price": "registry",
    "is_strict": "schemas",
    "neutral_reason": "endings",
    "provider_names": "registry",
    "register_provider": "registry",
    "retry_after": "quota",
    "schema_name": "schemas",
    "tool_schema": "schemas",
    "unregister_provider": "registry",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
