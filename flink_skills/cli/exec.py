"""``flink-skills exec``: one command as a job would run it."""

from __future__ import annotations

from typing import Annotated

import typer

from flink_skills.cli.words import Assignments, Backend, Inputs, LimitWords, Timeout, configuration
from flink_skills.errors import ConfigError

__all__ = ["execute"]


def execute(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            show_default=False,
            help="One word is a text for the shell; several are a program and its arguments.",
        ),
    ] = None,
    *,
    skill: Annotated[
        str | None,
        typer.Option(
            "--skill", metavar="NAME", show_default=False, help="Run it as this skill's, in the skill's folder."
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", metavar="SOURCE", show_default=False, help="Where the skill is, as for list; may be repeated."
        ),
    ] = None,
    backend: Backend = None,
    timeout: Timeout = None,
    limit: LimitWords = None,
    input_: Inputs = None,
    stdin: Annotated[
        str | None,
        typer.Option("--stdin", metavar="FILE", show_default=False, help="The command's stdin; - for this one's."),
    ] = None,
    set_: Assignments = None,
) -> None:
    """Run a command exactly as a job would: isolated, limited, in a workspace of its own. Prints how it ended as JSON.

    The command sees no file of yours but those of --input and a copy of the skill; its workspace is removed at the
    end. Exit code 0 when the command ran, whatever came of it; 1 when it could not be run safely; 2 for bad usage.

    Examples:

        flink-skills exec -- 'echo $OUTPUT_DIR; id'

        flink-skills exec --skill log-triage --source ./skills --input app.log -- python3 scripts/triage.py
    """
    from flink_skills.cli.output import print_json
    from flink_skills.cli.trial import Asked, run_trial

    if not command or not command[0].strip():
        raise ConfigError("there is no command: write it after the options, such as 'flink-skills exec -- id'")
    if (skill is None) is not (not source):
        missing, given = ("--skill NAME", "--source") if skill is None else ("--source SOURCE", "--skill")
        raise ConfigError(f"{given} needs {missing}: give both, or leave both out")
    config = configuration(set_)
    if backend is not None:
        config.set("skills.shell.backend", backend)
    asked = Asked(
        command=command[0] if len(command) == 1 else tuple(command),
        config=config,
        skill=skill,
        sources=tuple(source or ()),
        limits=tuple(limit or ()),
        timeout=timeout,
        inputs=tuple(input_ or ()),
        stdin=stdin,
    )
    code, result = run_trial(asked)
    print_json(result)
    raise typer.Exit(code)
