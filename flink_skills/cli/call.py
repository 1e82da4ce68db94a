"""``flink-skills call``: one tool that a skill brings, called as a model calls it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.words import (
    FAILED,
    AsJson,
    Assignments,
    Backend,
    Format,
    Inputs,
    LimitWords,
    OneSource,
    OutputFormat,
    SkillName,
    Timeout,
    configuration,
)

if TYPE_CHECKING:
    from flink_skills.cli.tool_session import SkillTools, ToolOutcome

__all__ = ["call"]


def call(
    skill_source: OneSource,
    tool: Annotated[str, typer.Argument(metavar="TOOL", show_default=False, help="The name of the tool.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            show_default=False,
            help="Arguments: strings as they are, other types as JSON, such as days=3 or tags=[1,2].",
        ),
    ] = None,
    *,
    json_args: Annotated[
        str | None,
        typer.Option("--json-args", metavar="JSON", show_default=False, help="Arguments as one JSON object."),
    ] = None,
    skill: SkillName = None,
    backend: Backend = None,
    timeout: Timeout = None,
    limit: LimitWords = None,
    input_: Inputs = None,
    json_: AsJson = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Call a tool that a skill brings exactly as a job would: in the sandbox, with its limits.

    Prints the result as a model reads it, and the files that the tool left. Of your files the tool sees those of
    --input and a copy of the skill. Exit code 0; 1 when the result is an error or the tool could not be run; 2 for bad
    usage.

    Examples:

        flink-skills call ./skills/geo distance start=Ulm end=Bonn

        flink-skills call ./skills/geo route --json-args '{"stops": ["Ulm", "Bonn"]}' --timeout 10 --json
    """
    from flink_skills.cli.output import complain, print_json
    from flink_skills.cli.tool_arguments import read_arguments
    from flink_skills.cli.tool_session import AskedTools, with_tools
    from flink_skills.errors import ConfigError, UnknownNameError

    config = configuration(set_)
    if backend is not None:
        config.set("skills.shell.backend", backend)
    given: dict[str, Any] = {}

    async def work(tools: SkillTools) -> None:
        if tool not in tools.specs:
            for problem in tools.problems if tools.specs else ():
                complain(f"skill {tools.skill.name}: {problem}")  # it may be the reason
            if tools.specs:
                raise UnknownNameError("tool", tool, tools.specs, place=f"skill {tools.skill.name}")
            if not tools.problems:
                raise ConfigError(f"skill {tools.skill.name} brings no tools: write a tools.py or a schema.json")
            return
        given.update(read_arguments(tool, arguments or (), json_args, tools.specs[tool]["parameters"]))
        await tools.call(tool, given)

    asked = AskedTools(skill_source, config, skill, tuple(limit or ()), timeout, tuple(input_ or ()))
    interrupted, outcome = with_tools(asked, work)
    if outcome.result is None and outcome.error is None:
        outcome.error = f"skill {outcome.skill}: tool {tool} cannot be used: {'; '.join(outcome.described.problems)}"
    if json_ or format_ is Format.JSON:
        print_json(_report(outcome, tool, given))
    else:
        _print(outcome)
    failed = outcome.result is None or outcome.result.is_error
    raise typer.Exit(interrupted or (FAILED if failed else 0))


def _report(outcome: ToolOutcome, tool: str, given: dict[str, Any]) -> dict[str, Any]:
    result = outcome.result
    return {
        "skill": outcome.skill,
        "tool": tool,
        "arguments": given,
        "is_error": result is None or result.is_error,
        "content": None if result is None else result.content,
        "value": None if result is None else result.value,
        "error": outcome.error,
        "duration_ms": round(outcome.seconds * 1000, 1),
        "level": outcome.report.level.name if outcome.report is not None else "NONE",
        "backend": (outcome.report.backend or None) if outcome.report is not None else None,
        "files": outcome.files,
        "notes": outcome.notes,
    }


def _print(outcome: ToolOutcome) -> None:
    from flink_skills.cli.output import complain, print_line, size_text, visible

    if outcome.result is not None:
        content = outcome.result.content
        sys.stdout.write(f"{visible(content) if sys.stdout.isatty() else content}\n")
        sys.stdout.flush()
    if outcome.error is not None:
        complain(outcome.error)
    for file in outcome.files:
        print_line(f"file {file['path']}  {size_text(file['bytes'])}", stream=sys.stderr)
    for note in outcome.notes:
        print_line(f"note: {note}", stream=sys.stderr)
