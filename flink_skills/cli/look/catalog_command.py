"""``flink-skills catalog``: a table or an HTML page of skills and the models that see them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.shared_options import (
    FAILED,
    Assignments,
    Format,
    OutputFormat,
    SkillsOption,
    Sources,
    configuration,
    text_option,
)
from flink_skills.cli.terminal_output import (
    Column,
    diagnostic_line,
    print_json,
    print_note,
    print_table,
    size_text,
    write_file,
)
from flink_skills.errors import ConfigError, counted
from flink_skills.telemetry.activity import map_strings
from flink_skills.texts import replace_hidden, visible

if TYPE_CHECKING:
    from flink_skills.cli.look.catalog_data import Catalog

_FILES = Path(__file__).with_name("page_files")


def render_page(view: str, title: str, data: dict[str, Any], *, alternative: str) -> str:
    """Return the page as HTML. The result depends only on the arguments.

    The script inserts strings of ``data`` as text, never as markup. As a second barrier, the content security policy
    allows only the script of the page. Invisible characters are marked.

    Args:
        view: Name of the script in ``page_files`` that shows the data.
        title: Title of the page, which is also in the data.
        data: JSON data.
        alternative: Sentence for browsers without JavaScript.
    """
    style = _read("page.css")
    script = _read("page.js") + _read(f"{view}.js")
    # The text of a script element ends at the first "</script".
    encoded = json.dumps(map_strings({"title": title, **data}, _mark_hidden)).replace("<", "\\u003c")
    return Template(_read("page.html")).substitute(
        title=html.escape(visible(title)),
        alternative=html.escape(alternative),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=encoded,
    )


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _mark_hidden(text: str) -> str:
    """Return ``text`` with each hidden character as ``U+…`` between U+E000 and U+E001.

    Private characters are hidden as well, so the data contains no other U+E000.
    """
    return replace_hidden(text, lambda char: f"\ue000U+{ord(char):04X}\ue001")


def catalog(
    sources: Sources = None,
    *,
    skills: SkillsOption = None,
    html: Annotated[
        str | None, text_option("--html", "FILE", "Write an HTML page to FILE. - writes to stdout.")
    ] = None,
    job: Annotated[
        Path | None, text_option("--job", "JOB.yaml", "Show the skills that the models of this job see.")
    ] = None,
    agent: Annotated[
        str | None,
        text_option(
            "--agent", "AGENT", "Show the skills that the models of this agent see: module:Class or a YAML file."
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Show skills, their problems, and which models see them.

    Without --html, the command prints a table, or all data as JSON. With --html, it writes one self-contained page that
    loads nothing from the network, for example as a build artifact. The page requires JavaScript. It also shows errors.

    Examples:

        flink-skills catalog --skills ./skills --html skills.html

        flink-skills catalog --job job.yaml --html skills.html
    """
    from flink_skills.cli.look.catalog_data import read_job_catalog, read_source_catalog

    config = configuration(set_)
    if job is not None and agent is not None:
        raise ConfigError("--job and --agent cannot be combined: the job file names its agent. Omit one of them.")
    found = (*(sources or ()), *(skills or ()))
    if not found and job is None and agent is None:
        raise ConfigError("--skills, --job or --agent is required, for example: flink-skills catalog --skills ./skills")
    if job is not None or agent is not None:
        contents = read_job_catalog(found, config, assignments=tuple(set_ or ()), job=job, agent=agent)
    else:
        contents = read_source_catalog(found, config)
    if html is not None:
        _write_page(contents, html)
    elif format_ is Format.JSON:
        print_json(contents.to_json())
    elif contents.skills:
        _print(contents)
    _report(contents, html)
    raise typer.Exit(FAILED if contents.has_errors else 0)


def _write_page(contents: Catalog, target: str) -> None:

    title = "Skills" if contents.title == "Skills" else f"Skills of {contents.title}"
    alternative = "The command flink-skills catalog prints the same data as a table, or as JSON with --format json."
    page = render_page("catalog", title, contents.to_page(), alternative=alternative)
    if target == "-":
        sys.stdout.write(page)
    else:
        write_file("--html", target, page)


def _print(contents: Catalog) -> None:
    has_plugins = any(skill.plugin for skill in contents.skills)
    columns = [
        Column("NAME"),
        *([Column("PLUGIN", optional=True)] if has_plugins else []),
        Column("FILES", right=True, optional=True),
        Column("SIZE", right=True, optional=True),
        Column("MENU", right=True),
        Column("BODY", right=True),
        Column("PROBLEMS"),
        *([Column("SEEN BY")] if contents.viewers else []),
    ]
    rows = [
        [
            skill.name,
            *([skill.plugin] if has_plugins else []),
            f"{len(skill.files):,}",
            size_text(skill.size),
            f"{skill.menu.tokens:,}",
            f"{skill.body.tokens:,}",
            " ".join(dict.fromkeys(diagnostic.code for diagnostic in skill.diagnostics)) or "none",
            *(
                [", ".join(contents.viewers[index].label for index in skill.seen_by) or "none"]
                if contents.viewers
                else []
            ),
        ]
        for skill in contents.skills
    ]
    print_table(columns, rows)


def _report(contents: Catalog, html: str | None) -> None:
    """Print the errors and the location of the page on stderr."""
    for diagnostic in contents.all_diagnostics:
        if diagnostic.severity == "error":
            print_note(*diagnostic_line(diagnostic))
    if html is not None:
        counts = contents.counts
        print_note(
            f"{'page' if html == '-' else html}: {counted(len(contents.skills), 'skill')}, "
            f"{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}"
        )
