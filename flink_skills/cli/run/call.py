"""``flink-skills call``: one bundled tool of a skill, called as a model calls it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.command_options import (
    FAILED,
    AsJson,
    Assignments,
    Backend,
    Format,
    Inputs,
    LimitOptions,
    OutputFormat,
    SkillName,
    SkillSource,
    Timeout,
    configuration,
)

if TYPE_CHECKING:
    from flink_skills.cli.run.exec_tools import SkillTools, ToolOutcome

__all__ = ["call"]


def call(
    skill_source: SkillSource,
    tool: Annotated[str, typer.Argument(metavar="TOOL", show_default=False, help="Name of the tool.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            show_default=False,
            help="Argument of the tool. Strings are passed verbatim, other types as JSON, for example "
            "days=3 or tags=[1,2].",
        ),
    ] = None,
    *,
    json_args: Annotated[
        str | None,
        typer.Option(
            "--json-args", metavar="JSON", show_default=False, help="Arguments of the tool as one JSON object."
        ),
    ] = None,
    skill: SkillName = None,
    backend: Backend = None,
    timeout: Timeout = None,
    limit: LimitOptions = None,
    input_: Inputs = None,
    json_: AsJson = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Call a bundled tool of a skill in the sandbox.

    The tool runs with the isolation and the limits of a job. The command prints the result as a model receives it, and
    the output files of the tool. Of your files, the tool sees only the files of --input and a copy of the skill.

    Examples:

        flink-skills call ./skills/geo distance start=Ulm end=Bonn

        flink-skills call ./skills/geo route --json-args '{"stops": ["Ulm", "Bonn"]}' --timeout 10 --json
    """
    from flink_skills.cli.printing import print_error, print_json
    from flink_skills.cli.run.exec_tools import ToolsRequest, run_with_tools
    from flink_skills.cli.run.tool_arguments import read_arguments
    from flink_skills.errors import ConfigError, UnknownNameError

    config = configuration(set_)
    if backend is not None:
        config.set("skills.shell.backend", backend)
    values: dict[str, Any] = {}

    async def work(tools: SkillTools) -> None:
        if tool not in tools.specs:
            for problem in tools.problems if tools.specs else ():
                print_error(f"skill {tools.skill.name}: {problem}")  # A possible reason.
            if tools.specs:
                raise UnknownNameError("tool", tool, tools.specs, place=f"skill {tools.skill.name}")
            if not tools.problems:
                raise ConfigError(f"skill {tools.skill.name} bundles no tools. Add a tools.py or a schema.json.")
            return
        values.update(read_arguments(tool, arguments or (), json_args, tools.specs[tool]["parameters"]))
        await tools.call(tool, values)

    request = ToolsRequest(skill_source, config, skill, tuple(limit or ()), timeout, tuple(input_ or ()))
    signal_code, outcome = run_with_tools(request, work)
    if outcome.result is None and outcome.error is None:
        outcome.error = f"skill {outcome.skill}: tool {tool} cannot be used: {'; '.join(outcome.described.problems)}"
    if json_ or format_ is Format.JSON:
        print_json(_report(outcome, tool, values))
    else:
        _print(outcome)
    failed = outcome.result is None or outcome.result.is_error
    raise typer.Exit(signal_code or (FAILED if failed else 0))


def _report(outcome: ToolOutcome, tool: str, values: dict[str, Any]) -> dict[str, Any]:
    result = outcome.result
    return {
        "skill": outcome.skill,
        "tool": tool,
        "arguments": values,
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
    from flink_skills.cli.printing import print_error, print_line, size_text, visible

    if outcome.result is not None:
        content = outcome.result.content
        sys.stdout.write(f"{visible(content) if sys.stdout.isatty() else content}\n")
        sys.stdout.flush()
    if outcome.error is not None:
        print_error(outcome.error)
    for file in outcome.files:
        print_line(f"file {file['path']}  {size_text(file['bytes'])}", stream=sys.stderr)
    for note in outcome.notes:
        print_line(f"note: {note}", stream=sys.stderr)
