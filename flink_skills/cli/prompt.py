"""``flink-skills prompt``: the menu that a model would see."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, Sources, configuration
from flink_skills.errors import ConfigError, SkillsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flink_skills.options import SkillConfig
    from flink_skills.skill import Diagnostic

__all__ = ["prompt"]

_NAMED = 20


def prompt(
    sources: Sources,
    *,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--names",
            metavar="NAME,NAME",
            show_default=False,
            help="Only these skills, like skill_names of a model; may be repeated.",
        ),
    ] = None,
    max_chars: Annotated[
        int | None,
        typer.Option("--max-chars", metavar="N", min=1, show_default=False, help="Like skills.prompt.max-chars."),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Print the menu of skills exactly as a model would see it, and its size.

    The menu goes to stdout; its size, and what was shortened or left out to fit, to stderr.
    Exit code 0; 1 when a source cannot be read, has no skill or a name does not exist; 2 for bad usage.

    Examples:

        flink-skills prompt ./skills

        flink-skills prompt ./skills --names log-triage,metrics --max-chars 4000
    """
    from flink_skills.cli.output import complain, diagnostic_line, print_json, print_line

    config = configuration(set_, max_chars=max_chars)
    chosen = None if names is None else [name for word in names for each in word.split(",") if (name := each.strip())]
    if chosen == []:
        raise ConfigError("--names: give at least one name, such as --names log-triage")
    try:
        shown = _render(sources, chosen, config)
    except SkillsError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None
    if format_ is Format.JSON:
        print_json(shown.to_json())
    else:
        sys.stdout.write(f"{shown.text}\n" if shown.text else "")
        for sentence in shown.sentences():
            print_line(sentence, stream=sys.stderr)
    for said in shown.errors:
        print_line(*diagnostic_line(said), stream=sys.stderr)
    raise typer.Exit(FAILED if shown.errors else 0)


@dataclass(frozen=True)
class _Shown:
    """The menu, and what became of each skill in it."""

    text: str
    budget: int
    listed: list[str]
    shortened: list[str]
    left_out: list[str]
    hidden: list[str]
    errors: list[Diagnostic]

    @property
    def tokens(self) -> int:
        from flink_skills.skill.inspection import about_tokens

        return about_tokens(self.text)

    def to_json(self) -> dict[str, object]:
        return {
            "prompt": self.text,
            "chars": len(self.text),
            "tokens": self.tokens,
            "max_chars": self.budget,
            "skills": self.listed,
            "shortened": self.shortened,
            "left_out": self.left_out,
            "hidden": self.hidden,
        }

    def sentences(self) -> list[str]:
        from flink_skills.cli.output import counted

        size = f"{counted(len(self.text), 'character')} of {self.budget:,}, about {counted(self.tokens, 'token')}"
        said = [f"{counted(len(self.listed), 'skill')}: {size}"]
        if self.shortened:
            said.append(f"shortened to fit: {_some(self.shortened)}")
        if self.left_out:
            said.append(f"left out to fit: {_some(self.left_out)}")
        if self.hidden:
            said.append(f"not offered because of disable-model-invocation: {_some(self.hidden)}")
        return said


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _render(words: Sequence[str], names: Sequence[str] | None, config: SkillConfig) -> _Shown:
    from flink_skills.cli.places import source_word
    from flink_skills.manager import AgentSkillManager
    from flink_skills.manager.menu import parse_menu
    from flink_skills.options import SkillOptions
    from flink_skills.skill.text import clean_line

    places = [source_word(word) for word in words]
    manager = AgentSkillManager(
        [location for kind, location in places if kind == "path"],
        urls=[location for kind, location in places if kind == "url"],
        config=config,
    )
    text = manager.get_system_prompt(names)
    skills = {skill.name: skill for skill in manager.get_skills()}
    wanted = list(skills) if names is None else sorted(set(names))
    entries = dict(parse_menu(text))
    hidden = [name for name in wanted if skills[name].hidden and name not in entries]
    # A source without skills is no mere oddity where somebody asks what is in it.
    errors = [said for said in manager.diagnostics if said.severity == "error" or said.code == "D04"]
    return _Shown(
        text,
        config.get(SkillOptions.PROMPT_MAX_CHARS),
        listed=list(entries),
        shortened=[name for name, shown in entries.items() if shown != clean_line(skills[name].description)],
        left_out=[name for name in wanted if name not in entries and name not in hidden],
        hidden=hidden,
        errors=[replace(said, severity="error") for said in errors],
    )
