"""Tests of agents and of extensions: scripted chat models, in process and as a real HTTP server, and contract tests.

    from flink_skills.testing import Reply, ScriptedModel, ScriptedModelServer

Inherit from :class:`ChatModelContract`, :class:`SkillSourceContract` or :class:`ExecutionBackendContract` to test a
chat model, a source of skills or an execution backend.

The server needs the extra ``http``. :class:`SkillSourceContract` and :class:`ExecutionBackendContract` need ``pytest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.testing.chat_models import ChatModelContract as ChatModelContract
    from flink_skills.testing.execution import ExecutionBackendContract as ExecutionBackendContract
    from flink_skills.testing.model_server import ScriptedModelServer as ScriptedModelServer
    from flink_skills.testing.scripted_model import Answer as Answer
    from flink_skills.testing.scripted_model import ScriptedModel as ScriptedModel
    from flink_skills.testing.scripted_model import call as call
    from flink_skills.testing.scripted_model import calls as calls
    from flink_skills.testing.scripts import Call as Call
    from flink_skills.testing.scripts import Reply as Reply
    from flink_skills.testing.scripts import Rule as Rule
    from flink_skills.testing.scripts import Script as Script
    from flink_skills.testing.scripts import load_script as load_script
    from flink_skills.testing.sources import SkillSourceContract as SkillSourceContract

_HOMES = {
    "Answer": "scripted_model",
    "Call": "scripts",
    "ChatModelContract": "chat_models",
    "ExecutionBackendContract": "execution",
    "Reply": "scripts",
    "Rule": "scripts",
    "Script": "scripts",
    "ScriptedModel": "scripted_model",
    "ScriptedModelServer": "model_server",
    "SkillSourceContract": "sources",
    "call": "scripted_model",
    "calls": "scripted_model",
    "load_script": "scripts",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
