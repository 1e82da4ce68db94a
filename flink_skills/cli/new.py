"""``flink-skills new``: the folder of a skill to begin with."""

from __future__ import annotations

import re
import shlex
import shutil
import unicodedata
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.new_template import files_of
from flink_skills.errors import ConfigError

__all__ = ["new"]

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MOST = 64


class Part(str, Enum):
    """What a new skill can have besides its instructions."""

    SCRIPTS = "scripts"
    REFERENCES = "references"
    TOOLS = "tools"


def new(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="The skill's name: lowercase letters, digits and single hyphens, at most 64 characters.",
        ),
    ],
    *,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where the skill's folder goes; made if it is not there.")
    ] = Path(),
    with_: Annotated[
        list[Part] | None,
        typer.Option("--with", show_default=False, help="What else the skill has; may be repeated."),
    ] = None,
) -> None:
    """Make the folder of a new skill, from a template that is valid and runs as it is.

    Without --with it has a SKILL.md with instructions. --with scripts adds a command, --with references a document to
    read when needed, --with tools a function that models call. Comments in the files say what to change. Nothing that
    is there is changed. Exit code 0; 2 for bad usage, such as a name that the format does not allow.

    Examples:

        flink-skills new late-orders

        flink-skills new late-orders --dir skills --with scripts --with references
    """
    from flink_skills.cli.output import print_line

    _check(name)
    parts = [part.value for part in with_ or ()]
    folder = directory / name
    _write(folder, files_of(name, parts))
    for path in sorted(str(file) for file in folder.rglob("*") if file.is_file()):
        print_line(path)
    event = shlex.quote(f'{{"id": 1, "text": "something about {name.replace("-", " ")}"}}')
    print_line("Try it:")
    print_line(f"  flink-skills validate --strict {shlex.quote(str(folder))}")
    print_line(f"  echo {event} | flink-skills run --input - --key id --skills {shlex.quote(str(folder))} --local")


def _check(name: str) -> None:
    if _NAME.fullmatch(name) and len(name) <= _MOST:
        return
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    nearest = re.sub(r"[^a-z0-9]+", "-", plain)[:_MOST].strip("-")
    mend = f"; try {nearest}" if nearest else ""
    raise ConfigError(
        f"NAME {name!r}: a skill's name has lowercase letters, digits and single hyphens inside, {_MOST} at most{mend}"
    )


def _write(folder: Path, files: dict[str, str]) -> None:
    """All files or none."""
    made = False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        made = True
        for path, text in files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except FileExistsError as error:
        if not made and folder.exists():
            raise ConfigError(f"{folder} is there already: take another name, or remove it first") from error
        raise ConfigError(f"{folder}: {error.filename} is no folder; choose another --dir") from error
    except OSError as error:
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        raise ConfigError(f"{folder} cannot be made: {error.strerror or error}; choose another --dir") from error
