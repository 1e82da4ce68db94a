"""Sessions whose requests are measured: the real turn loop, and a model that works by a list and keeps what it gets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import business_tools, own_texts
from benchmarks.business_tools import BusinessTool
from flink_skills import Agent, ResourceDescriptor, SkillConfig, chat_model_setup, prompt, tool_pool
from flink_skills.agents.declare.declaration import Declaration, DeclaredTool
from flink_skills.agents.plan.compilation import compile_plan
from flink_skills.agents.turn.local import run_list
from flink_skills.manager import SkillScope
from flink_skills.models.messages import AssistantMessage, ModelRequest, ToolCall, ToolMessage
from flink_skills.models.registry import Provider, register_provider
from flink_skills.testing import ScriptedModel, call, calls
from flink_skills.testing.chat_models import Answer
from flink_skills.tools.base import ToolSpec

INSTRUCTIONS = (
    "You help the people who run the data platform of a company. Answer in a few sentences, name the records that you "
    "rely on by their ids, and say so when you do not know."
)
#: The tool calls of each turn, by the place of the skill that they are about among those in use. A turn ends with an
#: answer, so both are 30 requests where nothing has to be loaded.
FIVE_TURNS = ((0,) * 5, (0,) * 5, (1,) * 5, (1,) * 5, (2,) * 5)
ONE_TURN = ((0,) * 10 + (1,) * 10 + (2,) * 9,)
_ANSWER = (
    "Two of the four records have the same cause: the checkpoint expired because the barrier waited behind records of "
    "a skewed key. INC-20317 is open and belongs to team-state, INC-20324 is in progress. I have told the channel, and "
    "the estimate is that both are resolved within two days."
)
_PROVIDER = "economics"
_COMMON = "incidents"


@dataclass(frozen=True)
class Mode:
    """How skills and tools come before the model.

    ``bodies`` and ``tools`` say what stands in every request; what does not is loaded by the tools of ``profile``.
    ``selected`` is how many of a skill's tools the model selects, 0: all; ``at_once`` says that it does so together
    with loading, as a model can that knows the tools' names before. ``max_loaded`` is how many skills stay loaded,
    0: all.
    """

    profile: str = ""
    lifetime: str = ""
    content: str = ""
    bodies: bool = False
    tools: bool = False
    selected: int = 0
    at_once: bool = False
    max_loaded: int = 0

    @property
    def loads(self) -> bool:
        return not self.bodies


@dataclass(frozen=True)
class Setting:
    """How many skills there are, with how many tools each; ``turns`` are those of the session.

    Without tools of their own, skills are worked with by a few tools that models have anyway.
    """

    skills: int
    tools: int
    turns: tuple[tuple[int, ...], ...] = FIVE_TURNS

    @property
    def common_tools(self) -> int:
        return 0 if self.tools else 4

    def in_use(self) -> list[own_texts.Text]:
        """The skills that the session works with: first, middle and last by name."""
        by_name = sorted(own_texts.texts(self.skills), key=lambda text: text.name)
        return [by_name[0], by_name[len(by_name) // 2], by_name[-1]]


class Desk(Agent):
    """The agent of all modes. What it declares depends on the mode."""

    session = "key"
    name = "desk"

    def __init__(self, mode: Mode, setting: Setting) -> None:
        self.mode = mode
        self.setting = setting

    @prompt
    def instructions(self) -> str:
        bodies = [text.body for text in own_texts.texts(self.setting.skills)] if self.mode.bodies else []
        # A name in braces would be a placeholder.
        bodies = [re.sub(r"\{(?=\w+\})", "{ ", body) for body in bodies]
        return "\n\n".join([INSTRUCTIONS, *bodies])

    @chat_model_setup
    def model(self) -> ResourceDescriptor:
        mode = self.mode
        said: dict[str, Any] = {
            "skill_tools": mode.profile,
            "skill_lifetime": mode.lifetime,
            "skill_content": mode.content,
        }
        said["max_loaded_skills"] = mode.max_loaded
        return ResourceDescriptor(clazz=f"{_PROVIDER}.setup", **{key: value for key, value in said.items() if value})

    @tool_pool
    def business(self) -> list[BusinessTool]:
        return [] if self.mode.tools else self._tools()

    def declare(self, found: Declaration) -> None:
        """The tools that models always have, as the agent's own."""
        common = business_tools.tools(_COMMON, self.setting.common_tools)
        for tool in (*common, *(self._tools() if self.mode.tools else ())):
            found.tools[tool.spec.name] = DeclaredTool(tool.spec.name, tool.spec.description, tool.call, made=tool)

    def _tools(self) -> list[BusinessTool]:
        texts = own_texts.texts(self.setting.skills)
        return [tool for text in texts for tool in business_tools.tools(text.subject, self.setting.tools)]


