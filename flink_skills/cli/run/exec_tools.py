"""Bundled tools of a skill, listed and called in a sandbox."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flink_skills.cli.run.exec_sandbox import ExecRequest, Outcome, Sandbox, run_in_sandbox
from flink_skills.cli.terminal_output import (
    Column,
    print_error,
    print_json,
    print_line,
    print_note,
    print_table,
    size_text,
)
from flink_skills.errors import ConfigError, UnknownNameError, counted
from flink_skills.manager import SkillView
from flink_skills.texts import visible
from flink_skills.tools import ToolContext
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.dynamic import BundledTools, Described, tool_places
from flink_skills.tools.profiles import brings_tools
from flink_skills.tools.schemas import fit_schema, json_types, matches


@dataclass
class _ToolOutcome(Outcome):
    """Outcome of describing or calling tools. ``locations`` are the file and line of each tool."""

    skill: str = ""
    path: str = ""
    described: Described = field(default_factory=Described)
    locations: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def specs(self) -> dict[str, Mapping[str, Any]]:
        """Return the descriptions of the tools by name."""
        return {str(spec["name"]): spec for spec in self.described.specs}


def list_tools(request: ExecRequest, *, as_json: bool) -> int:
    """Print the tools that the skill bundles, as models receive them. Return the exit code."""
    outcome = _ToolOutcome()

    async def work(sandbox: Sandbox) -> None:
        bundled, _ = await _describe(sandbox, outcome)
        await bundled.close()

    signal_code = run_in_sandbox(request, outcome, work)
    problems = outcome.described.problems
    if as_json:
        tools = [{**spec, "from": outcome.locations.get(name, "")} for name, spec in outcome.specs.items()]
        described = {"skill": outcome.skill, "path": outcome.path, "tools": tools}
        print_json({**described, "problems": list(problems), "error": outcome.error})
    else:
        _print_tools(outcome)
    if outcome.error is not None:
        print_error(outcome.error)
    for problem in problems:
        print_error(f"skill {outcome.skill}: {problem}")
    return signal_code or (1 if outcome.error is not None or problems else 0)


def call_tool(
    request: ExecRequest, tool: str, assignments: Sequence[str], json_args: str | None, *, as_json: bool
) -> int:
    """Call a bundled tool as a model does, and print the result as a model receives it. Return the exit code.

    Args:
        request: Skill, limits and inputs.
        tool: Name of the tool.
        assignments: Arguments as ``KEY=VALUE``.
        json_args: Arguments as a JSON object. None if there are none.
        as_json: Whether to print JSON.
    """
    outcome = _ToolOutcome()

    async def work(sandbox: Sandbox) -> None:
        bundled, context = await _describe(sandbox, outcome)
        try:
            if _has_tool(outcome, tool):
                outcome.arguments = _read_arguments(tool, assignments, json_args, outcome.specs[tool]["parameters"])
                started = time.monotonic()
                outcome.result = await bundled.call(outcome.skill, tool, outcome.arguments, context)
                outcome.seconds = time.monotonic() - started
        finally:
            await bundled.close()

    signal_code = run_in_sandbox(request, outcome, work)
    result = outcome.result
    if result is None and outcome.error is None:
        outcome.error = f"skill {outcome.skill}: tool {tool} cannot be used: {'; '.join(outcome.described.problems)}"
    if as_json:
        print_json(
            {
                "skill": outcome.skill,
                "tool": tool,
                "arguments": outcome.arguments,
                "is_error": result is None or result.is_error,
                "content": None if result is None else result.content,
                "value": None if result is None else result.value,
                "duration_ms": round(outcome.seconds * 1000, 1),
                **outcome.to_json(),
            }
        )
    else:
        _print_result(outcome)
    return signal_code or (1 if result is None or result.is_error else 0)


async def _describe(sandbox: Sandbox, outcome: _ToolOutcome) -> tuple[BundledTools, ToolContext]:
    """Store the tools of the skill in ``outcome``. Return the tools, and a context for calls."""
    skill = sandbox.skill
    assert skill is not None  # noqa: S101 - the command requires a source
    outcome.skill, outcome.path, outcome.locations = skill.name, skill.path or "", tool_places(skill)
    bundled = BundledTools(sandbox.shell, sandbox.config)
    context = ToolContext(
        key="flink-skills exec",
        call_id="exec",
        skills=SkillView([skill]),
        workspace=sandbox.workspace,
        shell=sandbox.shell,
    )
    try:
        if brings_tools(skill):
            outcome.described = await bundled.describe(skill, context)
    except BaseException:
        await bundled.close()
        raise
    return bundled, context


def _has_tool(outcome: _ToolOutcome, tool: str) -> bool:
    """Return True if the skill has the tool, and False if problems may be the reason why it has not.

    Raises:
        UnknownNameError: The skill bundles other tools.
        ConfigError: The skill bundles no tools.
    """
    if tool in outcome.specs:
        return True
    if outcome.specs:
        for problem in outcome.described.problems:
            print_error(f"skill {outcome.skill}: {problem}")  # A possible reason.
        raise UnknownNameError("tool", tool, outcome.specs, place=f"skill {outcome.skill}")
    if not outcome.described.problems:
        raise ConfigError(f"skill {outcome.skill} bundles no tools. Add a tools.py or a schema.json.")
    return False


def _read_arguments(
    tool: str, assignments: Sequence[str], json_args: str | None, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a tool.

    A string is passed verbatim, and a value of any other type is JSON. If several types are possible, the value is
    JSON if it matches one of them, otherwise a string.

    Raises:
        ConfigError: An assignment is not ``KEY=VALUE`` or duplicates an argument, or the arguments do not match the
            schema ``parameters``.
    """
    try:
        values = {} if json_args is None else json.loads(json_args)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"tool {tool}: --json-args is not valid JSON ({error}).") from None
    if not isinstance(values, dict):
        raise ConfigError(f"""tool {tool}: --json-args is not a JSON object. Write an object such as '{{"a": 1}}'.""")
    properties = parameters.get("properties")
    declared: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            example = next(iter(declared), "KEY")
            raise ConfigError(f"tool {tool}: expected KEY=VALUE, such as {example}=…, got {assignment!r}")
        if key in values:
            raise ConfigError(f"tool {tool}: argument {key} is set twice. Omit one of them.")
        values[key] = _parse_value(text, json_types(declared.get(key), parameters))
    try:
        fit_schema(tool, values, parameters)
    except ArgumentError as error:
        raise ConfigError(f"tool {error}") from None
    return values


