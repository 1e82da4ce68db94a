from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import (
    CallControl,
    ShellRunner,
    SkillSettings,
    SkillState,
    ToolContext,
    ToolResult,
    ToolServices,
    ToolSet,
    load_effect,
    profile_tools,
)
from flink_skills.tools.runs import Caller, ProcessSessions
from flink_skills.tools.skills import caller_of
from tests.tools.conftest import ShellWith

_PATIENCE = 60.0


def workspace_key(key: Any) -> str:
    """The text of a key that names its workspace."""
    return json.dumps(key, default=repr)


class Talk:
    """Calls the tools of the profile ``full`` as the turns of one key do, each call with an id of its own."""

    def __init__(
        self,
        view: SkillView,
        shell: ShellRunner,
        sessions: ProcessSessions,
        config: SkillConfig,
        key: Any = "k",
        *,
        agent: str = "",
        owner: str = "",
    ) -> None:
        self.shell = shell
        self.sessions = sessions
        self.key = key
        self.agent = agent
        self.owner = owner
        self.skills = view
        settings = SkillSettings.of(config, {"skill_tools": ["full"]})
        self.services = ToolServices(
            view,
            config=config,
            settings=settings,
            shell=shell,
            sessions=sessions,
            artifacts=ArtifactStore.open(config),
        )
        self.tools = ToolSet(profile_tools(settings.tools, self.services))
        self.state = SkillState()
        self.control: CallControl | None = None
        self.calls = 0

    def load(self, *skills: str) -> None:
        for name in skills:
            skill = self.skills.get(name)
            assert skill is not None
            self.state.apply(load_effect(name, skill.digest))

    def other(self, key: Any, view: SkillView | None = None, *, agent: str = "", owner: str = "") -> Talk:
        """The same worker, for another key, model, agent or owner, with the loaded skills that its view has."""
        skills, config = view or self.skills, self.services.config
        found = Talk(skills, self.shell, self.sessions, config, key, agent=agent, owner=owner)
        found.load(*(name for name in self.state if name in skills))
        return found

    def context(self, call_id: str = "") -> ToolContext:
        """What the call ``call_id`` is made with."""
        workspace = self.shell.workspaces.for_key(workspace_key(self.key))

        async def opened() -> Any:
            return workspace

        return ToolContext(
            key=self.key,
            owner=self.owner,
            agent=self.agent,
            call_id=call_id,
            skills=self.skills,
            skill_state=self.state,
            workspace=workspace,
            open_workspace=opened,
            control=self.control,
        )

    @property
    def caller(self) -> Caller:
        return caller_of(self.services, self.context())

    async def result(self, tool: str, /, call_id: str = "", **arguments: Any) -> ToolResult:
        self.calls += 1
        found = await self.tools.call(tool, arguments, self.context(call_id or f"call-{self.calls}"))
        for effect in found.effects:
            self.state.apply(effect)
        # What a journal keeps.
        assert json.loads(json.dumps(found.value)) == found.value
        return found

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The object that the model reads; the call must not be an error."""
        found = await self.result(tool, **arguments)
        assert not found.is_error, found.content
        value: dict[str, Any] = json.loads(found.content)
        return value

    async def until(
        self, tool: str, wanted: Callable[[dict[str, Any]], bool], **arguments: Any
    ) -> tuple[str, dict[str, Any]]:
        """Call until the answer is as ``wanted``: all the output, and the last answer."""
        output = ""
        end = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            value = await self.call(tool, **arguments)
            output += value["output"]
            if wanted(value):
                return output, value
            assert asyncio.get_running_loop().time() < end, f"not in {_PATIENCE} s: {output!r}, {value}"


StartTalk = Callable[..., Awaitable[Talk]]


@pytest.fixture
async def talk_with(view: SkillView, shell_with: ShellWith) -> AsyncIterator[StartTalk]:
    """Starts workers with options; closes them."""
    started: list[ProcessSessions] = []

    async def start(**options: object) -> Talk:
        config = SkillConfig({name.replace("__", ".").replace("_", "-"): value for name, value in options.items()})
        shell = await shell_with(**options)
        sessions = ProcessSessions(shell, config)
        started.append(sessions)
        return Talk(view, shell, sessions, config)

    yield start
    for sessions in started:
        await asyncio.wait_for(sessions.close(), _PATIENCE)


@pytest.fixture
async def talk(talk_with: StartTalk) -> Talk:
    found = await talk_with()
    found.load("log-triage", "billing")
    return found
