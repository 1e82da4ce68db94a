"""Bundled tools of skills: functions of ``tools.py``, and tools that ``schema.json`` declares.

They are untrusted code. They run only in the sandbox of the key that uses them, in a program that is kept for a while
(:mod:`flink_skills.tools.dynamic.skill_programs`). All its output is checked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink_skills.errors import SkillsError
from flink_skills.execution import Limits, Workspace
from flink_skills.execution.execution_backend import ExecutionBackend
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.process_streams import gap_text
from flink_skills.manager.menu import escape
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill.text import clean_line
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.dynamic.skill_programs import (
    UNUSABLE_PYTHON,
    Program,
    ProgramKey,
    Programs,
    Reply,
    program_argv,
)
from flink_skills.tools.dynamic.specs import (
    MAX_FILE_BYTES,
    MAX_TOOLS,
    SCHEMA_FILE,
    TOOLS_FILE,
    DeclaredTool,
    checked_parameters,
    checked_specs,
    parse_schema_file,
    read_json,
)
from flink_skills.tools.result_text import describe as describe_result
from flink_skills.tools.schemas import fit_schema
from flink_skills.tools.state import check_commands

if TYPE_CHECKING:
    from flink_skills.execution.execution_backend import LiveProcess, OnOutput
    from flink_skills.skill import AgentSkill
    from flink_skills.tools.commands.runner import ShellRunner


_MAX_DEPTH = 100
_MAX_PROBLEMS = 100
_MAX_PROBLEM_LENGTH = 300
# Shells' exit codes for a program that is missing or cannot be executed.
_NO_PYTHON = (126, 127)


@dataclass(frozen=True)
class Response:
    """A value or an ``error``, and the text that the tool ``printed``. ``is_rejected``: no function was called."""

    value: Any = None
    error: str = ""
    is_rejected: bool = False
    printed: str = ""

    @property
    def tools(self) -> list[Any]:
        """The described tools."""
        found = self.value.get("tools") if isinstance(self.value, dict) else None
        return found if isinstance(found, list) else []

    @property
    def problems(self) -> list[str]:
        """The described problems, as text for a prompt."""
        if self.error:
            printed = self.printed.strip().splitlines()[-1:]
            texts = [self.error, *(f"printed: {line}" for line in printed)]
        else:
            found = self.value.get("problems") if isinstance(self.value, dict) else None
            some = found[:_MAX_PROBLEMS] if isinstance(found, list) else []
            texts = [text for text in some if isinstance(text, str)]
        return [escape(clean_line(text[:_MAX_PROBLEM_LENGTH])) for text in texts]


def read_response(line: bytes, printed: bytes, hidden: HiddenValues, *, describes: bool = False) -> Response:
    """Return the response in a line of JSON, or an error for any other line. This takes long: not for an event loop.

    Args:
        line: The line of the program.
        printed: The printed text.
        hidden: Values to hide.
        describes: Whether the response describes tools. The lists in it are read up to their limits.
    """
    shown = hidden.in_text(printed.decode("utf-8", "replace"))
    try:
        read = read_json(line.decode("utf-8"))
        if not isinstance(read, dict) or not ({"value", "error"} & read.keys()):
            raise ValueError("the response has neither a value nor an error")
        value = read.get("value")
        value = _cleaned(_limited(value) if describes else value, hidden, 0)
        error = read.get("error")
    except (ValueError, RecursionError) as wrong:
        return Response(
            error=f"the response of the program is not valid: {clean_line(str(wrong))[:200]}", printed=shown
        )
    if error is None:
        return Response(value, printed=shown)
    text = _cleaned(error, hidden, 0) if isinstance(error, str) else ""
    text = text or "the program reported an error without a message"
    return Response(error=text, is_rejected=read.get("kind") == "arguments", printed=shown)


def command_response(stdout: bytes, stderr: bytes, hidden: HiddenValues) -> Response:
    """Return a command's response: its output as JSON if it is JSON, otherwise as a string.

    The outputs contain no hidden values. JSON can still contain one in an escaped form.
    """
    text = stdout.decode("utf-8", "replace")
    value: Any = text
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = _cleaned(read_json(text), hidden, 0)
        except (ValueError, RecursionError):
            value = text  # it only resembled JSON
    return Response(value, printed=stderr.decode("utf-8", "replace"))


def missing_response(
    reply: Reply, skill: str, printed: bytes, *, timeout: float, limit: int, limits: Limits
) -> Response:
    """Return the reason why there is no response."""
    shown, ended = printed.decode("utf-8", "replace"), reply.ended
    if reply.timed_out or (ended is not None and ended.timed_out):
        message = f"the program ran longer than {timeout:g} s and was terminated. Do the work in parts."
    elif reply.too_long:
        message = f"the program printed too much, or its result has more than {limit} bytes, the maximum of this job"
    elif ended is None:
        message = "the program ended without a result"
    elif ended.error is not None:
        message = f"the program could not be run safely: {ended.error}"
    elif ended.limit is not None:
        message = f"the program reached the limit {ended.limit} ({getattr(limits, ended.limit, '')}) of this job"
    elif ended.exit_code in _NO_PYTHON and "python3: " in shown:
        return Response(
            error=f"skill {skill!r} has its own tools, but commands have no python3 here "
            f"({shown.strip()}): the image of the TaskManagers needs python3 on its PATH, outside /root and /home"
        )
    elif ended.exit_code == UNUSABLE_PYTHON and shown.startswith("the tools of a skill need "):
        return Response(error=shown.strip())
    else:
        how = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"
        message = f"the program ended without a result ({how})"
    return Response(error=message, printed=shown)


def tool_result(response: Response, exposed: str) -> ToolResult:
    """Return the result for a model: a string verbatim, any other value as JSON, and then the printed text."""
    printed = f"\n\nprinted:\n{response.printed.rstrip()}" if response.printed.strip() else ""
    if response.error:
        content = response.error if response.is_rejected else f"{exposed} failed: {response.error}"
    else:
        content = response.value if isinstance(response.value, str) else json.dumps(response.value, ensure_ascii=False)
    return ToolResult(
        content + printed,
        is_error=bool(response.error),
        value=response.value,
        sections=(content, printed) if printed else (),
    )


def _limited(value: Any) -> Any:
    """Return a description's lists up to their limits: untrusted code can send a megabyte."""
    if not isinstance(value, dict):
        return None
    limits = {"tools": MAX_TOOLS + 1, "problems": _MAX_PROBLEMS}
    return {name: value[name][:most] for name, most in limits.items() if isinstance(value.get(name), list)}


