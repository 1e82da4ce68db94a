"""``flink-skills new``: create a skill from a template."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import unicodedata
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from flink_skills.cli.shared_options import text_option
from flink_skills.cli.terminal_output import print_line
from flink_skills.errors import ConfigError

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_LENGTH = 64
_TEMPLATES = Path(__file__).with_name("templates")
# A section of a template is omitted if the skill lacks its part.
_SECTION = re.compile(r"^%% (\w+)\n(.*?)^%% end\n", re.MULTILINE | re.DOTALL)


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
    directory: Annotated[Path, text_option("--dir", "DIR", "Parent directory. Created if it does not exist.")] = Path(),
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
    _check_name(name)
    parts = [part.value for part in with_ or ()]
    skill_dir = directory / name
    job = _job_files(name, str(skill_dir)) if Part.JOB.value in parts else {}
    for file in job:
        if os.path.lexists(file):
            raise ConfigError(f"{file} exists in the current directory. Rename or remove it first.")
    _write(skill_dir, _skill_files(name, parts))
    _write_job(job)
    for path in (*sorted(str(file) for file in skill_dir.rglob("*") if file.is_file()), *job):
        print_line(path)
    event = shlex.quote(f'{{"id": 1, "text": "something about {name.replace("-", " ")}"}}')
    print_line("Try it:")
    print_line(f"  flink-skills validate --strict --skills {shlex.quote(str(skill_dir))}")
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


def _skill_files(name: str, parts: Collection[str]) -> dict[str, str]:
    """Return the content of each file of the skill by path.

    >>> sorted(_skill_files("late-orders", ["scripts"]))
    ['SKILL.md', 'scripts/describe.py']
    """
    templates = {"SKILL.md": "SKILL.md"}
    if "scripts" in parts:
        templates["scripts/describe.py"] = "describe.py"
    if "references" in parts:
        templates[f"references/{name}.md"] = "reference.md"
    if "tools" in parts:
        templates["tools.py"] = "tools.py"
    words = name.replace("-", " ")
    has_programs = not {"scripts", "tools"}.isdisjoint(parts)
    values = {
        "name": name,
        "words": words,
        "title": words[0].upper() + words[1:],
        "compatibility": "python3, standard library only" if has_programs else "requires no programs",
    }
    sections = {*parts, "plain" if len(templates) == 1 else "steps"}
    return {path: _render(template, sections, values) for path, template in templates.items()}


def _job_files(name: str, path: str) -> dict[str, str]:
    """Return the content of each file of a job for the skill at ``path``, by its name."""
    event = {"id": "1", "text": f"something about {name.replace('-', ' ')}"}
    values = {"name": name, "path": json.dumps(path, ensure_ascii=False)}
    return {"job.yaml": _render("job.yaml", (), values), "events.jsonl": f"{json.dumps(event)}\n"}


def _render(template: str, sections: Collection[str], values: dict[str, str]) -> str:
    text = (_TEMPLATES / f"{template}.template").read_text(encoding="utf-8")
    text = _SECTION.sub(lambda section: section[2] if section[1] in sections else "", text)
    return Template(text).substitute(values)


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
