"""The models of a plan as a turn would have them, for looking at: nothing is started, asked or written."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flink_skills.agents.declare.answers import AnswerType
from flink_skills.agents.open.generation import Generation, GenerationParts
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.artifacts import ArtifactStore
from flink_skills.errors import ConfigError
from flink_skills.execution import IsolationReport, WorkspaceManager
from flink_skills.execution.backends.local_backend import HygieneBackend
from flink_skills.manager import SkillView
from flink_skills.models.base import ChatModel
from flink_skills.models.media import accepted_kinds
from flink_skills.models.messages import ModelRequest
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools import ShellRunner
from flink_skills.tools.base import Tool, ToolContext, ToolSpec
from flink_skills.tools.calling import CallGuard
from flink_skills.tools.services import ToolServices

__all__ = ["described_models"]


def described_models(plan: AgentPlan, views: Mapping[str, SkillView]) -> Generation:
    """The models of ``plan`` with these skills each, by name: their system texts and their tools.

    >>> described_models(plan, {"model": manager.view()}).model("model").system
    """
    config = SkillConfig(plan.options)
    parts = GenerationParts(
        plan=plan,
        permits={},
        guard=CallGuard(config),
        chat_models={model.name: _Silent(accepted_kinds(model.setup)) for model in plan.models},
        own_tools={str(spec["name"]): _Described(spec) for spec in plan.tools},
        services=ToolServices(SkillView([]), config, shell=_describing_shell(config), artifacts=_store(config)),
        default_answer=AnswerType(schema=plan.output_schema),
        timeout=config.get(SkillOptions.MODEL_TIMEOUT),
    )
    return Generation(parts, 1, views, {name for view in views.values() for name in view.names})


class _Silent(ChatModel):
    """Is never asked anything."""

    name = "none"

    def __init__(self, accepts: frozenset[str]) -> None:
        # Tools describe which media they return to the model.
        self.accepts = accepts

    async def request(self, request: ModelRequest) -> Any:
        raise NotImplementedError("the request is only looked at, and not sent")


class _Described(Tool):
    """A tool of the agent's own, as its plan describes it."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = ToolSpec(spec["name"], spec["description"], spec["parameters"])

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        raise NotImplementedError("the tool is only looked at, and not called")


def _store(config: SkillConfig) -> ArtifactStore | None:
    """Return the store of artifacts without contacting it. None also if only the cluster can open it."""
    try:
        return ArtifactStore.open(config)
    except ConfigError:
        return None  # where this is a mistake, compiling the job has reported it


def _describing_shell(config: SkillConfig) -> ShellRunner | None:
    """A shell that is never started: tools take their descriptions from its policy and its limits."""
    if not config.get(SkillOptions.SHELL_ENABLED):
        return None
    backend = HygieneBackend()
    nowhere = Path(tempfile.gettempdir()) / "flink-skills-prompt"
    return ShellRunner(backend, WorkspaceManager(nowhere), config, report=IsolationReport(backend.level, backend.name))
