"""Commands and their options."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from flink_skills import __version__
from flink_skills.cli.doctor import doctor
from flink_skills.cli.exec import CONTEXT, execute
from flink_skills.cli.listing import list_skills
from flink_skills.cli.lock import lock
from flink_skills.cli.pack import pack
from flink_skills.cli.prompt import prompt
from flink_skills.cli.show import show
from flink_skills.cli.validate import validate
from flink_skills.errors import SkillsError

__all__ = ["run_app"]

USAGE, INTERRUPTED = 2, 130

app = typer.Typer(
    name="flink-skills",
    help="Agents with skills inside Apache Flink jobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def run_app() -> int:
    """Run the command of ``sys.argv``. A user's mistake is one message and exit code 2, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: no terminal is too old to be told
    # The library that talks to the JVM logs a Ctrl-C on the root logger, with its stack.
    logging.getLogger().addFilter(_is_no_interrupt)
    try:
        app()
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except SkillsError as error:
        sys.stderr.write(f"flink-skills: {error}\n")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)


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


@app.command()
def run(
    agent: Annotated[
        str | None,
        typer.Argument(help="module:Class or a YAML file; without it, a plain agent with --instructions."),
    ] = None,
    *,
    input_: Annotated[Path, typer.Option("--input", help="Events, one JSON object a line; - for stdin.")],
    key: Annotated[str, typer.Option("--key", help="Field of the events that is their key.")],
    output: Annotated[Path | None, typer.Option("--output", help="Where outputs go; default: stdout.")] = None,
    errors: Annotated[
        Path | None, typer.Option("--errors", help="Where error records go; default: with the outputs.")
    ] = None,
    skills: Annotated[
        list[str] | None,
        typer.Option("--skills", help="Folder, archive or URL of skills; may be repeated."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="offline, or PROVIDER:NAME.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="Where the provider's API is.")] = None,
    instructions: Annotated[str, typer.Option("--instructions", help="System text of the plain agent.")] = "",
    parallelism: Annotated[int, typer.Option("--parallelism", min=1, help="Parallelism of the job.")] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option, skills.* or Flink's."),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without Flink.")] = False,
) -> None:
    """Run an agent over a file of events, in a mini cluster of this process.

    One JSON object per output. Exit code 0; 3 when turns ended in errors; 2 for bad usage; 1 when the job failed.

    Examples:

        flink-skills run --input events.jsonl --key job --skills ./skills --local

        flink-skills run triage:TriageAgent --input events.jsonl --key job --parallelism 2
    """
    from flink_skills.cli.run import RunRequest, run_job

    request = RunRequest(
        agent=agent,
        input=input_,
        key=key,
        output=output,
        errors=errors,
        skills=tuple(skills or ()),
        model=model,
        base_url=base_url,
        instructions=instructions,
        parallelism=parallelism,
        assignments=tuple(set_ or ()),
        local=local,
    )
    raise typer.Exit(run_job(request))


app.command()(validate)
app.command("list")(list_skills)
for command in (show, pack, lock, prompt, doctor):
    app.command()(command)
app.command("exec", context_settings=CONTEXT)(execute)
