"""``flink-skills new``: create a skill from a template."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import unicodedata
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.job_template import job_files
from flink_skills.cli.new_template import render_template
from flink_skills.errors import ConfigError

__all__ = ["new"]

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_LENGTH = 64


class Part(str, Enum):
    """Optional parts of a new skill."""

    SCRIPTS = "scripts"
    REFERENCES = "references"
    TOOLS = "tools"
    JOB = "job"


def new(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="Name of the skill: lowercase letters, digits and single hyphens, at most 64 characters.",
        ),
    ],
    *,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Parent directory. Created if it does not exist.")
    ] = Path(),
    with_: Annotated[
        list[Part] | None,
        typer.Option("--with", help="Add a part to the skill. Can be repeated. Default: only SKILL.md."),
    ] = None,
) -> None:
    """Create a skill from a template.

    The new skill is valid and runs without changes. It has a SKILL.md with instructions. --with scripts adds a command,
    --with references adds a document that models read on demand, and --with tools adds a function that models call.
    --with job writes job.yaml and events.jsonl, a job for the skill, into the current directory. Comments in the files
    describe what to change. Existing files are never changed.

    Examples:

        flink-skills new late-orders

        flink-skills new late-orders --dir skills --with scripts --with references

        flink-skills new late-orders --dir skills --with scripts --with job
    """
    from flink_skills.cli.printing import print_line

    _check_name(name)
    parts = [part.value for part in with_ or ()]
    skill_dir = directory / name
    job = job_files(name, str(skill_dir)) if Part.JOB.value in parts else {}
    _check_job(job)
    _write(skill_dir, render_template(name, parts))
    _write_job(job)
    for path in (*sorted(str(file) for file in skill_dir.rglob("*") if file.is_file()), *job):
        print_line(path)
    event = shlex.quote(f'{{"id": 1, "text": "something about {name.replace("-", " ")}"}}')
    print_line("Try it:")
    print_line(f"  flink-skills validate --strict {shlex.quote(str(skill_dir))}")
    print_line(f"  echo {event} | flink-skills run --input - --key id --skills {shlex.quote(str(skill_dir))} --local")
    if job:
        print_line("  flink-skills run job.yaml --check")


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) and len(name) <= _MAX_LENGTH:
        return
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    suggestion = re.sub(r"[^a-z0-9]+", "-", ascii_name)[:_MAX_LENGTH].strip("-")
    fix = f" Use for example {suggestion}." if suggestion else ""
    raise ConfigError(
        f"NAME {name!r}: a skill name consists of lowercase letters, digits and single hyphens between them, "
        f"at most {_MAX_LENGTH} characters.{fix}"
    )


def _check_job(files: dict[str, str]) -> None:
    """Raise ConfigError if a file of the job exists in the current directory."""
    for file in files:
        if os.path.lexists(file):
            raise ConfigError(f"{file} exists in the current directory. Rename or remove it first.")


def _write_job(files: dict[str, str]) -> None:
    """Create the files of the job in the current directory."""
    for file, text in files.items():
        try:
            with Path(file).open("x", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"{file} cannot be created in the current directory: {reason}") from error


def _write(skill_dir: Path, files: dict[str, str]) -> None:
    """Write all files. If one cannot be written, remove the directory again."""
    created = False
    try:
        skill_dir.parent.mkdir(parents=True, exist_ok=True)
        skill_dir.mkdir()
        created = True
        for path, text in files.items():
            (skill_dir / path).parent.mkdir(exist_ok=True)
            (skill_dir / path).write_text(text, encoding="utf-8")
    except FileExistsError as error:
        if not created and skill_dir.exists():
            raise ConfigError(f"{skill_dir} already exists. Choose another name, or remove it first.") from error
        raise ConfigError(f"{skill_dir}: {error.filename} is not a directory. Choose another --dir.") from error
    except OSError as error:
        if created:
            shutil.rmtree(skill_dir, ignore_errors=True)
        raise ConfigError(f"{skill_dir} cannot be created: {error.strerror or error}. Choose another --dir.") from error
