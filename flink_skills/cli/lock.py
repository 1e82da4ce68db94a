"""``flink-skills lock``: write down the digests of skills, or compare skills with what was written down."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, Sources, configuration
from flink_skills.errors import ConfigError, ResourceError, SkillLockError

__all__ = ["lock"]

_UNREADABLE = frozenset({"D01", "D04", "D05", "D06"})


def lock(
    sources: Sources,
    *,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="The lock file; - for standard output."),
    ] = "skills.lock",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; compare the skills with the lock file.")
    ] = False,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Write the digests of all skills of the sources to a lock file, which a job's option skills.lock enforces.

    The same skills always give the same text. With --check, every skill that differs, is missing or is new is named.
    Nothing is written when a source cannot be read. Exit code 0; 1 when something is wrong; 2 for bad usage.

    Examples:

        flink-skills lock ./skills s3://bucket/more.zip

        flink-skills lock ./skills --check -o deploy/skills.lock
    """
    from flink_skills.cli.output import complain, counted, print_json, print_line
    from flink_skills.cli.places import absolute_path
    from flink_skills.cli.problems import report_problems
    from flink_skills.cli.reading import Depth, read_sources
    from flink_skills.manager.lockfile import SkillLock, outdated_message

    if check and output == "-":
        raise ConfigError("--check compares with a file: name it with -o")
    reading = read_sources(sources, configuration(set_), Depth.FILES)
    report_problems(reading)
    made, written, problem = SkillLock(), False, ""
    # What a job would skip is in no lock; what could not be read must not be missing in one.
    if any(said.severity == "error" and said.code in _UNREADABLE for said in reading.diagnostics):
        what = "the lock" if output == "-" else output
        problem = f"{what} is not {'checked' if check else 'written'}: mend or leave out what cannot be read"
    else:
        try:
            made = SkillLock.of(read.skill for read in reading.loaded)
            if check and (outdated := SkillLock.read(output).check(read.skill for read in reading.loaded)):
                complain(outdated_message(outdated))
        except (ResourceError, SkillLockError, ConfigError) as error:
            problem = str(error)
        else:
            written = not check and output != "-" and _write(made.to_text(), output)
    if problem:
        complain(problem)
    if format_ is Format.JSON:
        path = output if output == "-" else absolute_path(output)
        print_json({"path": path, "written": written, "matches": not problem, **made.to_json()})
    elif output == "-":
        sys.stdout.write("" if problem else made.to_text())
    elif not problem:
        said = "matches" if check else "written" if written else "is up to date"
        print_line((output, "bold"), f" {said}: {counted(len(made.skills), 'skill')}")
    raise typer.Exit(FAILED if problem or reading.has_errors else 0)


def _write(text: str, path: str) -> bool:
    """Write the lock, all of it or nothing, unless the same is there; whether it was written."""
    file = Path(path)
    part = file.with_name(f".{file.name[:100]}.{secrets.token_hex(6)}")
    try:
        if file.is_file() and file.read_bytes() == text.encode():
            return False
        try:
            part.write_bytes(text.encode())
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {path}: {error.strerror or error}") from error
    return True
