"""Tests of agents and of extensions: scripted chat models, in process and as a real HTTP server, and contract tests.

    from flink_skills.testing import Reply, ScriptedModel, ScriptedModelServer

Inherit from :class:`ChatModelContract`, :class:`SkillSourceContract` or :class:`ExecutionBackendContract` to test a
chat model, a source of skills or an execution backend.

The server needs the extra ``http``. :class:`SkillSourceContract` and :class:`ExecutionBackendContract` need ``pytest``.
"""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.testing.chat_models import ChatModelContract as ChatModelContract
    from flink_skills.testing.chat_models import ScriptedModel as ScriptedModel
    from flink_skills.testing.chat_models import call as call
    from flink_skills.testing.chat_models import calls as calls
    from flink_skills.testing.execution import ExecutionBackendContract as ExecutionBackendContract
    from flink_skills.testing.model_server import ScriptedModelServer as ScriptedModelServer
    from flink_skills.testing.scripts import Call as Call
    from flink_skills.testing.scripts import Reply as Reply
    from flink_skills.testing.scripts import Rule as Rule
    from flink_skills.testing.scripts import Script as Script
    from flink_skills.testing.scripts import load_script as load_script
    from flink_skills.testing.sources import SkillSourceContract as SkillSourceContract
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
