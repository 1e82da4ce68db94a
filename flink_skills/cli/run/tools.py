"""``flink-skills tools``: the bundled tools of a skill with the descriptions that models receive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from flink_skills.cli.command_options import (
    FAILED,
    AsJson,
    Assignments,
    Backend,
    Format,
    OutputFormat,
    SkillName,
    SkillSource,
    Timeout,
    configuration,
)

if TYPE_CHECKING:
    from flink_skills.cli.run.exec_tools import ToolOutcome

__all__ = ["tools"]


def tools(
    skill_source: SkillSource,
    *,
    skill: SkillName = None,
    backend: Backend = None,
    timeout: Timeout = None,
    json_: AsJson = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """List the tools that a skill bundles.

    The list has the tools of tools.py and schema.json with their parameters. tools.py runs in the sandbox, as in a job,
    because it defines the tools at run time.

    Examples:

        flink-skills tools ./skills/geo

        flink-skills tools ./skills --skill geo --json
    """
    from flink_skills.cli.printing import print_error, print_json
    from flink_skills.cli.run.exec_tools import ToolsRequest, run_with_tools

    config = configuration(set_)
    if backend is not None:
        config.set("skills.shell.backend", backend)
    signal_code, outcome = run_with_tools(ToolsRequest(skill_source, config, skill, timeout=timeout))
    if json_ or format_ is Format.JSON:
        print_json(_report(outcome))
    else:
        _print(outcome)
    if outcome.error is not None:
        print_error(outcome.error)
    for problem in outcome.described.problems:
        print_error(f"skill {outcome.skill}: {problem}")
    raise typer.Exit(signal_code or (FAILED if outcome.error is not None or outcome.described.problems else 0))


def _report(outcome: ToolOutcome) -> dict[str, Any]:
    return {
        "skill": outcome.skill,
        "path": outcome.path,
        "tools": [{**spec, "from": outcome.locations.get(str(spec["name"]), "")} for spec in outcome.described.specs],
        "problems": list(outcome.described.problems),
        "error": outcome.error,
    }


def _print(outcome: ToolOutcome) -> None:
    from flink_skills.cli.printing import counted, print_line

    specs = outcome.described.specs
    if outcome.error is None or specs:
        is_empty = not specs and not outcome.described.problems
        reason = ". The skill has no tools.py and no schema.json with tools." if is_empty else ""
        print_line((outcome.skill, "bold"), f": {counted(len(specs), 'tool')}{reason}")
    for spec in specs:
        print_line()
        print_line((str(spec["name"]), "bold"), f"  ({outcome.locations.get(str(spec['name']), '')})")
        if spec["description"] != spec["name"]:
            print_line(f"  {spec['description']}")
        _print_parameters(spec["parameters"])


def _print_parameters(schema: Mapping[str, Any]) -> None:
    from flink_skills.cli.printing import Column, print_table
    from flink_skills.tools.schemas import json_types

    required = schema.get("required", ())
    rows = [
        [
            f"  {name}",
            " or ".join(json_types(parameter, schema)) or "any",
            "required" if name in required else _default(parameter),
            str(parameter.get("description", "")) if isinstance(parameter, Mapping) else "",
        ]
        for name, parameter in schema.get("properties", {}).items()
    ]
    if rows:
        columns = [Column("  PARAMETER"), Column("TYPE"), Column("VALUE"), Column("DESCRIPTION", wrapped=True)]
        print_table(columns, rows)


def _default(parameter: Any) -> str:
    import json

    if not isinstance(parameter, Mapping) or "default" not in parameter:
        return "optional"
    return f"default {json.dumps(parameter['default'], ensure_ascii=False)}"
