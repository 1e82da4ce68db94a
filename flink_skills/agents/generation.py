"""What the turns of an open agent use: its models, and the skills and tools of each, as of one moment.

A generation never changes. When skills are refreshed there is a new one; a turn keeps the one that it began with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flink_skills.agents.answers import AnswerType
from flink_skills.agents.messages import Message, ModelRequest
from flink_skills.agents.models.base import ChatModel
from flink_skills.agents.plan import AgentPlan, ModelPlan
from flink_skills.agents.prompt import Prompt
from flink_skills.errors import TurnError, UnknownNameError
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.tools import ShellRunner, ToolSet, core_tools
from flink_skills.tools.base import Tool, ToolSpec
from flink_skills.tools.function import FunctionTool

__all__ = ["Generation", "GenerationParts", "ModelRuntime", "effective_names", "effective_view"]


@dataclass(frozen=True)
class ModelRuntime:
    """One chat model of an open agent, with what it may see.

    ``tools`` holds exactly what this model may call, and ``view`` the skills that it may load: a filter is
    enforced there, whatever a prompt or a model says.
    """

    name: str
    chat_model: ChatModel
    view: SkillView
    tools: ToolSet
    prompt: Prompt
    system: str
    settings: Mapping[str, Any]
    default_answer: AnswerType
    timeout: float
    specs: Sequence[ToolSpec]
    workspace_tools: frozenset[str]

    def answer_type(self, output_type: Any) -> AnswerType:
        """The answer type of a chat; ``...`` means the agent's own."""
        return self.default_answer if output_type is ... else AnswerType.of(output_type)

    def request(self, messages: Sequence[Message], answer_type: AnswerType) -> ModelRequest:
        return ModelRequest(
            system=self.system,
            messages=messages,
            tools=self.specs,
            output_schema=answer_type.schema,
            settings=self.settings,
            timeout=self.timeout,
        )

    def uses_workspace(self, tool: str) -> bool:
        return tool in self.workspace_tools


@dataclass(frozen=True)
class GenerationParts:
    """What is the same in all generations of an open agent."""

    plan: AgentPlan
    chat_models: Mapping[str, ChatModel]
    own_tools: Mapping[str, FunctionTool]
    shell: ShellRunner | None
    default_answer: AnswerType
    timeout: float


class Generation:
    """Models by name, as they are while the skills do not change. ``number`` is the manager's."""

    def __init__(self, parts: GenerationParts, manager: AgentSkillManager) -> None:
        """Raises :class:`UnknownNameError` for a name in ``skill_names`` that no source has (any more)."""
        self._agent_id = parts.plan.agent_id
        self.number = manager.generation
        self.models: Mapping[str, ModelRuntime] = {
            model.name: _open(parts, manager, model) for model in parts.plan.models
        }
        self._without_model = None if self.models else _open(parts, manager, None)

    def model(self, name: str | None) -> ModelRuntime:
        """The open chat model ``name``, or the agent's first."""
        if name is None:
            for model in self.models.values():
                return model
            raise TurnError(
                f"agent {self._agent_id} has no chat model, and ctx.chat needs one: declare a @chat_model_setup"
            )
        if name not in self.models:
            raise UnknownNameError("chat model", name, self.models, place=f"agent {self._agent_id}")
        return self.models[name]

    def tool_scope(self, name: str | None) -> ModelRuntime:
        """Whose tools ``ctx.call_tool`` may call: those of a chat model, or all of an agent without models."""
        if name is None and self._without_model is not None:
            return self._without_model
        return self.model(name)


def effective_names(plan: AgentPlan, manager: AgentSkillManager) -> list[str]:
    """The skills that any model of the agent may load, sorted. Raises as :func:`effective_view` does."""
    models: list[ModelPlan | None] = [*plan.models] or [None]
    return sorted({name for model in models for name in effective_view(plan, manager, model).names})


def effective_view(plan: AgentPlan, manager: AgentSkillManager, model: ModelPlan | None) -> SkillView:
    """The skills that ``model`` may load (None: an agent without models).

    Raises :class:`UnknownNameError`, which names the model, for a name in ``skill_names`` that no source has.
    """
    try:
        return manager.view(model.skill_names if model is not None else None)
    except UnknownNameError as error:
        raise UnknownNameError(
            "skill",
            error.name,
            [skill.name for skill in manager.get_skills()],
            place=f"skill_names of chat model {model.name if model else ''!r} of agent {plan.agent_id}",
        ) from error


def _open(parts: GenerationParts, manager: AgentSkillManager, plan: ModelPlan | None) -> ModelRuntime:
    view = effective_view(parts.plan, manager, plan)
    chosen = plan.tools if plan is not None and plan.tools is not None else tuple(parts.own_tools)
    tools: list[Tool] = [*core_tools(view, parts.shell), *(parts.own_tools[tool] for tool in chosen)]
    prompt = Prompt(**parts.plan.prompts[plan.prompt]) if plan is not None and plan.prompt else Prompt()
    toolset = ToolSet(tools)
    return ModelRuntime(
        name=plan.name if plan is not None else "",
        chat_model=parts.chat_models[plan.name] if plan is not None else _NoModel(),
        view=view,
        tools=toolset,
        prompt=prompt,
        system="\n\n".join(part for part in (prompt.system.strip(), view.menu()) if part),
        settings=plan.setup.settings if plan is not None else {},
        default_answer=parts.default_answer,
        timeout=parts.timeout,
        specs=toolset.specs(),
        workspace_tools=frozenset(tool.spec.name for tool in tools if tool.uses_workspace),
    )


class _NoModel(ChatModel):
    """Stands for the model of an agent that has none."""

    name = "none"

    async def request(self, request: ModelRequest) -> Any:
        raise TurnError("this agent has no chat model")
