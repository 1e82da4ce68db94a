"""What tests of agents and of extensions need: scripted chat models, in process and as a real HTTP server, and a
standalone Flink cluster.

    from flink_skills.testing import Reply, ScriptedModel, ScriptedModelServer

:class:`ChatModelContract`, :class:`SkillSourceContract` and :class:`ExecutionBackendContract` are what any chat model,
any source of skills and any execution backend must keep to, as tests to inherit.

Needs the ``http`` extra (aiohttp) for the server only, Flink and ``psutil`` for the cluster only, and ``pytest`` for
:class:`SkillSourceContract` and :class:`ExecutionBackendContract`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.testing.chat_models import ChatModelContract as ChatModelContract
    from flink_skills.testing.cluster import StandaloneCluster as StandaloneCluster
    from flink_skills.testing.execution import ExecutionBackendContract as ExecutionBackendContract
    from flink_skills.testing.flink_rest import ClusterError as ClusterError
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
    "ClusterError": "flink_rest",
    "ExecutionBackendContract": "execution",
    "Reply": "scripts",
    "Rule": "scripts",
    "Script": "scripts",
    "ScriptedModel": "scripted_model",
    "ScriptedModelServer": "model_server",
    "SkillSourceContract": "sources",
    "StandaloneCluster": "cluster",
    "call": "scripted_model",
    "calls": "scripted_model",
    "load_script": "scripts",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
