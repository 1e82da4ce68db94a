"""What tests of agents and of extensions need: scripted chat models, in process and as a real HTTP server, and a
standalone Flink cluster.

    from flink_skills.testing import Reply, ScriptedModel, ScriptedModelServer

:class:`ChatModelContract`, :class:`SkillSourceContract` and :class:`ExecutionBackendContract` are what any chat model,
any source of skills and any execution backend must keep to, as tests to inherit.

Needs the ``http`` extra (aiohttp) for the server only, Flink and ``psutil`` for the cluster only, and ``pytest`` for
:class:`SkillSourceContract` and :class:`ExecutionBackendContract`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flink_skills.testing.chat_models import ChatModelContract
    from flink_skills.testing.cluster import StandaloneCluster
    from flink_skills.testing.execution import ExecutionBackendContract
    from flink_skills.testing.flink_rest import ClusterError
    from flink_skills.testing.model_server import ScriptedModelServer
    from flink_skills.testing.scripted_model import Answer, ScriptedModel, call, calls
    from flink_skills.testing.scripts import Call, Reply, Rule, Script, load_script
    from flink_skills.testing.sources import SkillSourceContract

__all__ = [
    "Answer",
    "Call",
    "ChatModelContract",
    "ClusterError",
    "ExecutionBackendContract",
    "Reply",
    "Rule",
    "Script",
    "ScriptedModel",
    "ScriptedModelServer",
    "SkillSourceContract",
    "StandaloneCluster",
    "call",
    "calls",
    "load_script",
]

# Imported when asked for: a test of a worker should not pay for a web server.
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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
