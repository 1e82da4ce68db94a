"""Agents: their declarations, plans, chat models and the turn loop."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.agents.declare.answers import AnswerType as AnswerType
    from flink_skills.agents.declare.declaration import read_declaration as read_declaration
    from flink_skills.agents.open.open_agent import OpenAgent as OpenAgent
    from flink_skills.agents.open.plan_opening import open_plan as open_plan
    from flink_skills.agents.open.redaction import Redactor as Redactor
    from flink_skills.agents.plan.compilation import compile_plan as compile_plan
    from flink_skills.agents.plan.declarative import DeclarativeAgent as DeclarativeAgent
    from flink_skills.agents.plan.plan import load_agent as load_agent
    from flink_skills.agents.plan.spec import AgentSpec as AgentSpec
    from flink_skills.agents.state.codec import STATE_VERSION as STATE_VERSION
    from flink_skills.agents.state.codec import decode as decode
    from flink_skills.agents.state.codec import encode as encode
    from flink_skills.agents.state.codec import message_from_json as message_from_json
    from flink_skills.agents.state.codec import message_to_json as message_to_json
    from flink_skills.agents.state.event import event_text as event_text
    from flink_skills.agents.state.files import event_files as event_files
    from flink_skills.agents.state.files import stage_files as stage_files
    from flink_skills.agents.state.files import without_data as without_data
    from flink_skills.agents.state.keys import key_failure as key_failure
    from flink_skills.agents.state.keys import key_failure_text as key_failure_text
    from flink_skills.agents.state.keys import key_from_text as key_from_text
    from flink_skills.agents.state.keys import key_to_text as key_to_text
    from flink_skills.agents.state.session import NO_CONVERSATION as NO_CONVERSATION
    from flink_skills.agents.state.session import KeptConversation as KeptConversation
    from flink_skills.agents.state.session import Session as Session
    from flink_skills.agents.state.session import SessionOp as SessionOp
    from flink_skills.agents.state.waits import Answer as Answer
    from flink_skills.agents.state.waits import WaitChange as WaitChange
    from flink_skills.agents.state.waits import WaitOperation as WaitOperation
    from flink_skills.agents.turn.local import run_events as run_events
    from flink_skills.agents.turn.local import run_list as run_list
    from flink_skills.agents.turn.steps import Apart as Apart
    from flink_skills.agents.turn.steps import CallIds as CallIds
    from flink_skills.agents.turn.steps import Steps as Steps
    from flink_skills.agents.turn.steps import is_apart as is_apart
    from flink_skills.agents.turn.turn import Turn as Turn
    from flink_skills.agents.turn.turn_record import TurnOutcome as TurnOutcome
    from flink_skills.agents.turn.turn_record import TurnStart as TurnStart
    from flink_skills.agents.turn.turn_record import TurnStatus as TurnStatus
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
