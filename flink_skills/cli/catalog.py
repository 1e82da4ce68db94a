"""``flink-skills catalog``: a page about skills, and about who may use which."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, configuration
from flink_skills.errors import ConfigError

if TYPE_CHECKING:
    from flink_skills.cli.catalog_data import Catalog

__all__ = ["catalog"]


def catalog(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help="Folders, archives or URLs of skills, as for list. With --agent these are the job's; with --job they "
            "take the place of the job's own.",
        ),
    ] = None,
    *,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", show_default=False, help="Write the page; - is stdout."),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option("--job", metavar="JOB.yaml", show_default=False, help="Show what the models of this job see."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="AGENT", show_default=False, help="The same for module:Class or a YAML file."),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Show skills with their sizes, problems and digests, and which agent and model sees which.

    With --html, one page that needs no network and nothing else: for a browser, a wiki, an artifact of a build.
    Without, a table on stdout, or all of it as JSON.
    Exit code 0; 1 when a source cannot be read, has no skill, or a skill has an error, which the page shows as well;
    2 for bad usage.

    Examples:

        flink-skills catalog ./skills --html skills.html

        flink-skills catalog --job job.yaml --html skills.html
    """
    from flink_skills.cli.catalog_data import catalog_of_job, catalog_of_sources

    config = configuration(set_)
    if job is not None and agent is not None:
        raise ConfigError("give --job or --agent, not both: a job names its agent")
    if not sources and job is None and agent is None:
        raise ConfigError("give a SOURCE of skills, --job or --agent")
    if job is not None or agent is not None:
        found = catalog_of_job(tuple(sources or ()), config, assignments=tuple(set_ or ()), job=job, agent=agent)
    else:
        found = catalog_of_sources(tuple(sources or ()), config)
    if html is not None:
        from flink_skills.cli.catalog_html import render_page

        _write(render_page(found), html)
    if html is None:
        _print(found, format_)
    _report(found, html)
    raise typer.Exit(FAILED if found.has_errors else 0)


def _write(text: str, target: str) -> None:
    """Write the page, all of it or nothing."""
    if target == "-":
        sys.stdout.write(text)
        return
    file = Path(target)
    part = file.with_name(f".{file.name[:100]}.{secrets.token_hex(6)}")
    try:
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--html {target}: {error.strerror or error}") from error


def _print(found: Catalog, format_: Format) -> None:
    from flink_skills.cli.output import Column, print_json, print_table, size_text

    if format_ is Format.JSON:
        print_json(found.to_json())
        return
    if not found.skills:
        return
    columns = [
        Column("NAME"),
        Column("FILES", right=True, optional=True),
        Column("SIZE", right=True, optional=True),
        Column("MENU", right=True),
        Column("BODY", right=True),
        Column("PROBLEMS"),
        *([Column("SEEN BY")] if found.viewers else []),
    ]
    rows = [
        [
            skill.name,
            f"{len(skill.files):,}",
            size_text(skill.size),
            f"{skill.menu.tokens:,}",
            f"{skill.body.tokens:,}",
            " ".join(dict.fromkeys(said.code for said in skill.diagnostics)) or "none",
            *([", ".join(found.viewers[at].label for at in skill.seen_by) or "nobody"] if found.viewers else []),
        ]
        for skill in found.skills
    ]
    print_table(columns, rows)


def _report(found: Catalog, html: str | None) -> None:
    """What is wrong, on stderr; and where the page is."""
    from flink_skills.cli.output import counted, diagnostic_line, print_line

    for said in found.all_diagnostics:
        if said.severity == "error":
            print_line(*diagnostic_line(said), stream=sys.stderr)
    if html is not None:
        counts = found.counts
        print_line(
            f"{'page' if html == '-' else html}: {counted(len(found.skills), 'skill')}, "
            f"{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}",
            stream=sys.stderr,
        )