def _cleaned(value: Any, hidden: HiddenValues, depth: int) -> Any:
    """Return ``value`` without hidden values and surrogates. Raise :class:`ValueError` if it is nested too deeply."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode()
        return hidden.in_text(text)
    if isinstance(value, Mapping):
        return {_cleaned(name, hidden, depth): _cleaned(part, hidden, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [_cleaned(part, hidden, depth + 1) for part in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = str(value)
        return value if hidden.in_text(text) == text else hidden.in_text(text)
    return value


_IDLE_SECONDS = 60.0
_LIFE_SECONDS = 3_600.0
_DESCRIBE_SECONDS = 30.0
_WAIT_SECONDS = 10.0
_MAX_SHOWN_PROBLEMS = 10
# All texts of 64 tools, and space for those that are omitted.
_DESCRIBE_BYTES = 1 << 20
# Around the response of a program that is not kept: its output limit is that of a command.
_MARGIN_BYTES = 256

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True)
class Described:
    """A skill's tools as models get them, and problems."""

    specs: tuple[dict[str, Any], ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Site:
    """Where the tools of a skill run for one key."""

    skill: AgentSkill
    workspace: Workspace
    folder: Path
    call_id: str

    @property
    def arguments(self) -> dict[str, Any]:
        """Shell arguments for a command at this site."""
        return {
            "workspace": self.workspace,
            "cwd": self.folder,
            "skill_name": self.skill.name,
            "call_id": self.call_id,
        }


class BundledTools:
    """The bundled tools of all skills, for all turns of a worker. Close it before its shell.

    A program is kept for each key, skill and version of the skill that was used lately: a later call can find what a
    tool left in memory, but must not rely on it. If processes cannot be kept (the backend ``remote``, or a limit on CPU
    time, which applies to each call), every call starts a program.

    Args:
        shell: Runs commands, and the programs under the same policy, limits and isolation.
        config: The options of the job.
        most: Maximum number of programs that run calls or are kept. None: ``skills.shell.max-concurrent``.
        idle: Time in seconds without a request after which a program is ended.
        wait: Maximum time in seconds that a call waits for those of other keys. After it the call is an error.

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
        self._programs = Programs(most=most, idle=idle, life=_LIFE_SECONDS, wait=wait)
        self._keeps_programs = (
            shell.level < IsolationLevel.REMOTE
            and not shell.limits.cpu_time
            and type(shell.backend).start_process is not ExecutionBackend.start_process
        )

    @property
    def running(self) -> int:
        """The number of programs that are kept."""
        return self._programs.running

    async def forget(self, workspace: str) -> None:
        """End the programs of a workspace."""
        await self._programs.forget(workspace)

    async def describe(self, skill: AgentSkill, context: ToolContext) -> Described:
        """Return the skill's tools. Its ``tools.py`` runs in the sandbox. Failures become problems."""
        try:
            declared, problems = await asyncio.to_thread(_declared, skill)
            raw: list[Any] = [tool.to_json() for tool in (declared or {}).values() if tool.command]
            functions = None if declared is None else [tool.to_json() for tool in declared.values() if not tool.command]
            if TOOLS_FILE in skill.files.paths() and functions != []:
                site = await self._site(skill, context)
                request = {"op": "describe", "declared": functions}
                timeout = min(_DESCRIBE_SECONDS, self._shell.limits.wall_time)
                response = await self._respond(site, request, _DESCRIBE_BYTES, timeout, describes=True)
                problems += [f"{TOOLS_FILE}: {text}" for text in response.problems]
                raw += response.tools
            else:
                problems += [
                    f"{SCHEMA_FILE}: the tool {entry['name']!r} is left out: it has no command, and there is no "
                    f"{TOOLS_FILE} with the function"
                    for entry in functions or ()
                ]
        except (ArgumentError, SkillsError) as error:
            return Described((), (f"the tools of skill {skill.name} cannot run: {error}",))
        # In the order of schema.json.
        order = list(declared or ())
        raw.sort(key=lambda entry: order.index(name) if (name := _name(entry)) in order else 0)
        specs, wrong = await asyncio.to_thread(checked_specs, raw)
        problems += wrong
        if len(problems) > _MAX_SHOWN_PROBLEMS:
            problems[_MAX_SHOWN_PROBLEMS:] = [f"and {len(problems) - _MAX_SHOWN_PROBLEMS} more problems"]
        return Described(specs, tuple(problems))

    def tool(self, skill_name: str, spec: Mapping[str, Any], exposed: str) -> Tool:
        """Return the tool that a ``spec`` from :meth:`describe` specifies. ``exposed`` is its name for models."""
        return _BundledTool(self, skill_name, spec, exposed)

    async def call(
        self, skill_name: str, name: str, arguments: Mapping[str, Any], context: ToolContext, exposed: str = ""
    ) -> ToolResult:
        """Call a loaded skill's tool ``name``. A failure is an error result."""
        exposed = exposed or name
        skill = context.skills.get(skill_name) if context.skills is not None else None
        if skill is None or (context.skill_state is not None and skill_name not in context.skill_state):
            return ToolResult(
                f"{exposed} is a tool of skill {skill_name}, which is not loaded: load it.", is_error=True
            )
        try:
            check_commands(context.skills, context.skill_state, skill_name)
            declared, _ = await asyncio.to_thread(_declared, skill)
            entry = (declared or {}).get(name)
            if declared is not None and entry is None:
                return ToolResult(
                    f"{exposed} is no longer a tool of skill {skill_name}: load the skill again.", is_error=True
                )
            site = await self._site(skill, context)
            if entry is not None and entry.command:
                return await self._run_command(site, entry, arguments, exposed)
            request = {
                "op": "call",
                "tool": name,
                "display_name": exposed,
                "arguments": arguments,
                "declared": None if entry is None else [entry.to_json()],
            }
            limits = self._shell.limits
            response = await self._respond(site, request, limits.output, limits.wall_time)
            return await asyncio.to_thread(tool_result, response, exposed)
        except (ArgumentError, SkillsError) as error:
            return ToolResult(f"{exposed} cannot run: {error}", is_error=True)

    async def close(self) -> None:
        """End all programs. Calling it again does nothing."""
        await self._programs.close()

    async def _site(self, skill: AgentSkill, context: ToolContext) -> _Site:
        workspace = await context.get_workspace()

        def stage() -> Path:
            workspace.ensure()
            return workspace.stage(skill)

        return _Site(skill, workspace, await asyncio.to_thread(stage), context.call_id)

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
        stdin = json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace")
        result = await self._shell.run(entry.command, stdin=stdin, **site.arguments)
        if result.exit_code != 0 or result.truncated:
            limits = self._shell.limits
            described = describe_result(result, limits, self._shell.level, limits.wall_time)
            failed = result.exit_code != 0
            failure = (f"{exposed} failed: ",) if failed else ()
            return ToolResult(
                "".join((*failure, described.content)),
                failed,
                described.value,
                sections=(*failure, *described.sections),
            )
        response = await asyncio.to_thread(command_response, result.stdout, result.stderr, self._shell.hidden)
        return await asyncio.to_thread(tool_result, response, exposed)

    async def _respond(
        self, site: _Site, request: Mapping[str, Any], limit: int, timeout: float, *, describes: bool = False
    ) -> Response:
        """Return the program's response to ``request``, without hidden values."""
        request = {**request, "call_id": site.call_id}
        if self._keeps_programs:
            key = ProgramKey(str(site.workspace.root), site.skill.name, site.skill.digest)
            reply = await self._programs.ask(
                key, lambda: self._start(site), request, limit=limit, timeout=timeout, describes=describes
            )
        else:
            reply = await self._run_once(site, request, timeout)
        hidden, limits = self._shell.hidden, self._shell.limits

        def read() -> Response:
            printed = hidden.in_bytes(reply.printed, gap_text(reply.dropped) if reply.dropped else b"")
            if reply.line is None:
                return missing_response(reply, site.skill.name, printed, timeout=timeout, limit=limit, limits=limits)
            return read_response(reply.line, printed, hidden, describes=describes)

        # Untrusted output can take long to read, and the event loop serves all keys.
        return await asyncio.to_thread(read)

    async def _run_once(self, site: _Site, request: Mapping[str, Any], timeout: float) -> Reply:
        limit = self._shell.limits.output - _MARGIN_BYTES
        stdin = json.dumps({**request, "id": 1, "limit": limit}).encode() + b"\n"
        result = await self._shell.run(program_argv(), stdin=stdin, timeout=timeout, **site.arguments)
        is_complete = result.stdout.endswith(b"\n") and not result.stdout_dropped
        return Reply(
            line=result.stdout if is_complete else None,
            printed=result.stderr,
            dropped=result.stderr_dropped,
            timed_out=result.timed_out,
            too_long=result.stdout_dropped > 0,
            ended=result,
        )

    async def _start(self, site: _Site) -> Program:
        async def start(on_output: OnOutput) -> LiveProcess:
            return await self._shell.start_process(
                program_argv(), timeout=_LIFE_SECONDS, on_output=on_output, **site.arguments
            )

        return await Program.start(start)


class _BundledTool(Tool):
    """A bundled tool as models see it."""

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

    def skills_of(self, arguments: Mapping[str, Any], context: ToolContext) -> Collection[str]:
        return (self._skill_name,)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await self._tools.call(self._skill_name, self._name, arguments, context, self._spec.name)


def _declared(skill: AgentSkill) -> tuple[dict[str, DeclaredTool] | None, list[str]]:
    """Return the tools and problems in ``schema.json``. The tools are None if the file is missing or has none."""
    if SCHEMA_FILE not in skill.files.paths():
        return None, []
    file = parse_schema_file(skill.files.read(SCHEMA_FILE, 0, MAX_FILE_BYTES + 1).data)
    return file.tools or None, [problem.text for problem in file.problems if problem.omits_tools]


def _name(entry: Any) -> Any:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""
