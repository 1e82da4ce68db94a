"""``flink-skills show``: one skill in full, or one of its files."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, configuration
from flink_skills.errors import ResourceError, UnknownNameError

if TYPE_CHECKING:
    from flink_skills.cli.reading import LoadedSkill, Reading
    from flink_skills.skill import AgentSkill, Limits
    from flink_skills.skill.yaml_values import Node

__all__ = ["show"]


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The name of the skill.")],
    *,
    source: Annotated[
        list[str],
        typer.Option("--source", metavar="SOURCE", help="Where to look for it, as for list; may be repeated."),
    ],
    resource: Annotated[
        str | None,
        typer.Option(
            "--resource",
            metavar="PATH",
            show_default=False,
            help="Print this file of the skill instead, byte for byte.",
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Show one skill: its front matter as it stands in the file, its body, its files and what is odd about it.

    Exit code 0; 1 when there is no such skill or file, or the skill has an error; 2 for bad usage.

    Examples:

        flink-skills show log-triage --source ./skills

        flink-skills show log-triage --source ./skills --resource scripts/triage.py > triage.py
    """
    from flink_skills.cli.output import complain
    from flink_skills.cli.problems import report_problems
    from flink_skills.cli.reading import Depth, read_sources
    from flink_skills.skill import Limits

    config = configuration(set_)
    reading = read_sources(source, config, Depth.FRONT_MATTER if resource else Depth.BODY, only=name)
    found = next((read for read in reading.loaded if read.name == name), None)
    if found is None:
        report_problems(reading)
        skipped = [read for read in reading.skills if read.name == name]
        if skipped:
            complain(f"the skill {name!r} of {reading.shown(skipped[0].path)} cannot be loaded")
        else:
            complain(str(UnknownNameError("skill", name, [read.name for read in reading.loaded])))
        raise typer.Exit(FAILED)
    limits = Limits.from_config(config)
    try:
        if resource is not None:
            _print_resource(found.skill, resource, limits, format_)
            failed = False
        else:
            failed = _show(reading, found, limits, format_)
    except ResourceError as error:
        complain(f"skill {name!r}: {error}")
        raise typer.Exit(FAILED) from None
    # The skill may be another one than a job would use where a source is missing.
    unread = [said for said in reading.diagnostics if said.code in ("D04", "D06")]
    report_problems(reading, unread)
    raise typer.Exit(FAILED if failed or unread else 0)


def _show(reading: Reading, found: LoadedSkill, limits: Limits, format_: Format) -> bool:
    """Show the skill; whether there is an error in it."""
    from flink_skills.cli.output import diagnostic_json, print_json

    skill, said = found.skill, reading.diagnostics_of(found)
    front_matter = _front_matter(skill, limits)
    if format_ is Format.JSON:
        print_json(
            {
                "name": skill.name,
                "description": skill.description,
                "path": found.path,
                "origin": found.origin,
                "digest": found.digest,
                "front_matter": front_matter,
                "extra": dict(skill.extra),
                "body": skill.instructions,
                "files": [{"path": path, "bytes": size} for path, size in found.sizes.items()],
                "diagnostics": [diagnostic_json(each) for each in said],
            }
        )
    else:
        _print(reading, found, front_matter)
    return any(each.severity == "error" for each in said)


def _print(reading: Reading, found: LoadedSkill, front_matter: dict[str, Any]) -> None:
    from flink_skills.cli.output import Column, diagnostic_line, print_line, print_table, size_text, visible

    print_line((found.name, "bold"), f"  {reading.shown(found.path)}")
    print_line(f"digest {found.digest}")
    sys.stdout.write("\n")
    fields = [[field, _value_text(value)] for field, value in front_matter.items()]
    print_table([Column("FIELD"), Column("AS IT STANDS IN THE FILE", wrapped=True)], fields)
    sys.stdout.write("\n")
    files = [[size_text(size), path] for path, size in found.sizes.items()]
    print_table([Column("SIZE", right=True), Column("FILE", wrapped=True)], files)
    sys.stdout.write("\n" if reading.diagnostics_of(found) else "")
    for each in reading.diagnostics_of(found):
        print_line(*diagnostic_line(each, path=reading.shown(each.path)))
    sys.stdout.write(f"\n{visible(found.skill.instructions)}\n")


def _value_text(value: Any) -> str:
    """A value as a person reads it: text as it is, maps and lists a line for each item."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_value_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "\n".join(f"- {_value_text(item)}" for item in value)
    return str(value)


def _front_matter(skill: AgentSkill, limits: Limits) -> dict[str, Any]:
    """The fields with every value in its source text: ``1.0`` stays ``"1.0"`` and ``yes`` stays ``"yes"``."""
    from flink_skills.skill import Report
    from flink_skills.skill.frontmatter import find_block, read_front_matter

    data = skill.files.read(skill.files.skill_file, 0, limits.skill_file).data
    report = Report()
    block = find_block(data, report, limits)
    entries = read_front_matter(block, report, limits) if block else None
    return {name: _source_value(entry.value) for name, entry in (entries or {}).items()}


def _source_value(node: Node) -> Any:
    from flink_skills.skill.yaml_values import source_text

    if isinstance(node, dict):
        return {key: _source_value(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_source_value(item) for item in node]
    return source_text(node)


def _print_resource(skill: AgentSkill, path: str, limits: Limits, format_: Format) -> None:
    """Write a file of the skill as it is, a page at a time; in JSON as text, or base64 where it is none."""
    from flink_skills.cli.output import print_json

    first = skill.files.read(path, 0, limits.resource_read)
    if format_ is Format.TEXT:
        out, written = sys.stdout.buffer, 0
        page = first.data
        while page:
            out.write(page)
            written += len(page)
            page = skill.files.read(path, written, limits.resource_read).data if written < first.total else b""
        out.flush()
        return
    data = first.data
    while len(data) < first.total and (page := skill.files.read(path, len(data), limits.resource_read).data):
        data += page
    shown: dict[str, Any] = {"name": skill.name, "resource": path, "bytes": len(data)}
    try:
        print_json({**shown, "text": data.decode()})
    except UnicodeDecodeError:
        print_json({**shown, "base64": base64.b64encode(data).decode()})
