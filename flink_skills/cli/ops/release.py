"""``flink-skills pack``, ``push`` and ``lock``: archives, artifacts and lock files of skills for jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.shared_options import (
    FAILED,
    Assignments,
    Format,
    OutputFormat,
    SkillsOption,
    Sources,
    Strict,
    absolute_path,
    absolute_source,
    configuration,
    named_sources,
    parse_source,
)
from flink_skills.cli.terminal_output import (
    Column,
    diagnostic_json,
    diagnostic_line,
    print_error,
    print_json,
    print_line,
    print_note,
    print_table,
    size_text,
    write_file,
)
from flink_skills.errors import ConfigError, ResourceError, SkillLockError, counted

if TYPE_CHECKING:
    from flink_skills.sources.packing import Packing

_UNREADABLE = frozenset({"D01", "D04", "D05", "D06"})
_SKILL_FIELDS = ("name", "path", "digest", "files", "bytes")


def pack(
    sources: Sources = None,
    *,
    skills: SkillsOption = None,
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

        flink-skills pack --skills ./skills -o skills.zip

        flink-skills pack --skills ./skills/log-triage --skills ./more -o skills.tar.gz

        flink-skills pack --skills s3://bucket/skills/ -o ops.tar
    """
    from flink_skills.options import SkillOptions
    from flink_skills.skill import Limits
    from flink_skills.sources import SourceContext, SourceSpec, open_source
    from flink_skills.sources.packing import pack_skills

    config = configuration(set_, strict=strict)
    context = SourceContext(config)
    specs = [absolute_source(parse_source(folder)) for folder in named_sources(sources, skills)]
    # The leases keep these trees in the store until they are packed.
    trees = {spec: open_source("url", spec, context).resolve() for spec in specs if spec.kind == "url"}
    packed = [
        SourceSpec("path", tree.path, format=tree.format) if tree else spec
        for spec in specs
        for tree in trees.get(spec, [None])
    ]
    packing = pack_skills(
        packed,
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
                "skills": [{name: getattr(skill, name) for name in _SKILL_FIELDS} for skill in packing.skills],
                "diagnostics": [diagnostic_json(diagnostic) for diagnostic in packing.diagnostics],
            }
        )
    _print(packing, output, table=format_ is Format.TEXT)
    raise typer.Exit(0 if packing.sha256 else FAILED)


def push(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="[SOURCE] URL",
            show_default=False,
            help="Folder of one skill, same as --skills SOURCE, and the address to write, oci://REGISTRY/REPOSITORY:TAG.",
        ),
    ],
    *,
    skills: SkillsOption = None,
    allow_secrets: Annotated[
        bool,
        typer.Option("--allow-secrets", help="Push files that look like secrets, with a warning instead of an error."),
    ] = False,
    strict: Strict = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Push a skill to an OCI registry.

    The artifact has the type application/vnd.agentskills.skill.v1, and one layer with the files of the skill. The same
    skill always has the same digest. A skill that a job would reject is not pushed. The command prints the address with
    the digest, which a job can use.

    Examples:

        flink-skills push --skills ./skills/log-triage oci://registry.example.org/team/log-triage:1.0
    """
    from flink_skills.sources import SourceContext
    from flink_skills.sources.oci import push_skill

    *sources, location = places
    folder, *more = named_sources(sources, skills)
    if more:
        raise ConfigError(f"push writes one skill, and there are several sources ({folder}, {more[0]}). Pass one.")
    source = absolute_source(parse_source(folder))
    context = SourceContext(configuration(set_, strict=strict))
    packing, pushed = push_skill(source, location, context, strict=strict, allow_secrets=allow_secrets)
    if format_ is Format.JSON:
        packed = [{name: getattr(skill, name) for name in _SKILL_FIELDS} for skill in packing.skills]
        diagnostics = [diagnostic_json(diagnostic) for diagnostic in packing.diagnostics]
        print_json({"address": pushed or None, "skills": packed, "diagnostics": diagnostics})
    _print(packing, pushed or location, table=format_ is Format.TEXT)
    raise typer.Exit(0 if pushed else FAILED)


def _print(packing: Packing, output: str, *, table: bool) -> None:
    for one in packing.diagnostics:
        if one.severity == "error" or (table and (one.severity == "warning" or one.code == "D07")):
            print_note(*diagnostic_line(one))
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


def lock(
    sources: Sources = None,
    *,
    skills: SkillsOption = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Lock file. - writes to stdout.")
    ] = "skills.lock",
    check: Annotated[
        bool, typer.Option("--check", help="Compare the skills with the lock file, and write no file.")
    ] = False,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch all files of skills of MCP servers into the store of this host.")
    ] = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Write a lock file with the digest of each skill.

    A job enforces the lock file that its option skills.lock names. The same skills always produce the same lock file.
    --check reports each skill that differs, is missing or is new. If a source cannot be read, no file is written.

    Examples:

        flink-skills lock --skills ./skills --skills s3://bucket/more.zip

        flink-skills lock --skills ./skills --check -o deploy/skills.lock
    """
    from flink_skills.cli.look.source_contents import Depth, read_sources, report_problems
    from flink_skills.manager.lockfile import SkillLock, outdated_message

    if check and output == "-":
        raise ConfigError("--check requires a lock file. Set it with --output FILE.")
    contents = read_sources(named_sources(sources, skills), configuration(set_), Depth.FILES)
    report_problems(contents)
    skill_lock, written, problem = SkillLock(), False, ""
    # The lock omits skills that a job skips, but it must not omit skills that cannot be read now.
    if any(one.severity == "error" and one.code in _UNREADABLE for one in contents.diagnostics):
        target = "the lock" if output == "-" else output
        action = "checked" if check else "written"
        problem = f"{target} is not {action}: a source or skill cannot be read. Fix or omit it."
    else:
        try:
            for loaded in contents.loaded if fetch else ():
                loaded.skill.files.fetch()
            skill_lock = SkillLock.of(loaded.skill for loaded in contents.loaded)
            if check and (outdated := SkillLock.read(output).check(loaded.skill for loaded in contents.loaded)):
                print_error(outdated_message([loaded.skill for loaded in contents.loaded if loaded.name in outdated]))
        except (ResourceError, SkillLockError, ConfigError) as error:
            problem = str(error)
        else:
            written = not check and output != "-" and _update(output, skill_lock.to_text())
    if problem:
        print_error(problem)
    if format_ is Format.JSON:
        path = output if output == "-" else absolute_path(output)
        print_json({"path": path, "written": written, "matches": not problem, **skill_lock.to_json()})
    elif output == "-":
        sys.stdout.write("" if problem else skill_lock.to_text())
    elif not problem:
        state = "matches" if check else "written" if written else "unchanged"
        print_line((output, "bold"), f" {state}: {counted(len(skill_lock.skills), 'skill')}")
    raise typer.Exit(FAILED if problem or contents.has_errors else 0)


def _update(path: str, text: str) -> bool:
    """Write the lock. Return False if the file already has this content."""
    try:
        if Path(path).is_file() and Path(path).read_bytes() == text.encode():
            return False
    except OSError as error:
        raise ConfigError(f"--output {path}: {error.strerror or error}") from error
    write_file("--output", path, text)
    return True