def _parse_value(text: str, types: Sequence[str]) -> Any:
    if types == ("string",):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if "string" in types and not matches(value, types) else value


def _print_result(outcome: _ToolOutcome) -> None:
    if outcome.result is not None:
        content = outcome.result.content
        sys.stdout.write(f"{visible(content) if sys.stdout.isatty() else content}\n")
        sys.stdout.flush()
    if outcome.error is not None:
        print_error(outcome.error)
    for file in outcome.files:
        print_note(f"file {file['path']}  {size_text(file['bytes'])}")
    for note in outcome.notes:
        print_note(f"note: {note}")


def _print_tools(outcome: _ToolOutcome) -> None:
    specs = outcome.specs
    if outcome.error is None or specs:
        is_empty = not specs and not outcome.described.problems
        reason = ". The skill has no tools.py and no schema.json with tools." if is_empty else ""
        print_line((outcome.skill, "bold"), f": {counted(len(specs), 'tool')}{reason}")
    for name, spec in specs.items():
        print_line()
        print_line((name, "bold"), f"  ({outcome.locations.get(name, '')})")
        if spec["description"] != name:
            print_line(f"  {spec['description']}")
        schema = spec["parameters"]
        rows = [
            [
                f"  {parameter}",
                " or ".join(json_types(about, schema)) or "any",
                "required" if parameter in schema.get("required", ()) else _default(about),
                str(about.get("description", "")) if isinstance(about, Mapping) else "",
            ]
            for parameter, about in schema.get("properties", {}).items()
        ]
        if rows:
            columns = [Column("  PARAMETER"), Column("TYPE"), Column("VALUE"), Column("DESCRIPTION", wrapped=True)]
            print_table(columns, rows)


def _default(parameter: Any) -> str:
    if not isinstance(parameter, Mapping) or "default" not in parameter:
        return "optional"
    return f"default {json.dumps(parameter['default'], ensure_ascii=False)}"
