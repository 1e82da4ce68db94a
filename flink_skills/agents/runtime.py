"""An agent that is open: its code, skills, models and tools, ready for turns.

A worker opens one runtime per agent plan, and all turns share it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flink_skills.agents.agent import Agent
from flink_skills.agents.answers import AnswerType
from flink_skills.agents.declaration import Declaration, read_declaration
from flink_skills.agents.event import Record, event_text, to_plain
from flink_skills.agents.messages import Message, ModelRequest
from flink_skills.agents.models.base import ChatModel
from flink_skills.agents.models.registry import create_model
from flink_skills.agents.plan import AgentPlan, ModelPlan, load_agent
from flink_skills.agents.prompt import Prompt
from flink_skills.errors import PlanError, SkillsError, TurnError, UnknownNameError
from flink_skills.execution import WorkspaceManager
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools import ShellRunner, ToolSet, core_tools
from flink_skills.tools.base import Tool, ToolSpec
from flink_skills.tools.function import FunctionTool

__all__ = ["AgentRuntime", "ModelRuntime"]

_log = logging.getLogger("flink_skills.runtime")


@dataclass
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


class AgentRuntime:
    """An open agent. Make it with :meth:`open`, close it with :meth:`close`."""

    def __init__(
        self,
        plan: AgentPlan,
        *,
        agent: Agent,
        declared: Declaration,
        manager: AgentSkillManager,
        shell: ShellRunner | None = None,
        workspaces: WorkspaceManager | None = None,
    ) -> None:
        self.plan = plan
        self.agent = agent
        self.config = SkillConfig(plan.options)
        self.manager = manager
        self.workspaces = workspaces
        self.records = plan.outputs == "record"
        self.keeps_conversation = plan.session == "key"
        self._declared = declared
        self._shell = shell
        self._own_tools = {
            tool.name: FunctionTool(tool.function, name=tool.name, description=tool.description or None)
            for tool in declared.tools.values()
        }
        self._models: dict[str, ModelRuntime] = {}
        self._all_tools: ModelRuntime | None = None

    @classmethod
    async def open(
        cls,
        plan: AgentPlan,
        *,
        scratch_dir: str,
        resource_paths: Mapping[str, Sequence[str]] | None = None,
        store_dir: str | None = None,
    ) -> AgentRuntime:
        """Load the agent, its skills and its models.

        Raises :class:`SkillsError` for anything that no turn could do without: an agent that cannot be imported, a
        skill source that cannot be read, a name that no source has. One bad skill is reported and skipped.
        """
        config = SkillConfig(plan.options)
        agent = load_agent(plan.agent)
        declared = read_declaration(agent)
        if not config.get(SkillOptions.STORE_DIR):
            # Beside the job's scratch folder and not inside: a restarted job must find what was downloaded before.
            store_dir = store_dir or str(Path(scratch_dir).parent / f"flink-skills-store-{os.geteuid()}")
        manager = AgentSkillManager.from_scopes(
            plan.scopes, config=config, resource_paths=resource_paths, store_dir=store_dir
        )
        manager.load_skills()
        manager.check_sources()
        for diagnostic in manager.diagnostics:
            _log.log(_LEVELS.get(diagnostic.severity, logging.INFO), "%s", diagnostic)
        shell = workspaces = None
        if bool(plan.scopes) and config.get(SkillOptions.SHELL_ENABLED):
            workspaces = WorkspaceManager(_workspace_root(plan, config, scratch_dir))
            shell = await ShellRunner.start(config, workspaces)
        runtime = cls(plan, agent=agent, declared=declared, manager=manager, shell=shell, workspaces=workspaces)
        try:
            for model in plan.models:
                runtime._models[model.name] = runtime._open_model(model)
        except SkillsError:
            await runtime.close()
            raise
        return runtime

    def _open_model(self, model: ModelPlan) -> ModelRuntime:
        place = f"chat model {model.name!r} of agent {self.plan.agent_id}"
        try:
            view = self.manager.view(model.skill_names)
        except UnknownNameError as error:
            raise UnknownNameError(
                "skill",
                error.name,
                [s.name for s in self.manager.get_skills()],
                place=f"skill_names of {place}",
            ) from error
        own = [self._own_tools[name] for name in (model.tools if model.tools is not None else self._own_tools)]
        tools: list[Tool] = [*core_tools(view, self._shell), *own]
        prompt = Prompt(**self.plan.prompts[model.prompt]) if model.prompt else Prompt()
        try:
            chat_model = create_model(model.setup, self.config)
        except UnknownNameError:
            raise
        except SkillsError as error:
            raise PlanError(f"{place}: {error}") from error
        toolset = ToolSet(tools)
        return ModelRuntime(
            name=model.name,
            chat_model=chat_model,
            view=view,
            tools=toolset,
            prompt=prompt,
            system="\n\n".join(part for part in (prompt.system.strip(), view.menu()) if part),
            settings=model.setup.settings,
            default_answer=AnswerType.of(self._declared.output_type),
            timeout=self.config.get(SkillOptions.MODEL_TIMEOUT),
            specs=toolset.specs(),
            workspace_tools=frozenset(tool.spec.name for tool in tools if tool.uses_workspace),
        )

    def model(self, name: str | None) -> ModelRuntime:
        """The open chat model ``name``, or the agent's first."""
        if name is None:
            for model in self._models.values():
                return model
            raise TurnError(
                f"agent {self.plan.agent_id} has no chat model, and ctx.chat needs one: declare a @chat_model_setup"
            )
        if name not in self._models:
            raise UnknownNameError("chat model", name, self._models, place=f"agent {self.plan.agent_id}")
        return self._models[name]

    def tool_scope(self, name: str | None) -> ModelRuntime:
        """Whose tools ``ctx.call_tool`` may call: those of a chat model, or all of an agent without models."""
        if name is not None or self._models:
            return self.model(name)
        if self._all_tools is None:
            view = self.manager.view(None)
            tools: list[Tool] = [*core_tools(view, self._shell), *self._own_tools.values()]
            toolset = ToolSet(tools)
            self._all_tools = ModelRuntime(
                name="",
                chat_model=_NoModel(),
                view=view,
                tools=toolset,
                prompt=Prompt(),
                system="",
                settings={},
                default_answer=AnswerType(),
                timeout=0.0,
                specs=toolset.specs(),
                workspace_tools=frozenset(tool.spec.name for tool in tools if tool.uses_workspace),
            )
        return self._all_tools

    def new_state(self, kept: Any) -> Any:
        """``ctx.state`` from its kept form."""
        declared = self._declared.state_type
        if declared is None:
            return copy.deepcopy(kept) if kept is not None else {}
        return declared() if kept is None else declared.model_validate(kept)

    def plain_state(self, state: Any) -> Any:
        """The form of ``ctx.state`` that is kept; None when there is nothing to keep."""
        if isinstance(state, BaseModel):
            return state.model_dump(mode="json")
        if not state:
            return None
        plain = to_plain(state)
        if plain != state and not isinstance(state, Record):
            # Tuples and the like come back as lists: say so now and not as a surprise in the next turn.
            _log.debug("ctx.state was kept as JSON, some of its values changed their type")
        return plain

    def event_json(self, event: Any) -> bytes:
        """The event as a command finds it in ``work/inputs/event.json``."""
        if isinstance(event, str):
            return json.dumps(event, ensure_ascii=False).encode()
        text = event_text(event)
        try:
            json.loads(text)
        except ValueError:
            text = json.dumps(text, ensure_ascii=False)
        return text.encode("utf-8", "surrogatepass")

    def report(self) -> dict[str, Any]:
        """What an operator wants to know after opening."""
        return {
            "agent": self.plan.agent_id,
            "skills": [skill.name for skill in self.manager.get_skills()],
            "models": {name: list(model.view.names) for name, model in self._models.items()},
            "diagnostics": len(self.manager.diagnostics),
            "isolation": self._shell.level if self._shell is not None else "none: no commands",
        }

    async def close(self) -> None:
        """Release models, processes and workspaces."""
        for model in self._models.values():
            await model.chat_model.close()
        if self._shell is not None:
            await self._shell.close()
        if self.workspaces is not None:
            self.workspaces.close()


def _workspace_root(plan: AgentPlan, config: SkillConfig, scratch_dir: str) -> str:
    """The folder of the workspaces of one agent of one job: two agents with equal keys must not meet in it."""
    agent = hashlib.sha256(plan.agent_id.encode()).hexdigest()[:16]
    chosen = config.get(SkillOptions.WORKSPACE_DIR)
    base = Path(chosen) / Path(scratch_dir).name if chosen else Path(scratch_dir)
    return str(base / "workspaces" / agent)


class _NoModel(ChatModel):
    """Stands for the model of an agent that has none."""

    name = "none"

    async def request(self, request: ModelRequest) -> Any:
        raise TurnError("this agent has no chat model")


_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}
