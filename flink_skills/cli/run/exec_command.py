"""``flink-skills exec``: one command, or one bundled tool of a skill, as a job runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.shared_options import Assignments, SkillsOption, configuration, text_option
from flink_skills.errors import ConfigError

if TYPE_CHECKING:
    from flink_skills.cli.run.exec_sandbox import ExecRequest


def execute(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            show_default=False,
            help="Command to run. One argument is passed to the shell. Several arguments are run directly as a program "
            "and its arguments. With --tool: the tool's arguments as KEY=VALUE. Strings are passed verbatim, other "
            "types as JSON, for example days=3 or tags=[1,2].",
        ),
    ] = None,
    *,
    tool: Annotated[str | None, text_option("--tool", "NAME", "Call this bundled tool of the skill instead.")] = None,
    tools: Annotated[bool, typer.Option("--tools", help="List the tools that the skill bundles instead.")] = False,
    skill: Annotated[
        str | None,
        text_option(
            "--skill",
            "NAME",
            "Run the command as a command of this skill, in its folder. Requires --skills. Default: the only skill of "
            "the source.",
        ),
    ] = None,
    skills: SkillsOption = None,
    json_args: Annotated[
        str | None, text_option("--json-args", "JSON", "With --tool: arguments of the tool as one JSON object.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --tool or --tools: print JSON, as for the result of a command.")
    ] = False,
    backend: Annotated[
        str | None, text_option("--backend", "NAME", "Isolation backend. Overrides skills.shell.backend.")
    ] = None,
    timeout: Annotated[
        str | None,
        text_option(
            "--timeout", "S", "Time limit in seconds, or a duration such as '2 min'. Same as --limit wall_time."
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        text_option(
            "--limit",
            "NAME=VALUE",
            "Lower a limit of the job, for example memory=64mb. Can be repeated. Names: wall_time, cpu_time, "
            "memory, processes, file_size, workspace_bytes, workspace_files, open_files, output.",
        ),
    ] = None,
    input_: Annotated[
        list[str] | None, text_option("--input", "FILE", "Copy a file to $WORK_DIR/inputs first. Can be repeated.")
    ] = None,
    stdin: Annotated[
        str | None,
        text_option(
            "--stdin", "FILE", "File for the command's stdin. - passes on the stdin of this process. Default: empty."
        ),
    ] = None,
    set_: Assignments = None,
) -> None:
    """Run one command as a job runs it, or a tool of a skill.

    The command runs isolated and with limits in a temporary workspace, which is removed afterwards. Of your files, it
    sees only the files of --input and a copy of the skill. The result is printed as JSON.

    --tools lists the tools of a skill's tools.py and schema.json with their parameters. --tool calls one of them, and
    prints the result as a model receives it, and the output files. Both run tools.py in the sandbox, as in a job,
    because it defines the tools at run time.

    Examples:

        flink-skills exec -- 'echo $OUTPUT_DIR; id'

        flink-skills exec --skill log-triage --skills ./skills --input app.log -- python3 scripts/triage.py

        flink-skills exec --skills ./skills/geo --tools

        flink-skills exec --skills ./skills/geo --timeout 10 --tool distance start=Ulm end=Bonn
    """
    arguments = command or []
    brings_tools = tools or tool is not None
    if tools and (tool is not None or arguments):
        raise ConfigError("--tools cannot be combined with --tool or a command. Omit one of them.")
    if not skills and (brings_tools or skill is not None):
        option = "--tools" if tools else "--tool" if brings_tools else "--skill"
        raise ConfigError(f"{option} requires --skills SOURCE, which contains the skill.")
    if brings_tools and stdin is not None:
        raise ConfigError("--stdin cannot be combined with --tool or --tools: a tool has arguments. Omit it.")
    if json_args is not None and tool is None:
        raise ConfigError("--json-args requires --tool NAME.")
    if not brings_tools and (not arguments or not arguments[0].strip()):
        raise ConfigError("the command is missing. Pass it after the options, for example: flink-skills exec -- id")

    from flink_skills.cli.run.exec_sandbox import ExecRequest
    from flink_skills.cli.run.exec_tools import call_tool, list_tools

    config = configuration(set_)
    if backend is not None:
        config.set("skills.shell.backend", backend)
    request = ExecRequest(config, skill, tuple(skills or ()), tuple(limit or ()), timeout, tuple(input_ or ()))
    if tools:
        code = list_tools(request, as_json=as_json)
    elif tool is not None:
        code = call_tool(request, tool, arguments, json_args, as_json=as_json)
    else:
        code = _run_command(request, arguments[0] if len(arguments) == 1 else tuple(arguments), stdin)
    raise typer.Exit(code)


def _run_command(request: ExecRequest, command: str | tuple[str, ...], stdin: str | None) -> int:
    """Run the command and print its result as JSON. Return the exit code.

    Args:
        request: Skill, limits and inputs.
        command: String for the shell, or a program and its arguments.
        stdin: Path of ``--stdin``, ``-`` for the stdin of this process, or None for an empty stdin.
    """
    from flink_skills.cli.run.exec_sandbox import Outcome, Sandbox, read_stdin, run_in_sandbox
    from flink_skills.cli.terminal_output import print_json
    from flink_skills.errors import SkillsError
    from flink_skills.tools.arguments import ArgumentError

    content = read_stdin(stdin)
    outcome = Outcome()

    async def work(sandbox: Sandbox) -> None:
        shell, workspace, skill = sandbox.shell, sandbox.workspace, sandbox.skill
        directory = workspace.work_dir if skill is None else workspace.stage(skill)
        try:
            result = await shell.run(
                command,
                workspace=workspace,
                cwd=directory,
                skill_name=None if skill is None else request.skill or skill.name,
                call_id="exec",
                stdin=content,
                limits=shell.limits,
            )
        except (ArgumentError, SkillsError) as error:  # From the policy, the skill's variables or the workspace.
            outcome.fail(shell.hidden.in_text(str(error)))
        else:
            outcome.result, outcome.error = result, result.error
            outcome.notes += result.notes

    signal_code = run_in_sandbox(request, outcome, work)
    print_json(_to_json(outcome))
    return signal_code or (0 if outcome.error is None else 1)


def _to_json(outcome: Any) -> dict[str, Any]:
    """Return the result as JSON data. The keys are part of the command's interface."""
    from flink_skills.execution import CommandResult

    result = outcome.result or CommandResult()
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "limit": result.limit or ("wall_time" if result.timed_out else None),
        "stdout": result.stdout.decode("utf-8", "replace"),
        "stderr": result.stderr.decode("utf-8", "replace"),
        "truncated": result.truncated,
        "stdout_dropped": result.stdout_dropped,
        "stderr_dropped": result.stderr_dropped,
        "duration_ms": round(result.duration * 1000, 1),
        "cpu_ms": round(result.cpu_time * 1000, 1),
        "memory_bytes": result.memory,
        **outcome.to_json(),
    }
