"""Chat models: the plug-in point, the registry, the strategies and the offline model.

Client libraries are imported when a model that needs them is made, never by importing this package.
"""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.models.base import ChatModel as ChatModel
    from flink_skills.models.circuit import Admission as Admission
    from flink_skills.models.circuit import Circuit as Circuit
    from flink_skills.models.endings import AnswerEnd as AnswerEnd
    from flink_skills.models.endings import end_of as end_of
    from flink_skills.models.endings import neutral_reason as neutral_reason
    from flink_skills.models.error_bodies import pause_of as pause_of
    from flink_skills.models.json import JsonActions as JsonActions
    from flink_skills.models.messages import AssistantMessage as AssistantMessage
    from flink_skills.models.messages import Message as Message
    from flink_skills.models.messages import ModelRequest as ModelRequest
    from flink_skills.models.messages import ModelResponse as ModelResponse
    from flink_skills.models.messages import ToolCall as ToolCall
    from flink_skills.models.messages import ToolMessage as ToolMessage
    from flink_skills.models.messages import Usage as Usage
    from flink_skills.models.messages import UserMessage as UserMessage
    from flink_skills.models.messages import Verbatim as Verbatim
    from flink_skills.models.native import NativeCalls as NativeCalls
    from flink_skills.models.notices import Notice as Notice
    from flink_skills.models.notices import named_in_notice as named_in_notice
    from flink_skills.models.notices import notice_message as notice_message
    from flink_skills.models.offline import OfflineModel as OfflineModel
    from flink_skills.models.offline_rules import SkillIndex as SkillIndex
    from flink_skills.models.permits import Permits as Permits
    from flink_skills.models.permits import WorkerLimits as WorkerLimits
    from flink_skills.models.registry import Provider as Provider
    from flink_skills.models.registry import check_setup as check_setup
    from flink_skills.models.registry import create_model as create_model
    from flink_skills.models.registry import has_listed_price as has_listed_price
    from flink_skills.models.registry import provider_names as provider_names
    from flink_skills.models.registry import register_provider as register_provider
    from flink_skills.models.registry import unregister_provider as unregister_provider
    from flink_skills.models.schemas import is_strict as is_strict
    from flink_skills.models.schemas import schema_name as schema_name
    from flink_skills.models.schemas import tool_schema as tool_schema
    from flink_skills.models.setup import ModelSetup as ModelSetup
    from flink_skills.models.well_formed import MAX_VERBATIM as MAX_VERBATIM
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
