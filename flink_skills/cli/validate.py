"""``flink-skills validate``: everything that is odd about skills, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, Sources, Strict, configuration

if TYPE_CHECKING:
    from flink_skills.cli.reading import Reading, SkillStream

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

    One line for each problem, with its fix, as soon as it is found. Skills with deviations from the format load if they
    can be understood; --strict follows the format to the letter. Nothing of a skill runs. With --agent, names of tools
    that neither the skill nor the agent has are warnings. Exit code 0; 1 if there is an error; 2 for bad usage.

    Examples:

        flink-skills validate ./skills

        flink-skills validate --strict --format json https://example.org/skills.zip

        flink-skills validate ./skills --agent shop.agents:Shop
    """
    from flink_skills.cli.reading import SkillStream

    config = configuration(set_, strict=strict)
    offered = None
    if agent is not None:
        from flink_skills.cli.agent_tools import offered_tools

        offered = offered_tools(agent, config)
    stream = SkillStream(sources, config, offered=offered)
    severities: Counter[str] = Counter()
    if format_ is Format.JSON:
        _print_json(stream, severities)
    else:
        _print(stream, severities)
    raise typer.Exit(FAILED if severities["error"] else 0)


def _print_json(stream: SkillStream, severities: Counter[str]) -> None:
    from flink_skills.cli.output import diagnostic_json, print_json_object

    reading = stream.reading

    left_out = 0

    def diagnostics() -> Iterator[object]:
        nonlocal left_out
        for found in stream:
            severities[found.severity] += 1
            left_out += found.left_out
            yield diagnostic_json(found)

    def members() -> Iterator[tuple[str, object]]:
        yield "diagnostics", diagnostics()
        # Known at the end: a skill that was declared before is not among them.
        yield (
            "skills",
            ({"name": r.name, "path": r.path, "status": r.status, "digest": r.digest} for r in reading.skills),
        )
        loaded = _loaded(reading)
        yield (
            "summary",
            {
                "found": len(reading.skills),
                "loaded": loaded,
                "skipped": len(reading.skills) - loaded,
                "strict_valid": len(reading.strict_valid),
                **({"left_out": left_out} if left_out else {}),
            },
        )

    print_json_object(members())


def _print(stream: SkillStream, severities: Counter[str]) -> None:
    from flink_skills.cli.output import counted, diagnostic_line, print_line
    from flink_skills.cli.problems import left_out_text

    reading = stream.reading
    limits = []
    for found in stream:
        severities[found.severity] += 1
        if found.left_out:
            limits.append(found)
        print_line(*diagnostic_line(found, path=reading.shown(found.path)))
    loaded = _loaded(reading)
    skipped = len(reading.skills) - loaded
    print_line(
        (f"{counted(len(reading.skills), 'skill')}: ", "bold"),
        f"{loaded:,} loaded, {skipped:,} skipped, {len(reading.strict_valid):,} valid in strict mode; ",
        f"{left_out_text(limits)}; " if limits else "",
        ", ".join(counted(severities[severity], severity) for severity in ("error", "warning", "info")),
    )


def _loaded(reading: Reading) -> int:
    return sum(found.status == "loaded" for found in reading.skills)
