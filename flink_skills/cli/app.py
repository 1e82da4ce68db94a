"""The command line as a whole: the options of ``flink-skills`` itself, and exit codes.

Commands are listed in :mod:`flink_skills.cli.commands`.
"""

from __future__ import annotations

import io
import logging
import sys
import warnings
from typing import Annotated

import typer
import typer.core

from flink_skills import __version__
from flink_skills.cli.commands import COMMANDS, LazyCommand
from flink_skills.cli.output import complain
from flink_skills.errors import SkillsError

__all__ = ["command_line", "run_app"]

USAGE, INTERRUPTED = 2, 130

app = typer.Typer(
    name="flink-skills",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Help in plain text: importing what draws boxes takes longer than everything else together.
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
)


def run_app() -> int:
    """Run the command of ``sys.argv``. A user's mistake is one message and exit code 2, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: no terminal is too old to be told
    if not sys.warnoptions:
        # What libraries of object stores will no longer support some day is nothing that a user can act on.
        warnings.simplefilter("ignore", FutureWarning)
    # The library that talks to the JVM logs a Ctrl-C or the end by a signal on the root logger, with its stack.
    logging.getLogger().addFilter(_is_no_interrupt)
    try:
        command_line()()
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except SkillsError as error:
        complain(str(error))
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def command_line() -> typer.core.TyperGroup:
    """All commands as one that can be called."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)  # noqa: S101 - a Typer with a callback is a group
    for name, entry in COMMANDS.items():
        group.add_command(LazyCommand(name, entry))
    return group


def _is_no_interrupt(record: logging.LogRecord) -> bool:
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
