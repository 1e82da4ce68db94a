"""``flink-skills tools``: the tools that a skill brings, with the descriptions that models get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from flink_skills.cli.words import (
    FAILED,
    AsJson,
    Assignments,
    Backend,
    Format,
    OneSource,
    OutputFormat,
    SkillName,
    Timeout,
    configuration,
)

if TYPE_CHECKING:
    from flink_skills.cli.tool_session import ToolOutcome

__all__ = ["tools"]


def tools(
    skill_source: OneSource,
    *,
    skill: SkillName = None,
    backend: Backend = None,
    timeout: Timeout = None,
    json_: AsJson = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """List the tools that a skill brings in tools.py and schema.json, with their parameters.

    tools.py runs in the sandbox, as in a job, because it decides which tools there are; validate checks it without
    running it. Exit code 0; 1 when a tool cannot be used or the sandbox does not start; 2 for bad usage.

    Examples:

        flink-skills tools ./skills/geo

        flink-skills tools ./skills --skill geo --json
    """
    from flink_skills.cli.output import complain, print_json
    from flink_skills.cli.tool_session import AskedTools, with_tools

    config = configuration(set_)
    if backend is not None:
        config.set("skills.shell.backend", backend)
    interrupted, outcome = with_tools(AskedTools(skill_source, config, skill, timeout=timeout))
    if json_ or format_ is Format.JSON:
        print_json(_report(outcome))
    else:
        _print(outcome)
    if outcome.error is not None:
        complain(outcome.error)
    for problem in outcome.described.problems:
        complain(f"skill {outcome.skill}: {problem}")
    raise typer.Exit(interrupted or (FAILED if outcome.error is not None or outcome.described.problems else 0))


def _report(outcome: ToolOutcome) -> dict[str, Any]:
    return {
        "skill": outcome.skill,
        "path": outcome.path,
        "tools": [{**spec, "from": outcome.places.get(str(spec["name"]), "")} for spec in outcome.described.specs],
        "problems": list(outcome.described.problems),
        "error": outcome.error,
    }


def _print(outcome: ToolOutcome) -> None:
    from flink_skills.cli.output import counted, print_line

    specs = outcome.described.specs
    if outcome.error is None or specs:
        more = (
            "" if specs or outcome.described.problems else ": there is neither a tools.py nor a schema.json with tools"
        )
        print_line((outcome.skill, "bold"), f": {counted(len(specs), 'tool')}{more}")
    for spec in specs:
        print_line()
        print_line((str(spec["name"]), "bold"), f"  ({outcome.places.get(str(spec['name']), '')})")
        if spec["description"] != spec["name"]:
            print_line(f"  {spec['description']}")
        _print_parameters(spec["parameters"])


def _print_parameters(schema: Mapping[str, Any]) -> None:
    from flink_skills.cli.output import Column, print_table
    from flink_skills.cli.tool_arguments import types_of

    required = schema.get("required", ())
    rows = [
        [
            f"  {name}",
            " or ".join(types_of(about, schema)) or "any",
            "required" if name in required else _default(about),
            str(about.get("description", "")) if isinstance(about, Mapping) else "",
        ]
        for name, about in schema.get("properties", {}).items()
    ]
    if rows:
        columns = [Column("  PARAMETER"), Column("TYPE"), Column("VALUE"), Column("DESCRIPTION", wrapped=True)]
        print_table(columns, rows)


def _default(about: Any) -> str:
    import json

    if not isinstance(about, Mapping) or "default" not in about:
        return "optional"
    return f"default {json.dumps(about['default'], ensure_ascii=False)}"
