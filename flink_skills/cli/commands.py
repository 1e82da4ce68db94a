"""Table of all commands of ``flink-skills``.

A new command needs an entry in ``COMMANDS`` and a function with typer annotations. The module of a command is imported
when the command is called. ``flink-skills --help`` prints the summaries without importing these modules.
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
    """Location, help and settings of a command.

    Attributes:
        target: ``module:function`` of the command.
        summary: First line of the help, in the imperative, at most 60 characters.
        exit_codes: Meaning of each exit code.
        settings: Keyword arguments for ``typer.Typer.command``.
    """

    target: str
    summary: str
    exit_codes: Mapping[int, str]
    settings: Mapping[str, Any] = field(default_factory=dict)


_HERE = "flink_skills.cli"
# Pass all words after the program name to the command, even without "--".
_PASS_ARGUMENTS = {"context_settings": {"allow_interspersed_args": False}}

_SUCCESS = "Success."
_USAGE = "Invalid usage."
# The order follows the usual workflow.
COMMANDS: dict[str, CommandEntry] = {
    "run": CommandEntry(
        f"{_HERE}.run.run_command:run",
        "Run a job file, or an agent over a file of events.",
        {
            0: _SUCCESS,
            1: "The job failed, or --check found an error.",
            2: "Invalid usage, or an invalid job file.",
            3: "At least one turn failed.",
        },
    ),
    "chat": CommandEntry(
        f"{_HERE}.talk.chat_command:chat",
        "Talk to an agent with skills.",
        {
            0: _SUCCESS,
            2: _USAGE,
            3: "A turn failed (only without a terminal).",
            130: "Interrupted by Ctrl-C (only without a terminal).",
        },
    ),
    "new": CommandEntry(
        f"{_HERE}.new:new",
        "Create a skill from a template.",
        {0: _SUCCESS, 2: "Invalid usage, or an invalid skill name."},
    ),
    "validate": CommandEntry(
        f"{_HERE}.look.validate:validate",
        "Check skills and report how to fix each problem.",
        {0: _SUCCESS, 1: "At least one error.", 2: _USAGE},
    ),
    "list": CommandEntry(
        f"{_HERE}.look.list_show:list_skills",
        "List the skills of sources as a job loads them.",
        {0: _SUCCESS, 1: "A source cannot be read or has no skill, or a skill is skipped.", 2: _USAGE},
    ),
    "catalog": CommandEntry(
        f"{_HERE}.look.catalog_command:catalog",
        "Show skills, their problems, and which models see them.",
        {0: _SUCCESS, 1: "A source cannot be read or has no skill, or a skill has an error.", 2: _USAGE},
    ),
    "show": CommandEntry(
        f"{_HERE}.look.show:show",
        "Show one skill in full, or one of its files.",
        {0: _SUCCESS, 1: "The skill or file does not exist, or the skill or a source has an error.", 2: _USAGE},
    ),
    "tools": CommandEntry(
        f"{_HERE}.run.tools:tools",
        "List the tools that a skill bundles.",
        {0: _SUCCESS, 1: "A tool cannot be used, or the sandbox does not start.", 2: _USAGE},
    ),
    "call": CommandEntry(
        f"{_HERE}.run.call:call",
        "Call a bundled tool of a skill in the sandbox.",
        {0: _SUCCESS, 1: "The result is an error, or the tool did not run.", 2: _USAGE},
    ),
    "pack": CommandEntry(
        f"{_HERE}.ops.release:pack",
        "Pack skills into one archive for jobs.",
        {0: _SUCCESS, 1: "Rejected content. No archive is written.", 2: _USAGE},
    ),
    "lock": CommandEntry(
        f"{_HERE}.ops.lock:lock",
        "Write a lock file with the digest of each skill.",
        {0: _SUCCESS, 1: "A source cannot be read, or --check found a difference.", 2: _USAGE},
    ),
    "prompt": CommandEntry(
        f"{_HERE}.look.prompt_command:prompt",
        "Print the skill menu that a model receives, and its size.",
        {0: _SUCCESS, 1: "A source cannot be read or has no skill, or a name does not exist.", 2: _USAGE},
    ),
    "sessions": CommandEntry(
        f"{_HERE}.ops.savepoint_state:sessions",
        "Show agent sessions in a savepoint or checkpoint.",
        {0: _SUCCESS, 1: "The key does not exist.", 2: "Invalid usage, or the savepoint cannot be read."},
    ),
    "waits": CommandEntry(
        f"{_HERE}.ops.waits:waits",
        "Show the turns that wait in a savepoint or checkpoint.",
        {0: _SUCCESS, 1: "The key does not exist.", 2: "Invalid usage, or the savepoint cannot be read."},
    ),
    "doctor": CommandEntry(
        f"{_HERE}.ops.doctor:doctor",
        "Determine how well this host isolates commands.",
        {0: _SUCCESS, 1: "The isolation is below the required level.", 2: _USAGE},
    ),
    "exec": CommandEntry(
        f"{_HERE}.run.exec_command:execute",
        "Run one command as a job runs it.",
        {0: "The command ran. The output has its exit code.", 1: "The command could not be run safely.", 2: _USAGE},
        _PASS_ARGUMENTS,
    ),
}


class LazyCommand(typer.core.TyperCommand):
    """Placeholder of a command that imports the command's module on first use."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, short_help=entry.summary, rich_markup_mode=None)
        self._entry = entry

    def load(self) -> typer.core.TyperCommand:
        """Import and return the command, with its parameters.

        >>> LazyCommand("validate", COMMANDS["validate"]).load().params[0].name
        'sources'
        """
        module, _, function = self._entry.target.partition(":")
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        one.command(self.name, epilog=_epilog(self._entry), **self._entry.settings)(
            getattr(importlib.import_module(module), function)
        )
        command = typer.main.get_command(one)
        assert isinstance(command, typer.core.TyperCommand)  # noqa: S101 - a Typer with a single command is this command
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the imported command, so that click runs this command."""
        return self.load().make_context(info_name, args, parent, **extra)


def _epilog(entry: CommandEntry) -> str:
    """Return the table of exit codes for the end of the help."""
    rows = "\n".join(f"  {code:<4} {meaning}" for code, meaning in entry.exit_codes.items())
    # The marker keeps click from joining the lines.
    return f"\b\nExit codes:\n{rows}"
