"""Entry point of ``flink-skills``: the top-level command and its exit codes.

:mod:`flink_skills.cli.commands` lists the commands.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from typing import Annotated

import typer
import typer.core

from flink_skills import __version__
from flink_skills.cli.commands import COMMANDS, LazyCommand
from flink_skills.cli.printing import print_error
from flink_skills.errors import SkillsError

__all__ = ["command_line", "run_app"]

USAGE, INTERRUPTED = 2, 130

app = typer.Typer(
    name="flink-skills",
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
