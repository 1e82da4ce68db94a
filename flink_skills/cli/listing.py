"""``flink-skills list``: the skills that a job would have of some sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, Sources, configuration

if TYPE_CHECKING:
    from flink_skills.cli.reading import LoadedSkill, Reading

__all__ = ["list_skills"]

_SHORT_DIGEST = 12


def list_skills(sources: Sources, *, format_: OutputFormat = Format.TEXT, set_: Assignments = None) -> None:
    """List the skills of sources: name, description, where they are from, files, size and digest.

    Of several skills with one name, the one that a job would use is listed and the others are reported.
    Exit code 0; 1 when a source cannot be read, has no skill, or a skill is skipped; 2 for bad usage.

    Examples:

        flink-skills list ./skills

        flink-skills list ./skills https://example.org/more.zip --format json
    """
    from flink_skills.cli.output import print_json
    from flink_skills.cli.problems import report_problems
    from flink_skills.cli.reading import Depth, read_sources

    reading = read_sources(sources, configuration(set_), Depth.FILES)
    if format_ is Format.JSON:
        print_json([_row(read) for read in reading.loaded])
    elif reading.loaded:
        _print(reading)
    report_problems(reading)
    raise typer.Exit(FAILED if reading.has_errors else 0)


def _row(read: LoadedSkill) -> dict[str, object]:
    sizes = read.sizes
    return {
        "name": read.name,
        "description": read.skill.description,
        "path": read.path,
        "origin": read.origin,
        "digest": read.digest,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
    }


def _print(reading: Reading) -> None:
    from flink_skills.cli.output import Column, print_table, size_text

    several = len({read.origin for read in reading.loaded}) > 1
    columns = [
        Column("NAME"),
        Column("FILES", right=True, optional=True),
        Column("SIZE", right=True, optional=True),
        Column("DIGEST", optional=True),
        *((Column("ORIGIN", optional=True),) if several else ()),
        Column("DESCRIPTION"),
    ]
    rows = []
    for read in reading.loaded:
        sizes = read.sizes
        rows.append(
            [
                read.name,
                f"{len(sizes):,}",
                size_text(sum(sizes.values())),
                (read.digest or "?")[:_SHORT_DIGEST],
                *((reading.shown(read.origin),) if several else ()),
                " ".join(read.skill.description.split()),
            ]
        )
    print_table(columns, rows)
