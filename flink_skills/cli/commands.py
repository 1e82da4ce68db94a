"""All commands of ``flink-skills``: a new one needs a line here and a function that typer understands.

The function's module is imported when its command is called, so what the others import costs nothing then. The summary
is what ``flink-skills --help`` says of it, without importing anything.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import typer
import typer.core

__all__ = ["COMMANDS", "CommandEntry", "LazyCommand"]


@dataclass(frozen=True)
class CommandEntry:
    """Where a command is: ``module:function``, its summary, and typer's settings for it."""

    target: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)


_HERE = "flink_skills.cli"
# What follows the first word of a command line is the command's, also without "--".
_COMMAND_LINE = {"context_settings": {"allow_interspersed_args": False}}

# In the order in which people meet them.
COMMANDS: dict[str, CommandEntry] = {
    "run": CommandEntry(f"{_HERE}.run_command:run", "Run an agent over a file of events."),
    "chat": CommandEntry(f"{_HERE}.chat:chat", "Talk to an agent with skills, by the turns of a job."),
    "new": CommandEntry(f"{_HERE}.new:new", "Make the folder of a new skill, from a template."),
    "validate": CommandEntry(f"{_HERE}.validate:validate", "Check skills, and say how to mend what is wrong."),
    "list": CommandEntry(f"{_HERE}.listing:list_skills", "List the skills that a job would have of some sources."),
    "catalog": CommandEntry(f"{_HERE}.catalog:catalog", "Write a page about skills, and who may use which."),
    "show": CommandEntry(f"{_HERE}.show:show", "Show one skill in full, or one of its files."),
    "tools": CommandEntry(f"{_HERE}.tools:tools", "List the tools that a skill brings."),
    "call": CommandEntry(f"{_HERE}.call:call", "Call a tool that a skill brings, in the sandbox."),
    "pack": CommandEntry(f"{_HERE}.pack:pack", "Pack skills into one archive for jobs."),
    "lock": CommandEntry(f"{_HERE}.lock:lock", "Write down the digests of skills, for jobs to insist on."),
    "prompt": CommandEntry(f"{_HERE}.prompt:prompt", "Print what a model is told of skills, and its size."),
    "sessions": CommandEntry(f"{_HERE}.sessions:sessions", "Read what agents knew out of a savepoint."),
    "doctor": CommandEntry(f"{_HERE}.doctor:doctor", "Find out how well this machine isolates commands."),
    "exec": CommandEntry(f"{_HERE}.exec:execute", "Run one command as a job would.", _COMMAND_LINE),
}


class LazyCommand(typer.core.TyperCommand):
    """Stands for a command until it is called: has its name and summary, and imports the rest then."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, short_help=entry.summary, rich_markup_mode=None)
        self._entry = entry

    def load(self) -> typer.core.TyperCommand:
        """The command itself, with its parameters.

        >>> LazyCommand("validate", COMMANDS["validate"]).load().params[0].name
        'sources'
        """
        module, _, function = self._entry.target.partition(":")
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        one.command(self.name, **self._entry.settings)(getattr(importlib.import_module(module), function))
        command = typer.main.get_command(one)
        assert isinstance(command, typer.core.TyperCommand)  # noqa: S101 - a Typer of one command is this command
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself, so that it is the one that is called."""
        return self.load().make_context(info_name, args, parent, **extra)
