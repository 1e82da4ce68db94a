"""Tools that a skill brings itself: functions of its ``tools.py``, and what its ``schema.json`` declares.

They are untrusted code. They run in the sandbox of the key that uses them and nowhere else, in a program that is kept
for a while (:mod:`flink_skills.tools.dynamic.runner_program`), and all that comes out of there is checked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink_skills.errors import SkillsError
from flink_skills.execution import Workspace
from flink_skills.execution.execution_backend import ExecutionBackend
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.process_streams import gap_text
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.commands.result_text import describe as describe_result
from flink_skills.tools.dynamic.answers import Answer, no_answer, read_answer, text_answer, tool_result
from flink_skills.tools.dynamic.runner_process import Reply, RunnerProcess
from flink_skills.tools.dynamic.runner_program import program_argv
from flink_skills.tools.dynamic.runners import RunnerKey, Runners
from flink_skills.tools.dynamic.schema_file import MAX_FILE_BYTES, SCHEMA_FILE, DeclaredTool, read_schema_file
from flink_skills.tools.dynamic.source import TOOLS_FILE
from flink_skills.tools.dynamic.specs import checked_parameters, checked_specs
from flink_skills.tools.schemas import fit_schema

if TYPE_CHECKING:
    from flink_skills.execution.execution_backend import LiveProcess, OnOutput
    from flink_skills.skill import AgentSkill
    from flink_skills.tools.commands.runner import ShellRunner

__all__ = ["BundledTools", "Described"]

_IDLE_SECONDS = 60.0
_LIFE_SECONDS = 3_600.0
_DESCRIBE_SECONDS = 30.0
_WAIT_SECONDS = 10.0
_MAX_PROBLEMS = 10
# All texts of 64 tools with room for what is left out of them.
_DESCRIBE_BYTES = 1 << 20
# Around the answer of a program that is not kept: its limit of output is that of a command.
_MARGIN_BYTES = 256

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True)
class Described:
    """The tools of a skill as a model is told of them, and what is wrong with others."""

    specs: tuple[dict[str, Any], ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Site:
    """Where the tools of a skill run for one key."""

    skill: AgentSkill
    workspace: Workspace
    folder: Path
    call_id: str


class BundledTools:
    """The tools that skills bring themselves; one for all turns of a worker. To be closed before its shell.

    A program is kept for each key, skill and version of the skill that used one lately: what a tool leaves in memory
    or running is there for the next call, or is not. Where processes cannot be kept (backend ``remote``, or a limit on
    processor time, which is for each call), every call starts a program of its own.

    Args:
        shell: Runs commands, and the programs under the same policy, limits and confinement.
        config: The options of the job.
        most: Most programs that run tools, or are kept, at once; those of ``skills.shell.max-concurrent`` if None.
        idle: Seconds after which a program is ended that nobody asks.
        wait: Most seconds that a call waits while too many others run; then it is an error that says so.

    >>> bundled = BundledTools(shell, config)
    >>> described = await bundled.describe(view.get("geo"), context)
    >>> tool = bundled.tool("geo", described.specs[0], "distance")
    >>> (await tool.call({"a": "Ulm", "b": "Bonn"}, context)).value
    354
    """

    def __init__(
        self,
        shell: ShellRunner,
        config: SkillConfig | None = None,
        *,
        most: int | None = None,
        idle: float = _IDLE_SECONDS,
        wait: float = _WAIT_SECONDS,
    ) -> None:
        self._shell = shell
        most = most or (config or SkillConfig()).get(SkillOptions.SHELL_MAX_CONCURRENT)
        self._runners = Runners(most=most, idle=idle, life=_LIFE_SECONDS, wait=wait)
        self._keeps = (
            shell.level < IsolationLevel.REMOTE
            and not shell.limits.cpu_time
            and type(shell.backend).start_process is not ExecutionBackend.start_process
        )

    @property
    def running(self) -> int:
        """How many programs are kept just now."""
        return self._runners.alive

    async def describe(self, skill: AgentSkill, context: ToolContext) -> Described:
        """The tools of a skill. Runs its ``tools.py`` in the sandbox; what goes wrong is a problem, never an error."""
        try:
            declared, problems = await asyncio.to_thread(_declared, skill)
            raw: list[Any] = [tool.to_json() for tool in (declared or {}).values() if tool.command]
            functions = _functions(declared)
            if TOOLS_FILE in skill.files.paths() and functions != []:
                site = await self._site(skill, context)
                request = {"op": "describe", "declared": functions}
                timeout = min(_DESCRIBE_SECONDS, self._shell.limits.wall_time)
                reply = await self._ask(site, request, _DESCRIBE_BYTES, timeout, describes=True)
                answer = await self._read(skill.name, reply, timeout, _DESCRIBE_BYTES, describes=True)
                problems += [f"{TOOLS_FILE}: {text}" for text in answer.problems]
                raw += answer.tools
            else:
                problems += [
                    f"{SCHEMA_FILE}: the tool {entry['name']!r} is left out: it has no command, and there is no "
                    f"{TOOLS_FILE} with the function"
                    for entry in functions or ()
                ]
        except (ArgumentError, SkillsError) as error:
            return Described((), (f"the tools of skill {skill.name} cannot run: {error}",))
        specs, wrong = await asyncio.to_thread(lambda: checked_specs(_ordered(raw, declared)))
        problems += wrong
        if len(problems) > _MAX_PROBLEMS:
            problems[_MAX_PROBLEMS:] = [f"and {len(problems) - _MAX_PROBLEMS} more problems"]
        return Described(specs, tuple(problems))

    def tool(self, skill_name: str, spec: Mapping[str, Any], exposed: str) -> Tool:
        """The tool that ``spec``, one of :meth:`describe`, describes, with ``exposed`` as the name that models see."""
        return _BundledTool(self, skill_name, spec, exposed)

    async def call(
        self, skill_name: str, name: str, arguments: Mapping[str, Any], context: ToolContext, exposed: str = ""
    ) -> ToolResult:
        """Call the tool ``name`` of a loaded skill. Whatever goes wrong is a result that says so."""
        exposed = exposed or name
        skill = context.skills.get(skill_name) if context.skills is not None else None
        if skill is None or (context.skill_state is not None and skill_name not in context.skill_state):
            return ToolResult(
                f"{exposed} is a tool of skill {skill_name}, which is not loaded: load it.", is_error=True
            )
        try:
            declared, _ = await asyncio.to_thread(_declared, skill)
            entry = (declared or {}).get(name)
            if declared is not None and entry is None:
                return ToolResult(
                    f"{exposed} is no longer a tool of skill {skill_name}: load the skill again.", is_error=True
                )
            site = await self._site(skill, context)
            if entry is not None and entry.command:
                return await self._run_command(site, entry, arguments, exposed)
            return await self._call_function(
                site, name, arguments, exposed, None if entry is None else [entry.to_json()]
            )
        except (ArgumentError, SkillsError) as error:
            return ToolResult(f"{exposed} cannot run: {error}", is_error=True)

    async def close(self) -> None:
        """End all programs. Calling it again does nothing."""
        await self._runners.close()

    async def _site(self, skill: AgentSkill, context: ToolContext) -> _Site:
        workspace = await context.get_workspace()

        def stage() -> Path:
            workspace.ensure()
            return workspace.stage(skill)

        return _Site(skill, workspace, await asyncio.to_thread(stage), context.call_id)

    async def _call_function(
        self,
        site: _Site,
        name: str,
        arguments: Mapping[str, Any],
        exposed: str,
        declared: list[dict[str, Any]] | None,
    ) -> ToolResult:
        request = {"op": "call", "tool": name, "shown": exposed, "arguments": arguments, "declared": declared}
        timeout, room = self._shell.limits.wall_time, self._shell.limits.output
        reply = await self._ask(site, request, room, timeout)
        answer = await self._read(site.skill.name, reply, timeout, room)
        return await asyncio.to_thread(tool_result, answer, exposed)

    async def _run_command(
        self, site: _Site, entry: DeclaredTool, arguments: Mapping[str, Any], exposed: str
    ) -> ToolResult:
        try:
            schema = await asyncio.to_thread(checked_parameters, entry.parameters)
        except ValueError as error:
            return ToolResult(f"{exposed} cannot run: {error}", is_error=True)
        try:
            arguments = fit_schema(exposed, arguments, schema)
        except ArgumentError as error:
            return ToolResult(str(error), is_error=True)
        result = await self._shell.run(
            entry.command,
            workspace=site.workspace,
            cwd=site.folder,
            skill_name=site.skill.name,
            call_id=site.call_id,
            stdin=json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace"),
        )
        if result.exit_code != 0 or result.truncated:
            limits = self._shell.limits
            said = describe_result(result, limits, self._shell.level, limits.wall_time)
            failed = result.exit_code != 0
            sections = (f"{exposed} failed: ", *said.sections) if failed else said.sections
            content = f"{exposed} failed: {said.content}" if failed else said.content
            return ToolResult(content, failed, said.value, sections=sections)
        answer = await asyncio.to_thread(text_answer, result.stdout, result.stderr, self._shell.hidden)
        return await asyncio.to_thread(tool_result, answer, exposed)

    async def _ask(
        self, site: _Site, request: Mapping[str, Any], room: int, timeout: float, *, describes: bool = False
    ) -> Reply:
        asked = {**request, "call_id": site.call_id}
        if not self._keeps:
            return await self._ask_once(site, {**asked, "id": 1}, timeout)
        key = RunnerKey(str(site.workspace.root), site.skill.name, site.skill.digest)
        return await self._runners.ask(
            key, lambda: self._start(site), asked, room=room, timeout=timeout, describes=describes
        )

    async def _ask_once(self, site: _Site, request: Mapping[str, Any], timeout: float) -> Reply:
        room = self._shell.limits.output - _MARGIN_BYTES
        result = await self._shell.run(
            program_argv(),
            workspace=site.workspace,
            cwd=site.folder,
            skill_name=site.skill.name,
            call_id=site.call_id,
            stdin=json.dumps({**request, "room": room}).encode() + b"\n",
            timeout=timeout,
        )
        whole = result.stdout.endswith(b"\n") and not result.stdout_dropped
        return Reply(
            line=result.stdout if whole else None,
            printed=result.stderr,
            dropped=result.stderr_dropped,
            timed_out=result.timed_out,
            too_long=result.stdout_dropped > 0,
            ended=result,
        )

    async def _start(self, site: _Site) -> RunnerProcess:
        async def start(on_output: OnOutput) -> LiveProcess:
            return await self._shell.start_process(
                program_argv(),
                workspace=site.workspace,
                cwd=site.folder,
                skill_name=site.skill.name,
                call_id=site.call_id,
                timeout=_LIFE_SECONDS,
                on_output=on_output,
            )

        return await RunnerProcess.start(start)

    async def _read(self, skill: str, reply: Reply, timeout: float, room: int, *, describes: bool = False) -> Answer:
        """The answer in a reply, without hidden values; one that says what is wrong where there is none."""
        hidden, limits = self._shell.hidden, self._shell.limits

        def read() -> Answer:
            printed = hidden.in_bytes(reply.printed, gap_text(reply.dropped) if reply.dropped else b"")
            if reply.line is None:
                return no_answer(reply, skill, printed, timeout=timeout, room=room, limits=limits)
            return read_answer(reply.line, printed, hidden, describes=describes)

        # What untrusted code sends may take long to read, and the event loop is that of all keys.
        return await asyncio.to_thread(read)


class _BundledTool(Tool):
    """A tool of a skill as a model sees it."""

    uses_workspace = True
    runs_in = "sandbox"

    def __init__(self, tools: BundledTools, skill_name: str, spec: Mapping[str, Any], exposed: str) -> None:
        self._tools = tools
        self._skill_name = skill_name
        self._name = str(spec["name"])
        self._spec = ToolSpec(exposed, str(spec.get("description", "")), spec.get("parameters") or _NO_PARAMETERS)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await self._tools.call(self._skill_name, self._name, arguments, context, self._spec.name)


def _declared(skill: AgentSkill) -> tuple[dict[str, DeclaredTool] | None, list[str]]:
    """What ``schema.json`` declares; None without one, or with one that says nothing of use."""
    if SCHEMA_FILE not in skill.files.paths():
        return None, []
    declared, problems = read_schema_file(skill.files.read(SCHEMA_FILE, 0, MAX_FILE_BYTES + 1).data)
    return declared or None, problems


def _functions(declared: Mapping[str, DeclaredTool] | None) -> list[dict[str, Any]] | None:
    """The entries that functions are for; None where all functions are tools."""
    if declared is None:
        return None
    return [tool.to_json() for tool in declared.values() if not tool.command]


def _ordered(raw: list[Any], declared: Mapping[str, DeclaredTool] | None) -> list[Any]:
    """In the order of ``schema.json``; other tools come in their own."""
    places = {name: place for place, name in enumerate(declared or ())}

    def place(entry: Any) -> int:
        name = entry.get("name") if isinstance(entry, dict) else None
        return places.get(name, 0) if isinstance(name, str) else 0

    return sorted(raw, key=place)
