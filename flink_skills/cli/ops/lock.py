"""``flink-skills lock``: write a lock file with the digests of skills, or compare skills with it."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.command_options import FAILED, Assignments, Format, OutputFormat, Sources, configuration
from flink_skills.errors import ConfigError, ResourceError, SkillLockError

__all__ = ["lock"]

_UNREADABLE = frozenset({"D01", "D04", "D05", "D06"})


def lock(
    sources: Sources,
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Lock file. - writes to stdout.")
    ] = "skills.lock",
    check: Annotated[
        bool, typer.Option("--check", help="Compare the skills with the lock file, and write no file.")
    ] = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Write a lock file with the digest of each skill.

    A job enforces the lock file that its option skills.lock names. The same skills always produce the same lock file.
    --check reports each skill that differs, is missing or is new. If a source cannot be read, no file is written.

    Examples:

        flink-skills lock ./skills s3://bucket/more.zip

        flink-skills lock ./skills --check -o deploy/skills.lock
    """
    from flink_skills.cli.command_options import absolute_path
    from flink_skills.cli.look.source_contents import Depth, read_sources, report_problems
    from flink_skills.cli.printing import counted, print_error, print_json, print_line
    from flink_skills.manager.lockfile import SkillLock, outdated_message

    if check and output == "-":
        raise ConfigError("--check requires a lock file. Set it with --output FILE.")
    contents = read_sources(sources, configuration(set_), Depth.FILES)
    report_problems(contents)
    skill_lock, written, problem = SkillLock(), False, ""
    # The lock omits skills that a job skips, but it must not omit skills that cannot be read now.
    if any(one.severity == "error" and one.code in _UNREADABLE for one in contents.diagnostics):
        target = "the lock" if output == "-" else output
        action = "checked" if check else "written"
        problem = f"{target} is not {action}: a source or skill cannot be read. Fix or omit it."
    else:
        try:
            skill_lock = SkillLock.of(loaded.skill for loaded in contents.loaded)
            if check and (outdated := SkillLock.read(output).check(loaded.skill for loaded in contents.loaded)):
                print_error(outdated_message([loaded.skill for loaded in contents.loaded if loaded.name in outdated]))
        except (ResourceError, SkillLockError, ConfigError) as error:
            problem = str(error)
        else:
            written = not check and output != "-" and _write(skill_lock.to_text(), output)
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


def _write(text: str, path: str) -> bool:
    """Write the lock atomically. Return False if the file already has this content."""
    file = Path(path)
    temporary = file.with_name(f".{file.name[:100]}.{secrets.token_hex(6)}")
    try:
        if file.is_file() and file.read_bytes() == text.encode():
            return False
        try:
            temporary.write_bytes(text.encode())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {path}: {error.strerror or error}") from error
    return True
