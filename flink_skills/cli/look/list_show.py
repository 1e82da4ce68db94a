"""``flink-skills list``: the skills of sources as a job loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from flink_skills.cli.command_options import FAILED, Assignments, Format, OutputFormat, Sources, configuration

if TYPE_CHECKING:
    from flink_skills.cli.look.source_contents import LoadedSkill, SourceContents

__all__ = ["list_skills"]

_SHORT_DIGEST = 12


def list_skills(sources: Sources, *, format_: OutputFormat = Format.TEXT, set_: Assignments = None) -> None:
    """List the skills of sources as a job loads them.

    The list has the name, description, origin, number of files, size and digest of each skill. If several skills have
    the same name, only the skill that a job uses is listed, and the others are reported on stderr.

    Examples:

        flink-skills list ./skills

        flink-skills list ./skills https://example.org/more.zip --format json
    """
    from flink_skills.cli.look.source_contents import Depth, read_sources, report_problems
    from flink_skills.cli.printing import print_json

    contents = read_sources(sources, configuration(set_), Depth.FILES)
    if format_ is Format.JSON:
        print_json([_to_json(skill) for skill in contents.loaded])
    elif contents.loaded:
        _print(contents)
    report_problems(contents)
    raise typer.Exit(FAILED if contents.has_errors else 0)


def _to_json(loaded: LoadedSkill) -> dict[str, object]:
    sizes = loaded.sizes
    return {
        "name": loaded.name,
        "description": loaded.skill.description,
        "path": loaded.path,
        "origin": loaded.origin,
        "digest": loaded.digest,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
    }


def _print(contents: SourceContents) -> None:
    from flink_skills.cli.printing import Column, print_table, size_text

    several = len({loaded.origin for loaded in contents.loaded}) > 1
    columns = [
        Column("NAME"),
        Column("FILES", right=True, optional=True),
        Column("SIZE", right=True, optional=True),
        Column("DIGEST", optional=True),
        *((Column("ORIGIN", optional=True),) if several else ()),
        Column("DESCRIPTION"),
    ]
    rows = []
    for loaded in contents.loaded:
        sizes = loaded.sizes
        rows.append(
            [
                loaded.name,
                f"{len(sizes):,}",
                size_text(sum(sizes.values())),
                (loaded.digest or "?")[:_SHORT_DIGEST],
                *((contents.display_path(loaded.origin),) if several else ()),
                " ".join(loaded.skill.description.split()),
            ]
        )
    print_table(columns, rows)
