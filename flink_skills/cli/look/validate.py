"""``flink-skills validate``: check skills against the format and the limits of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.command_options import FAILED, Assignments, Format, OutputFormat, Sources, Strict, configuration

if TYPE_CHECKING:
    from flink_skills.cli.look.source_contents import SkillStream, SourceContents
    from flink_skills.options import SkillConfig
    from flink_skills.tools.dynamic import OfferedTools

__all__ = ["validate"]


def validate(
    sources: Sources,
    *,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            help="Agent whose tools the skills can name: module:Class or a YAML file. Default: no agent.",
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

        flink-skills validate ./skills

        flink-skills validate --strict --format json https://example.org/skills.zip

        flink-skills validate ./skills --agent shop.agents:Shop
    """
    from flink_skills.cli.look.source_contents import SkillStream

    config = configuration(set_, strict=strict)
    offered = None
    if agent is not None:
        offered = _offered_tools(agent, config)
    stream = SkillStream(sources, config, offered=offered)
    severities: Counter[str] = Counter()
    if format_ is Format.JSON:
        _print_json(stream, severities)
    else:
        _print(stream, severities)
    raise typer.Exit(FAILED if severities["error"] else 0)


def _print_json(stream: SkillStream, severities: Counter[str]) -> None:
    from flink_skills.cli.printing import diagnostic_json, print_json_object

    contents = stream.contents

    omitted = 0

    def diagnostics() -> Iterator[object]:
        nonlocal omitted
        for diagnostic in stream:
            severities[diagnostic.severity] += 1
            omitted += diagnostic.left_out
            yield diagnostic_json(diagnostic)

    def members() -> Iterator[tuple[str, object]]:
        yield "diagnostics", diagnostics()
        # The skills are complete only after the iteration.
        yield (
            "skills",
            (
                {"name": skill.name, "path": skill.path, "status": skill.status, "digest": skill.digest}
                for skill in contents.skills
            ),
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


def _print(stream: SkillStream, severities: Counter[str]) -> None:
    from flink_skills.cli.printing import counted, diagnostic_line, omitted_text, print_line

    contents = stream.contents
    limited = []
    for diagnostic in stream:
        severities[diagnostic.severity] += 1
        if diagnostic.left_out:
            limited.append(diagnostic)
        print_line(*diagnostic_line(diagnostic, path=contents.display_path(diagnostic.path)))
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
