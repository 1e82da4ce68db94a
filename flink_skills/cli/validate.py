"""``flink-skills validate``: everything that is odd about skills, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, Sources, Strict, configuration

if TYPE_CHECKING:
    from flink_skills.cli.reading import Reading

__all__ = ["validate"]


def validate(
    sources: Sources,
    *,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            show_default=False,
            help="The agent whose tools the skills may name: module:Class or a YAML file.",
        ),
    ] = None,
    strict: Strict = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Check skills: front matter, body, links, files, tools, and what they ask for that a job does not have.

    One line for each problem, with its fix. Skills that can be understood load, whatever is odd about them; --strict
    holds them to the letter of the format. Nothing of a skill runs. With --agent, names of tools that neither the
    skill nor the agent has are warnings. Exit code 0; 1 when there is an error; 2 for bad usage.

    Examples:

        flink-skills validate ./skills

        flink-skills validate --strict --format json https://example.org/skills.zip

        flink-skills validate ./skills --agent shop.agents:Shop
    """
    from flink_skills.cli.output import print_json
    from flink_skills.cli.reading import Depth, read_sources

    config = configuration(set_, strict=strict)
    offered = None
    if agent is not None:
        from flink_skills.cli.agent_tools import offered_tools

        offered = offered_tools(agent, config)
    reading = read_sources(sources, config, Depth.BODY, offered=offered)
    if format_ is Format.JSON:
        print_json(_report(reading))
    else:
        _print(reading)
    raise typer.Exit(FAILED if reading.has_errors else 0)


def _report(reading: Reading) -> dict[str, object]:
    from flink_skills.cli.output import diagnostic_json

    loaded = len(reading.loaded)
    return {
        "skills": [
            {
                "name": read.name,
                "path": read.path,
                "status": read.status,
                "digest": read.digest,
            }
            for read in reading.skills
        ],
        "diagnostics": [diagnostic_json(found) for found in reading.diagnostics],
        "summary": {
            "found": len(reading.skills),
            "loaded": loaded,
            "skipped": len(reading.skills) - loaded,
            "strict_valid": len(reading.strict_valid),
        },
    }


def _print(reading: Reading) -> None:
    from flink_skills.cli.output import counted, diagnostic_line, print_line

    for found in reading.diagnostics:
        print_line(*diagnostic_line(found, path=reading.shown(found.path)))
    severities = [found.severity for found in reading.diagnostics]
    loaded = len(reading.loaded)
    skipped = len(reading.skills) - loaded
    print_line(
        (f"{counted(len(reading.skills), 'skill')}: ", "bold"),
        f"{loaded:,} loaded, {skipped:,} skipped, {len(reading.strict_valid):,} valid in strict mode; ",
        ", ".join(
            (
                counted(severities.count("error"), "error"),
                counted(severities.count("warning"), "warning"),
                counted(severities.count("info"), "info"),
            )
        ),
    )
