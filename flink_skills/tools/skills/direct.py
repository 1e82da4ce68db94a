"""Tools of skills as functions, for tests and notebooks: without Flink, without a model, and synchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from flink_skills.errors import ConfigError, ExecutionError, ResourceError, SkillsError
from flink_skills.execution import WorkspaceManager
from flink_skills.execution.workspace.job_workspaces import check_commands, scratch_workspaces
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools.base import Tool, ToolContext, ToolResult
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.skills.shell_tool import ExecuteShellCommand
from flink_skills.tools.skills.skill_face import ToolServices
from flink_skills.tools.skills.skill_loading import LoadSkill
from flink_skills.tools.skills.skill_resource import LoadSkillResource
from flink_skills.tools.state import SkillState

T = TypeVar("T")


def load_skill(manager: AgentSkillManager, name: str) -> str:
    """Return the result of the tool ``load_skill``: the instructions of a skill and the list of its files.

    Skills with ``disable-model-invocation`` are included.

    Raises:
        ResourceError: There is no such skill, or it cannot be read. The message is the tool's result.

    >>> manager = AgentSkillManager(skills=[AgentSkill("greet", "Says hello.", "Say hello.")])
    >>> print(load_skill(manager, "greet"))  # doctest: +ELLIPSIS
    <skill_content name="greet">
    Say hello.
    ...
    """
    tool = LoadSkill(ToolServices(_all_skills(manager), manager.config))
    return _finished(lambda: _text(tool, {"name": name}, ToolContext(), ResourceError))


def load_skill_resource(manager: AgentSkillManager, name: str, path: str, offset: int = 0) -> str:
    """Return the result of the tool ``load_skill_resource``: the text of a file of a skill.

    Args:
        manager: The skills.
        name: The skill.
        path: Path relative to the skill's folder.
        offset: Byte to continue at in a file that is larger than one result.

    Raises:
        ResourceError: There is no such skill or file, or it is not text. The message is the tool's result.
    """
    tool = LoadSkillResource(ToolServices(_all_skills(manager), manager.config))
    arguments = {"name": name, "path": path, "offset": offset}
    return _finished(lambda: _text(tool, arguments, ToolContext(), ResourceError))


def execute_shell_command(
    command: str,
    timeout: float = 300,
    *,
    skill: str | AgentSkill | None = None,
    manager: AgentSkillManager | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: str | None = None,
    config: SkillConfig | None = None,
) -> str:
    """Run a command in the sandbox of a job, and return the result of the tool ``execute_shell_command``.

    The text contains exit code, standard output and standard error, even if the command fails or reaches a limit.
    The workspace is temporary, and removed before this returns.

    Args:
        command: Command line for the shell, or one program if the options restrict the programs.
        timeout: Seconds. The option ``skills.shell.max-timeout`` limits it.
        skill: Skill with the working directory of the command: a name of a skill of ``manager``, or a skill.
        manager: Skills that ``skill`` names. Without ``skill``, the command can open the folders of these skills that
            :func:`load_skill` shows.
        env: Additional variables of the command.
        cwd: Working directory, relative to that of the skill, or a path that begins with ``$WORK_DIR``.
        stdin: Standard input.
        config: Options of the job. None: those of ``manager``, else the defaults.

    Raises:
        ExecutionError: The command was not run. The message is the tool's result. :class:`IsolationError` if the host
            cannot isolate commands as the options demand.
        ResourceError: There is no such skill, or it cannot be read.
        ConfigError: An option or an argument cannot be used. :class:`UnknownNameError` for an unknown backend.

    >>> print(execute_shell_command("echo hi"))
    exit code: 0
    stdout:
    hi
    stderr:
    """
    if config is None:
        config = SkillConfig() if manager is None else manager.config
    if isinstance(skill, AgentSkill):
        with AgentSkillManager(skills=[skill], config=config) as own:
            own.check_sources()
            return execute_shell_command(
                command, timeout, skill=skill.name, manager=own, env=env, cwd=cwd, stdin=stdin, config=config
            )
    if skill is not None and manager is None:
        raise ConfigError(f"execute_shell_command: skill={skill!r} needs manager=, or give an AgentSkill.")
    check_commands(config)
    view = SkillView(()) if manager is None else _all_skills(manager)
    arguments = {"command": command, "timeout": timeout, "cwd": cwd, "stdin": stdin}
    with scratch_workspaces(config) as workspaces:
        run = _Run(view, config, workspaces)
        return _finished(lambda: run.command(arguments, skill, env))


class _Run:
    """One command in a workspace."""

    def __init__(self, view: SkillView, config: SkillConfig, workspaces: WorkspaceManager) -> None:
        self._view = view
        self._config = config
        self._workspaces = workspaces

    async def command(self, arguments: Mapping[str, Any], skill: str | None, env: Mapping[str, str] | None) -> str:
        shell = await ShellRunner.start(self._config, self._workspaces)
        try:
            services = ToolServices(self._view, self._config, shell=shell)
            context = ToolContext(workspace=self._workspaces.for_key("flink-skills"), skill_state=SkillState())
            if skill is not None:
                await self._load(skill, services, context)
            elif named := self._named(arguments):
                for name in named:
                    await self._load(name, services, context)
                arguments = {**arguments, "cwd": arguments["cwd"] or "$WORK_DIR"}
            return await _text(ExecuteShellCommand(services, env), arguments, context, ExecutionError)
        finally:
            await shell.close()

    def _named(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the skills with folders in the command, as :func:`load_skill` shows them."""
        text = f"{arguments['command']} {arguments['cwd']}"
        found = []
        for name in self._view:
            skill = self._view.get(name)
            if skill is not None and skill.path and skill.path in text:
                found.append(name)
        return found

    async def _load(self, name: str, services: ToolServices, context: ToolContext) -> None:
        result = await LoadSkill(services).call({"name": name}, context)
        _raise_error(result, ResourceError)
        for effect in result.effects:
            if context.skill_state is not None:
                context.skill_state.apply(effect)


def _all_skills(manager: AgentSkillManager) -> SkillView:
    return manager.view([skill.name for skill in manager.get_skills()])


async def _text(tool: Tool, arguments: Mapping[str, Any], context: ToolContext, error: type[SkillsError]) -> str:
    result = await tool.call(arguments, context)
    _raise_error(result, error)
    return result.content


def _raise_error(result: ToolResult, error: type[SkillsError]) -> None:
    if result.is_error:
        raise error(result.content)


def _finished(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end. A thread runs it if this thread has a running event loop, as in a notebook."""
    if not _has_running_loop():
        return asyncio.run(start())
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def main() -> T:
        task = asyncio.ensure_future(start())
        begun.set_result((asyncio.get_running_loop(), task))
        return await task

    with ThreadPoolExecutor(1, "flink-skills-direct") as pool:
        outcome = pool.submit(copy_context().run, asyncio.run, main())
        try:
            return outcome.result()
        except KeyboardInterrupt:
            # The thread ends the command before the pool closes.
            loop, task = begun.result()
            loop.call_soon_threadsafe(task.cancel)
            raise


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
