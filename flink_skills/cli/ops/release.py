"""``flink-skills pack``: a reproducible archive of skills."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.command_options import FAILED, Assignments, Format, OutputFormat, Strict, configuration

if TYPE_CHECKING:
    from flink_skills.sources.packing import Packing

__all__ = ["pack"]


def pack(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR", show_default=False, help="Folder of skills or of one skill, or a URL. Can be repeated."
        ),
    ],
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Archive to write: .zip, .tar, .tar.gz or .tgz.")
    ] = "skills.zip",
    allow_secrets: Annotated[
        bool,
        typer.Option("--allow-secrets", help="Pack files that look like secrets, with a warning instead of an error."),
    ] = False,
    strict: Strict = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Pack skills into one archive for jobs.

    Jobs can read the archive from a path, the job JAR or a URL. The same skills always produce the same bytes. If a job
    would reject the content, all problems are reported and no archive is written. This includes files that look like
    secrets: .env, private keys, files with tokens. Generated files, such as __pycache__, node_modules and .venv, are
    not packed.

    Examples:

        flink-skills pack ./skills -o skills.zip

        flink-skills pack ./skills/log-triage ./more -o skills.tar.gz

        flink-skills pack s3://bucket/skills/ -o ops.tar
    """
    from flink_skills.cli.command_options import absolute_path, absolute_source, parse_source
    from flink_skills.cli.printing import diagnostic_json, print_json
    from flink_skills.options import SkillOptions
    from flink_skills.skill import Limits
    from flink_skills.sources import SourceContext, SourceSpec, open_source
    from flink_skills.sources.packing import pack_skills

    config = configuration(set_, strict=strict)
    context = SourceContext(config)
    specs = [absolute_source(parse_source(folder)) for folder in folders]
    # The leases keep these trees in the store until they are packed.
    trees = {spec: open_source("url", spec, context).resolve() for spec in specs if spec.kind == "url"}
    packing = pack_skills(
        [
            folder
            for spec in specs
            for folder in (
                [SourceSpec("path", tree.path, format=tree.format) for tree in trees[spec]] if spec in trees else [spec]
            )
        ],
        absolute_path(output),
        limits=Limits.from_config(config),
        strict=config.get(SkillOptions.STRICT),
        allow_secrets=allow_secrets,
    )
    if format_ is Format.JSON:
        archive = {"path": absolute_path(output), "sha256": packing.sha256, "bytes": packing.bytes}
        print_json(
            {
                "archive": archive if packing.sha256 else None,
                "skills": [
                    {
                        "name": skill.name,
                        "path": skill.path,
                        "digest": skill.digest,
                        "files": skill.files,
                        "bytes": skill.bytes,
                    }
                    for skill in packing.skills
                ],
                "diagnostics": [diagnostic_json(diagnostic) for diagnostic in packing.diagnostics],
            }
        )
    _print(packing, output, table=format_ is Format.TEXT)
    raise typer.Exit(0 if packing.sha256 else FAILED)


def _print(packing: Packing, output: str, *, table: bool) -> None:
    from flink_skills.cli.printing import (
        Column,
        counted,
        diagnostic_line,
        print_error,
        print_line,
        print_table,
        size_text,
    )

    for one in packing.diagnostics:
        if one.severity == "error" or (table and (one.severity == "warning" or one.code == "D07")):
            print_line(*diagnostic_line(one), stream=sys.stderr)
    if not packing.sha256:
        errors = sum(one.severity == "error" for one in packing.diagnostics)
        print_error(f"{output} is not written because of {counted(errors, 'error')}")
    elif table:
        columns = [Column("NAME"), Column("ARCHIVE PATH", optional=True), Column("FILES", right=True)]
        columns += [Column("SIZE", right=True), Column("DIGEST")]
        rows = [[s.name, s.path, f"{s.files:,}", size_text(s.bytes), s.digest] for s in packing.skills]
        print_table(columns, rows)
        size = f"{counted(len(packing.skills), 'skill')}, {size_text(packing.bytes)}"
        print_line((output, "bold"), f": {size}, sha256 {packing.sha256}")
