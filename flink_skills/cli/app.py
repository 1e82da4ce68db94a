"""The commands of ``flink-skills``, and the entry point.

A new command needs an entry in ``COMMANDS`` and a function with typer annotations. The module of a command is imported
when the command is called. ``flink-skills --help`` prints the summaries without importing these modules.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
import typer.core

from flink_skills import __version__
from flink_skills.cli.terminal_output import print_error
from flink_skills.errors import ConfigError, SkillsError

USAGE, INTERRUPTED = 2, 130


@dataclass(frozen=True)
class CommandEntry:
    """Location, help and settings of a command.

    Attributes:
        target: ``module:function`` of the command, below ``flink_skills.cli``.
        summary: First line of the help, in the imperative, at most 60 characters.
        codes: Meanings of exit codes, except the usual ones of 0 and 2.
        settings: Keyword arguments for ``typer.Typer.command``.
    """

    target: str
    summary: str
    codes: Mapping[int, str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_codes(self) -> dict[int, str]:
        """Return the meaning of each exit code."""
        return dict(sorted({0: "Success.", 2: "Invalid usage.", **self.codes}.items()))

    def load(self) -> Callable[..., None]:
        """Import the module of the command, and return the function."""
        module, _, function = self.target.partition(":")
        loaded: Callable[..., None] = getattr(importlib.import_module(f"flink_skills.cli.{module}"), function)
        return loaded


# Pass all arguments after the program name to the command, even without "--".
_PASS_ARGUMENTS = {"context_settings": {"allow_interspersed_args": False}}

# The order follows the usual workflow.
COMMANDS: dict[str, CommandEntry] = {
    "run": CommandEntry(
        "run.run_command:run",
        "Run a job file, or an agent over a file of events.",
        {
            1: "The job failed, or --check found an error.",
            2: "Invalid usage, or an invalid job file.",
            3: "At least one turn failed.",
        },
    ),
    "chat": CommandEntry(
        "talk.chat_command:chat",
        "Talk to an agent with skills.",
        {3: "A turn failed (only without a terminal).", 130: "Interrupted by Ctrl-C (only without a terminal)."},
    ),
    "new": CommandEntry("new:new", "Create a skill from a template.", {2: "Invalid usage, or an invalid skill name."}),
    "validate": CommandEntry(
        "look.skill_commands:validate", "Check skills and report how to fix each problem.", {1: "At least one error."}
    ),
    "list": CommandEntry(
        "look.skill_commands:list_skills",
        "List the skills of sources as a job loads them.",
        {1: "A source cannot be read or has no skill, or a skill is skipped."},
    ),
    "catalog": CommandEntry(
        "look.catalog_command:catalog",
        "Show skills, their problems, and which models see them.",
        {1: "A source cannot be read or has no skill, or a skill has an error."},
    ),
    "show": CommandEntry(
        "look.skill_commands:show",
        "Show one skill in full, or one of its files.",
        {1: "The skill or file does not exist, or the skill or a source has an error."},
    ),
    "pack": CommandEntry(
        "ops.release:pack", "Pack skills into one archive for jobs.", {1: "Rejected content. No archive is written."}
    ),
    "push": CommandEntry(
        "ops.release:push", "Push a skill to an OCI registry.", {1: "Rejected content. Nothing is pushed."}
    ),
    "lock": CommandEntry(
        "ops.release:lock",
        "Write a lock file with the digest of each skill.",
        {1: "A source cannot be read, or --check found a difference."},
    ),
    "prompt": CommandEntry(
        "look.prompt_command:prompt",
        "Print the skill menu that a model receives, and its size.",
        {1: "A source cannot be read or has no skill, or a name does not exist."},
    ),
    "turns": CommandEntry(
        "look.turns_command:turns",
        "Show the turns of an event stream, or one as a timeline.",
        {1: "No turn is selected, or a line is not an event."},
    ),
    "top": CommandEntry(
        "look.top_command:top",
        "Show the agents of a running job, live.",
        {2: "Invalid usage, or the JobManager cannot be read.", 130: "Ended by Ctrl-C."},
    ),
    "sessions": CommandEntry(
        "ops.savepoint_state:sessions",
        "Show agent sessions in a savepoint or checkpoint.",
        {1: "The key does not exist.", 2: "Invalid usage, or the savepoint cannot be read."},
    ),
    "waits": CommandEntry(
        "ops.savepoint_state:waits",
        "Show the turns that wait in a savepoint or checkpoint.",
        {1: "The key does not exist.", 2: "Invalid usage, or the savepoint cannot be read."},
    ),
    "doctor": CommandEntry(
        "ops.doctor:doctor",
        "Determine how well this host isolates commands.",
        {1: "The isolation is below the required level."},
    ),
    "exec": CommandEntry(
        "run.exec_command:execute",
        "Run one command as a job runs it, or a tool of a skill.",
        {
            0: "The command ran. The output has its exit code. With --tool or --tools: success.",
            1: "The command could not be run safely. With --tool or --tools: a tool failed or cannot be used.",
        },
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
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        one.command(self.name, epilog=_epilog(self._entry), **self._entry.settings)(self._entry.load())
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


class _Commands(typer.core.TyperGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command. Reject a removed command with its replacement."""
        if cmd_name in ("call", "tools"):
            raise ConfigError(
                f"flink-skills {cmd_name} does not exist: exec runs the tools of a skill. Use flink-skills exec "
                "--skills SKILL --tool NAME KEY=VALUE to call a tool, or --tools to list the tools."
            )
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    name="flink-skills",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Print plain help text: importing rich would take longer than all other imports together.
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)


def run_app() -> int:
    """Run the command of ``sys.argv`` and return the exit code.

    A usage error is reported as one message and exit code 2, never as a traceback.
    """
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Escape characters that the encoding lacks, as stderr does.
        sys.stdout.reconfigure(errors="backslashreplace")
    if not sys.warnoptions:
        # Hide deprecation warnings of object-store libraries: users cannot act on them.
        warnings.simplefilter("ignore", FutureWarning)
    # Py4J logs interrupts and exits on the root logger with a stack trace.
    logging.getLogger().addFilter(_has_no_interrupt)
    try:
        command_line()()
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except SkillsError as error:
        print_error(str(error))
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _open_closed_streams() -> None:
    """Open the standard streams that the caller has closed, as some schedulers do, on the null device.

    Python sets such a stream to None, and the next file would get its descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends


def command_line() -> typer.core.TyperGroup:
    """Return the click group of all commands."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)  # noqa: S101 - a Typer with a callback is a group
    for name, entry in COMMANDS.items():
        group.add_command(LazyCommand(name, entry))
    return group


def _has_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] in (KeyboardInterrupt, SystemExit))


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Agents with skills inside Apache Flink jobs."""
