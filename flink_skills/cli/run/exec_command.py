"""``flink-skills exec``: one command as a job runs it."""

from __future__ import annotations

from typing import Annotated

import typer

from flink_skills.cli.command_options import Assignments, Backend, Inputs, LimitOptions, Timeout, configuration
from flink_skills.errors import ConfigError

__all__ = ["execute"]


def execute(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            show_default=False,
            help="Command to run. One argument is passed to the shell. Several arguments are run directly as a program "
            "and its arguments.",
        ),
    ] = None,
    *,
    skill: Annotated[
        str | None,
        typer.Option(
            "--skill",
            metavar="NAME",
            show_default=False,
            help="Run the command as a command of this skill, in its folder. Requires --source.",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="SOURCE",
            show_default=False,
            help="Folder, archive or URL that contains the skill. Can be repeated.",
        ),
    ] = None,
    backend: Backend = None,
    timeout: Timeout = None,
    limit: LimitOptions = None,
    input_: Inputs = None,
    stdin: Annotated[
        str | None,
        typer.Option(
            "--stdin",
            metavar="FILE",
            show_default=False,
            help="File for the command's stdin. - passes on the stdin of this process. Default: empty.",
        ),
    ] = None,
    set_: Assignments = None,
) -> None:
    """Run one command as a job runs it.

    The command runs isolated and with limits in a temporary workspace, which is removed afterwards. Of your files, it
    sees only the files of --input and a copy of the skill. The result is printed as JSON.

    Examples:

        flink-skills exec -- 'echo $OUTPUT_DIR; id'

        flink-skills exec --skill log-triage --source ./skills --input app.log -- python3 scripts/triage.py
    """
    from flink_skills.cli.printing import print_json
    from flink_skills.cli.run.exec_run import ExecRequest, run_exec

    if not command or not command[0].strip():
        raise ConfigError("the command is missing. Pass it after the options, for example: flink-skills exec -- id")
    if (skill is None) is not (not source):
        missing, present = ("--skill NAME", "--source") if skill is None else ("--source SOURCE", "--skill")
        raise ConfigError(f"{present} requires {missing}. Set both or neither.")
    config = configuration(set_)
    if backend is not None:
        config.set("skills.shell.backend", backend)
    request = ExecRequest(
        command=command[0] if len(command) == 1 else tuple(command),
        config=config,
        skill=skill,
        sources=tuple(source or ()),
        limits=tuple(limit or ()),
        timeout=timeout,
        inputs=tuple(input_ or ()),
        stdin=stdin,
    )
    code, result = run_exec(request)
    print_json(result)
    raise typer.Exit(code)
