"""``flink-skills list``, ``show`` and ``validate``: the skills of sources, one skill in full, and their problems."""

from __future__ import annotations

import base64
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.shared_options import (
    FAILED,
    Assignments,
    Format,
    OutputFormat,
    SkillsOption,
    Sources,
    Strict,
    configuration,
    named_sources,
    text_option,
)
from flink_skills.cli.terminal_output import (
    Column,
    diagnostic_json,
    diagnostic_line,
    omitted_text,
    print_error,
    print_json,
    print_json_object,
    print_line,
    print_table,
    size_text,
)
from flink_skills.errors import ConfigError, ResourceError, UnknownNameError, counted
from flink_skills.texts import visible

if TYPE_CHECKING:
    from flink_skills.cli.look.source_contents import LoadedSkill, SkillStream, SourceContents
    from flink_skills.options import SkillConfig
    from flink_skills.skill import AgentSkill, Limits
    from flink_skills.skill.yaml_values import Node
    from flink_skills.tools.dynamic import OfferedTools

_SHORT_DIGEST = 12


# Skills without a plugin do not have this key.
_CHECKED = ("name", "path", "status", "digest", "plugin")


def list_skills(
    sources: Sources = None,
    *,
    skills: SkillsOption = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """List the skills of sources as a job loads them.

    The list has the name, description, origin, plugin, number of files, size and digest of each skill. If several
    skills have the same name, only the skill that a job uses is listed, and the others are reported on stderr.

    Examples:

        flink-skills list --skills ./skills

        flink-skills list --skills ./skills --skills https://example.org/more.zip --format json
    """
    from flink_skills.cli.look.source_contents import Depth, read_sources, report_problems

    contents = read_sources(named_sources(sources, skills), configuration(set_), Depth.FILES)
    if format_ is Format.JSON:
        print_json([_listed_json(skill) for skill in contents.loaded])
    elif contents.loaded:
        _print_list(contents)
    report_problems(contents)
    raise typer.Exit(FAILED if contents.has_errors else 0)


def _listed_json(loaded: LoadedSkill) -> dict[str, object]:
    sizes = loaded.sizes
    return {
        "name": loaded.name,
        "description": loaded.skill.description,
        "path": loaded.path,
        "origin": loaded.origin,
        "plugin": loaded.skill.plugin,
        "digest": loaded.digest,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
    }


def _print_list(contents: SourceContents) -> None:
    several = len({loaded.origin for loaded in contents.loaded}) > 1
    plugins = any(loaded.skill.plugin for loaded in contents.loaded)
    columns = [
        Column("NAME"),
        *((Column("PLUGIN", optional=True),) if plugins else ()),
        Column("FILES", right=True, optional=True),
        Column("SIZE", right=True, optional=True),
        Column("DIGEST", optional=True),
        *((Column("ORIGIN", optional=True),) if several else ()),
        Column("DESCRIPTION"),
    ]
    rows = [
        [
            loaded.name,
            *((loaded.skill.plugin,) if plugins else ()),
            f"{len(loaded.sizes):,}",
            size_text(sum(loaded.sizes.values())),
            (loaded.digest or "?")[:_SHORT_DIGEST],
            *((contents.display_path(loaded.origin),) if several else ()),
            " ".join(loaded.skill.description.split()),
        ]
        for loaded in contents.loaded
    ]
    print_table(columns, rows)


def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default=False, help="Name of the skill. Default: the only skill."),
    ] = None,
    *,
    skills: SkillsOption = None,
    resource: Annotated[
        str | None, text_option("--resource", "PATH", "Print the unmodified content of this file of the skill instead.")
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Show one skill in full, or one of its files.

    The output has the front matter verbatim, the files, the diagnostics and the body.

    Examples:

        flink-skills show log-triage --skills ./skills

        flink-skills show log-triage --skills ./skills --resource scripts/triage.py > triage.py
    """
    from flink_skills.cli.look.source_contents import Depth, read_sources, report_problems
    from flink_skills.skill import Limits

    config = configuration(set_)
    depth = Depth.FRONT_MATTER if resource else Depth.BODY
    contents = read_sources(named_sources(None, skills), config, depth, only=name)
    if name is None and len(contents.loaded) > 1:
        names = [loaded.name for loaded in contents.loaded]
        raise ConfigError(f"the source contains {len(names)} skills. Select one, for example {names[0]}")
    skill = next((one for one in contents.loaded if name in (None, one.name, one.skill.full_name)), None)
    if skill is None:
        report_problems(contents)
        skipped = [candidate for candidate in contents.skills if candidate.name == name]
        if skipped:
            print_error(f"skill {name!r} in {contents.display_path(skipped[0].path)} cannot be loaded")
        else:
            print_error(str(UnknownNameError("skill", name or "", [loaded.name for loaded in contents.loaded])))
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
    skill, diagnostics = loaded.skill, contents.diagnostics_of(loaded)
    front_matter = _front_matter(skill, limits)
    if format_ is Format.JSON:
        print_json(
            {
                "name": skill.name,
                "description": skill.description,
                "path": loaded.path,
                "origin": loaded.origin,
                "plugin": skill.plugin,
                "digest": loaded.digest,
                "front_matter": front_matter,
                "extra": dict(skill.extra),
                "body": skill.instructions,
                "files": [{"path": path, "bytes": size} for path, size in loaded.sizes.items()],
                "diagnostics": [diagnostic_json(one) for one in diagnostics],
            }
        )
    else:
        _print_skill(contents, loaded, front_matter)
    return any(one.severity == "error" for one in diagnostics)


def _print_skill(contents: SourceContents, loaded: LoadedSkill, front_matter: dict[str, Any]) -> None:
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
    pages = _pages(skill, path, limits.resource_read)
    if format_ is Format.TEXT:
        sys.stdout.buffer.writelines(pages)
        sys.stdout.buffer.flush()
        return
    data = b"".join(pages)
    described: dict[str, Any] = {"name": skill.name, "resource": path, "bytes": len(data)}
    try:
        print_json({**described, "text": data.decode()})
    except UnicodeDecodeError:
        print_json({**described, "base64": base64.b64encode(data).decode()})


def _pages(skill: AgentSkill, path: str, size: int) -> Iterator[bytes]:
    """Yield the content of a file in pages of at most ``size`` bytes."""
    page, position = skill.files.read(path, 0, size), 0
    while page.data:
        yield page.data
        position += len(page.data)
        if position >= page.total:
            return
        page = skill.files.read(path, position, size)


def validate(
    sources: Sources = None,
    *,
    skills: SkillsOption = None,
    agent: Annotated[
        str | None,
        text_option(
            "--agent", "AGENT", "Agent whose tools the skills can name: module:Class or a YAML file. Default: no agent."
        ),
    ] = None,
    strict: Strict = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Check skills and report how to fix each problem.

    The checks cover front matter, body, links, files, bundled tools, and requirements that a job does not meet. Each
    problem is one line with its fix. A skill with format problems still loads if it can be parsed, unless --strict is
    set. No code of a skill runs. With --agent, a tool name that neither the skill nor the agent provides is a warning.

    Examples:

        flink-skills validate --skills ./skills

        flink-skills validate --skills https://example.org/skills.zip --strict --format json

        flink-skills validate --skills ./skills --agent shop.agents:Shop
    """
    from flink_skills.cli.look.source_contents import SkillStream

    config = configuration(set_, strict=strict)
    offered = None if agent is None else _offered_tools(agent, config)
    stream = SkillStream(named_sources(sources, skills), config, offered=offered)
    severities: Counter[str] = Counter()
    if format_ is Format.JSON:
        _print_checks_json(stream, severities)
    else:
        _print_checks(stream, severities)
    raise typer.Exit(FAILED if severities["error"] else 0)


def _print_checks_json(stream: SkillStream, severities: Counter[str]) -> None:
    contents, omitted = stream.contents, 0

    def diagnostics() -> Iterator[object]:
        nonlocal omitted
        for diagnostic in stream:
            severities[diagnostic.severity] += 1
            omitted += diagnostic.left_out
            plugin = contents.plugin_of(diagnostic)
            yield {**diagnostic_json(diagnostic), **({"plugin": plugin} if plugin else {})}

    def members() -> Iterator[tuple[str, object]]:
        yield "diagnostics", diagnostics()
        # The skills are complete only after the iteration.
        yield (
            "skills",
            ({name: value for name in _CHECKED if (value := getattr(skill, name)) != ""} for skill in contents.skills),
        )
        loaded = _loaded(contents)
        yield (
            "summary",
            {
                "found": len(contents.skills),
                "loaded": loaded,
                "skipped": len(contents.skills) - loaded,
                "strict_valid": len(contents.strict_valid),
                **({"left_out": omitted} if omitted else {}),
            },
        )

    print_json_object(members())


def _print_checks(stream: SkillStream, severities: Counter[str]) -> None:
    contents = stream.contents
    limited = []
    for diagnostic in stream:
        severities[diagnostic.severity] += 1
        if diagnostic.left_out:
            limited.append(diagnostic)
        plugin = contents.plugin_of(diagnostic)
        line = diagnostic_line(diagnostic, path=contents.display_path(diagnostic.path))
        print_line(*line, f" [plugin {plugin}]" if plugin else "")
    loaded = _loaded(contents)
    skipped = len(contents.skills) - loaded
    print_line(
        (f"{counted(len(contents.skills), 'skill')}: ", "bold"),
        f"{loaded:,} loaded, {skipped:,} skipped, {len(contents.strict_valid):,} valid in strict mode; ",
        f"{omitted_text(limited)}; " if limited else "",
        ", ".join(counted(severities[severity], severity) for severity in ("error", "warning", "info")),
    )


def _loaded(contents: SourceContents) -> int:
    return sum(skill.status == "loaded" for skill in contents.skills)


def _offered_tools(reference: str, config: SkillConfig) -> OfferedTools:
    """Return the skill tools, own tools and pool tools of the agent that ``reference`` names. No tool is started.

    The tools of tool sets and MCP servers are unknown before a turn. Raises :class:`SkillsError` for an agent that
    cannot be imported or compiled.
    """
    from flink_skills.agents import compile_plan
    from flink_skills.agents.declare.declaration import read_declaration
    from flink_skills.agents.plan.name_checks import NamedAgent
    from flink_skills.cli.agent_args import find_agent
    from flink_skills.tools.dynamic import OfferedTools

    agent = find_agent(reference, "")
    plan = compile_plan(agent, config=config)
    declared = read_declaration(agent)
    names = {name for of, _ in plan.settings(config) for name in of.tools}
    names |= NamedAgent(plan, agent, declared).tool_names()
    toolsets = tuple(one.name or type(one).__name__ for one in declared.all_toolsets)
    return OfferedTools(frozenset(names), plan.agent_id, toolsets, plan.bundled_off(config))
