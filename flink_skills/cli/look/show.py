"""``flink-skills show``: one skill in full, or one of its files."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.command_options import FAILED, Assignments, Format, OutputFormat, configuration, text_option
from flink_skills.errors import ResourceError, UnknownNameError

if TYPE_CHECKING:
    from flink_skills.cli.look.source_contents import LoadedSkill, SourceContents
    from flink_skills.skill import AgentSkill, Limits
    from flink_skills.skill.yaml_values import Node

__all__ = ["show"]


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the skill.")],
    *,
    source: Annotated[
        list[str], text_option("--source", "SOURCE", "Folder, archive or URL that contains the skill. Can be repeated.")
    ],
    resource: Annotated[
        str | None, text_option("--resource", "PATH", "Print the unmodified content of this file of the skill instead.")
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Show one skill in full, or one of its files.

    The output has the front matter verbatim, the files, the diagnostics and the body.

    Examples:

        flink-skills show log-triage --source ./skills

        flink-skills show log-triage --source ./skills --resource scripts/triage.py > triage.py
    """
    from flink_skills.cli.look.source_contents import Depth, read_sources, report_problems
    from flink_skills.cli.printing import print_error
    from flink_skills.skill import Limits

    config = configuration(set_)
    contents = read_sources(source, config, Depth.FRONT_MATTER if resource else Depth.BODY, only=name)
    skill = next((loaded for loaded in contents.loaded if loaded.name == name), None)
    if skill is None:
        report_problems(contents)
        skipped = [candidate for candidate in contents.skills if candidate.name == name]
        if skipped:
            print_error(f"skill {name!r} in {contents.display_path(skipped[0].path)} cannot be loaded")
        else:
            print_error(str(UnknownNameError("skill", name, [loaded.name for loaded in contents.loaded])))
        raise typer.Exit(FAILED)
    limits = Limits.from_config(config)
    try:
        if resource is not None:
            _print_resource(skill.skill, resource, limits, format_)
            failed = False
        else:
            failed = _show(contents, skill, limits, format_)
    except ResourceError as error:
        print_error(f"skill {name!r}: {error}")
        raise typer.Exit(FAILED) from None
    # Without the unreadable sources, a job may load a different skill of this name.
    unreadable = [one for one in contents.diagnostics if one.code in ("D04", "D06")]
    report_problems(contents, unreadable)
    raise typer.Exit(FAILED if failed or unreadable else 0)


def _show(contents: SourceContents, loaded: LoadedSkill, limits: Limits, format_: Format) -> bool:
    """Show the skill, and return True if it has an error."""
    from flink_skills.cli.printing import diagnostic_json, print_json

    skill, diagnostics = loaded.skill, contents.diagnostics_of(loaded)
    front_matter = _front_matter(skill, limits)
    if format_ is Format.JSON:
        print_json(
            {
                "name": skill.name,
                "description": skill.description,
                "path": loaded.path,
                "origin": loaded.origin,
                "digest": loaded.digest,
                "front_matter": front_matter,
                "extra": dict(skill.extra),
                "body": skill.instructions,
                "files": [{"path": path, "bytes": size} for path, size in loaded.sizes.items()],
                "diagnostics": [diagnostic_json(one) for one in diagnostics],
            }
        )
    else:
        _print(contents, loaded, front_matter)
    return any(one.severity == "error" for one in diagnostics)


def _print(contents: SourceContents, loaded: LoadedSkill, front_matter: dict[str, Any]) -> None:
    from flink_skills.cli.printing import Column, diagnostic_line, print_line, print_table, size_text, visible

    print_line((loaded.name, "bold"), f"  {contents.display_path(loaded.path)}")
    print_line(f"digest {loaded.digest}")
    sys.stdout.write("\n")
    fields = [[field, _value_text(value)] for field, value in front_matter.items()]
    print_table([Column("FIELD"), Column("VALUE", wrapped=True)], fields)
    sys.stdout.write("\n")
    files = [[size_text(size), path] for path, size in loaded.sizes.items()]
    print_table([Column("SIZE", right=True), Column("FILE", wrapped=True)], files)
    diagnostics = contents.diagnostics_of(loaded)
    sys.stdout.write("\n" if diagnostics else "")
    for diagnostic in diagnostics:
        print_line(*diagnostic_line(diagnostic, path=contents.display_path(diagnostic.path)))
    sys.stdout.write(f"\n{visible(loaded.skill.instructions)}\n")


def _value_text(value: Any) -> str:
    """Return a value as text. Maps and lists have one line for each item."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_value_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "\n".join(f"- {_value_text(item)}" for item in value)
    return str(value)


def _front_matter(skill: AgentSkill, limits: Limits) -> dict[str, Any]:
    """Return the fields with the source text of each value: ``1.0`` as ``"1.0"`` and ``yes`` as ``"yes"``."""
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
    """Write the unmodified content of a file. JSON has it as text, or as base64 if it is not UTF-8."""
    from flink_skills.cli.printing import print_json

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
    described: dict[str, Any] = {"name": skill.name, "resource": path, "bytes": len(data)}
    try:
        print_json({**described, "text": data.decode()})
    except UnicodeDecodeError:
        print_json({**described, "base64": base64.b64encode(data).decode()})