def run(mode: Mode, setting: Setting, skills: Path) -> list[ModelRequest]:
    """The requests of one session. Raises :class:`SystemExit` where anything in it failed."""
    turns = list(_turns(mode, setting))
    model = ScriptedModel([response for turn in turns for response in turn])
    register_provider(
        Provider(_PROVIDER, lambda setup, config: model, needs_model=False, strategies=False), replace=True
    )
    scopes = [SkillScope(level="job", paths=(str(skills),))] if mode.loads else []
    # Enough steps for a session that is one turn. No command is run, so nothing has to be kept apart.
    options = {"skills.turn.max-steps": 200, "skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"}
    config = SkillConfig(options)
    plan = compile_plan(Desk(mode, setting), job_scopes=scopes, config=config)
    outputs = run_list(plan, [("key", _event(number)) for number in range(len(turns))])
    conversation = model.requests[-1].messages
    failed = [message for message in conversation if isinstance(message, ToolMessage) and message.is_error]
    if outputs != [("", _ANSWER)] * len(turns) or failed:
        raise SystemExit(f"{mode} of {setting} did not go as written: {outputs} {failed[:1]}")
    return model.requests


def _turns(mode: Mode, setting: Setting) -> Iterator[list[Answer]]:
    """What the model answers in each turn: the same work in all modes, and the loading that a mode asks for."""
    in_use = setting.in_use()
    loaded: set[str] = set()
    step = 0
    for turn in setting.turns:
        responses: list[Answer] = []
        if mode.lifetime == "turn":
            loaded.clear()
        for which in turn:
            text = in_use[which]
            names = business_tools.names(text.subject, setting.tools) or business_tools.names(_COMMON, 4)
            # What was only just loaded or selected can be called in the next response.
            wanted: list[list[ToolCall]] = []
            if mode.loads and text.name not in loaded:
                loaded.add(text.name)
                wanted.append([_load(mode, text.name)])
                if mode.selected:
                    select = call("skill_select_tools", skill=text.name, tools=names[: mode.selected])
                    wanted = [[*wanted[0], select]] if mode.at_once else [*wanted, [select]]
            usable = names[: _called(setting)]
            name = usable[step % len(usable)]
            for group in (*wanted, [call(name, **business_tools.arguments(name, step))]):
                responses.append(calls(*group, prefix=f"call-{len(responses)}-{step}"))
            step += 1
        yield [*responses, _ANSWER]


def _called(setting: Setting) -> int:
    """How many of a skill's tools the session calls: so few that modes which select fewer do the same work."""
    return {3: 1, 10: 2}.get(setting.tools, 4)


def _load(mode: Mode, name: str) -> ToolCall:
    return call("load_skill", name=name) if mode.profile == "core" else call("skill_load", skill=name)


def _event(number: int) -> str:
    return (
        f"Incident {number}: since 07:1{number} UTC the job payments restarts every few minutes. The web interface "
        "says that checkpoints expire before completing; nobody has deployed anything since yesterday. What is it, who "
        "works on it, and until when will it take?"
    )


def as_sent(request: ModelRequest) -> str:
    """A request in the order in which providers cache it: tools, system text, messages."""
    parts = [f"[{','.join(map(as_sent_tool, request.tools))}]", request.system]
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            asked = [{"id": of.id, "name": of.name, "input": of.arguments} for of in message.tool_calls]
            parts.append(_json({"role": "assistant", "content": message.content, "tool_calls": asked}))
        elif isinstance(message, ToolMessage):
            parts.append(_json({"role": "tool", "id": message.call_id, "content": message.content}))
        else:
            parts.append(_json({"role": "user", "content": message.content}))
    return "\n".join(parts)


def as_sent_tool(tool: ToolSpec) -> str:
    """A tool in a request."""
    return _json({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def common_prefix(one: str, other: str) -> int:
    """How many characters two texts have in common from their beginning on."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def sizes(requests: Sequence[ModelRequest]) -> list[tuple[int, int]]:
    """Of each request its characters, and how many of them the one before began with."""
    found, before = [], ""
    for request in requests:
        text = as_sent(request)
        found.append((len(text), common_prefix(before, text)))
        before = text
    return found
