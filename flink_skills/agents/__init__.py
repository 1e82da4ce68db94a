"""Agents: their declarations, plans, chat models and the turn loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.agents.answers import AnswerType as AnswerType
    from flink_skills.agents.apart import Apart as Apart
    from flink_skills.agents.apart import is_apart as is_apart
    from flink_skills.agents.codec import STATE_VERSION as STATE_VERSION
    from flink_skills.agents.codec import decode as decode
    from flink_skills.agents.codec import encode as encode
    from flink_skills.agents.codec import message_from_json as message_from_json
    from flink_skills.agents.codec import message_to_json as message_to_json
    from flink_skills.agents.compilation import compile_plan as compile_plan
    from flink_skills.agents.declarative import DeclarativeAgent as DeclarativeAgent
    from flink_skills.agents.event import event_text as event_text
    from flink_skills.agents.files import event_files as event_files
    from flink_skills.agents.files import stage_files as stage_files
    from flink_skills.agents.files import without_data as without_data
    from flink_skills.agents.keys import key_failure as key_failure
    from flink_skills.agents.keys import key_failure_text as key_failure_text
    from flink_skills.agents.keys import key_from_text as key_from_text
    from flink_skills.agents.keys import key_to_text as key_to_text
    from flink_skills.agents.local import run_list as run_list
    from flink_skills.agents.messages import AssistantMessage as AssistantMessage
    from flink_skills.agents.messages import Message as Message
    from flink_skills.agents.messages import ModelRequest as ModelRequest
    from flink_skills.agents.messages import ModelResponse as ModelResponse
    from flink_skills.agents.messages import ToolCall as ToolCall
    from flink_skills.agents.messages import ToolMessage as ToolMessage
    from flink_skills.agents.messages import Usage as Usage
    from flink_skills.agents.messages import UserMessage as UserMessage
    from flink_skills.agents.messages import Verbatim as Verbatim
    from flink_skills.agents.notices import Notice as Notice
    from flink_skills.agents.notices import named_in_notice as named_in_notice
    from flink_skills.agents.notices import notice_message as notice_message
    from flink_skills.agents.open_agent import OpenAgent as OpenAgent
    from flink_skills.agents.plan import ModelPlan as ModelPlan
    from flink_skills.agents.plan import load_agent as load_agent
    from flink_skills.agents.plan_opening import open_plan as open_plan
    from flink_skills.agents.redaction import Redactor as Redactor
    from flink_skills.agents.session import NO_CONVERSATION as NO_CONVERSATION
    from flink_skills.agents.session import KeptConversation as KeptConversation
    from flink_skills.agents.session import Session as Session
    from flink_skills.agents.session import SessionChange as SessionChange
    from flink_skills.agents.session import SessionOp as SessionOp
    from flink_skills.agents.spec import AgentSpec as AgentSpec
    from flink_skills.agents.steps import CallIds as CallIds
    from flink_skills.agents.steps import Steps as Steps
    from flink_skills.agents.turn import ERROR_TAG as ERROR_TAG
    from flink_skills.agents.turn import AppendStep as AppendStep
    from flink_skills.agents.turn import Turn as Turn
    from flink_skills.agents.turn import TurnOutcome as TurnOutcome
    from flink_skills.agents.turn import TurnStart as TurnStart
    from flink_skills.agents.turn import TurnStatus as TurnStatus
    from flink_skills.agents.well_formed import MAX_VERBATIM as MAX_VERBATIM

_HOMES = {
    "AgentSpec": "spec",
    "AnswerType": "answers",
    "Apart": "apart",
    "AppendStep": "turn",
    "AssistantMessage": "messages",
    "CallIds": "steps",
    "DeclarativeAgent": "declarative",
    "ERROR_TAG": "turn",
    "KeptConversation": "session",
    "MAX_VERBATIM": "well_formed",
    "Message": "messages",
    "ModelPlan": "plan",
    "ModelRequest": "messages",
    "ModelResponse": "messages",
    "NO_CONVERSATION": "session",
    "Notice": "notices",
    "OpenAgent": "open_agent",
    "Redactor": "redaction",
    "STATE_VERSION": "codec",
    "Session": "session",
    "SessionChange": "session",
    "SessionOp": "session",
    "Steps": "steps",
    "ToolCall": "messages",
    "ToolMessage": "messages",
    "Turn": "turn",
    "TurnOutcome": "turn",
    "TurnStart": "turn",
    "TurnStatus": "turn",
    "Usage": "messages",
    "UserMessage": "messages",
    "Verbatim": "messages",
    "compile_plan": "compilation",
    "decode": "codec",
    "encode": "codec",
    "event_files": "files",
    "event_text": "event",
    "is_apart": "apart",
    "key_failure": "keys",
    "key_failure_text": "keys",
    "key_from_text": "keys",
    "key_to_text": "keys",
    "load_agent": "plan",
    "message_from_json": "codec",
    "message_to_json": "codec",
    "named_in_notice": "notices",
    "notice_message": "notices",
    "open_plan": "plan_opening",
    "run_list": "local",
    "stage_files": "files",
    "without_data": "files",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
