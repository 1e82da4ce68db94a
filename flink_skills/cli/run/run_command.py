"""Arguments and options of ``flink-skills run``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.shared_options import Format, OutputFormat, SkillsOption, text_option
from flink_skills.errors import ConfigError

USAGE = 2
_JSON_WITHOUT_CHECK = "--format json requires --check or --explain: a job writes its outputs to tables"
_LOCAL_JOB_OPTIONS = ("--local", "--input", "--agent", "--output", "--errors", "--model", "--base-url")


def run(
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB_OR_AGENT",
            show_default=False,
            help="Job file, or agent (module:Class or a YAML file) for the events of --input. Default: a plain agent.",
        ),
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Job file: report all problems, and do not submit the job.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Job file: describe the job, and do not submit it.")
    ] = False,
    reach: Annotated[
        bool,
        typer.Option(
            "--reach",
            help="With --check or --explain: download skills from URLs and connect to MCP servers. --check also sends "
            "a request to each model.",
        ),
    ] = False,
    flink_plan: Annotated[
        bool, typer.Option("--flink-plan", help="With --explain: add the execution plan of Flink.")
    ] = False,
    load: Annotated[
        str | None,
        text_option(
            "--load", "NAME=N,...", "With --explain: add the resources for a load, for example events=50,answer=2."
        ),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of job files.")] = False,
    format_: OutputFormat = Format.TEXT,
    input_: Annotated[
        Path | None,
        typer.Option("--input", help="Events, one JSON object per line, or error records to rerun. - reads stdin."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Event field to key by. Omit it to rerun the error records in --input.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="File for outputs. Default: stdout.")] = None,
    errors: Annotated[
        Path | None, typer.Option("--errors", help="File for error records. Default: same as the outputs.")
    ] = None,
    skills: SkillsOption = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Model: offline or PROVIDER:NAME. Default: the model of the agent.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Base URL of the provider's API. Requires --model.")
    ] = None,
    instructions: Annotated[str, typer.Option("--instructions", help="System prompt of the plain agent.")] = "",
    parallelism: Annotated[
        int | None,
        typer.Option("--parallelism", min=1, help="Parallelism of the job. Default: 1, or the value in the job file."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        text_option("--set", "KEY=VALUE", "Set an option of skills.* or of Flink. Overrides a job file."),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Run in this process, without Flink. A job file runs on the events of --input."),
    ] = False,
    job_agent: Annotated[
        str | None,
        text_option(
            "--agent",
            "NAME",
            "With --local: agent of the job file that receives the events. Default: the only one with an input table.",
        ),
    ] = None,
) -> None:
    """Run a job file, or an agent over a file of events.

    The job runs in a MiniCluster of this process, or without Flink if --local is set. The last line on stderr has the
    number of turns and errors.

    Examples:

        flink-skills run job.yaml --check

        flink-skills run job.yaml --set parallelism.default=4

        flink-skills run --input events.jsonl --key job --skills ./skills --local

        flink-skills run triage:TriageAgent --input events.jsonl --key job --parallelism 2

        flink-skills run triage:TriageAgent --input errors.jsonl

        flink-skills run job.yaml --input failures

        flink-skills run job.yaml --local --input events.jsonl --model offline
    """
    if schema:
        from flink_skills.cli.terminal_output import print_json
        from flink_skills.job.job_model import job_schema

        print_json(job_schema())
        return
    event_options = {
        "--input": input_,
        "--key": key,
        "--output": output,
        "--errors": errors,
        "--skills": skills,
        "--model": model,
        "--base-url": base_url,
        "--instructions": instructions or None,
        "--local": local or None,
        "--agent": job_agent,
    }
    file_options = {
        "--check": check,
        "--explain": explain,
        "--reach": reach,
        "--flink-plan": flink_plan,
        "--load": load,
    }
    excluded = [option for option, value in file_options.items() if value]
    is_file = is_job(agent, no_events=input_ is None)
    if is_file:
        _check_job_options(agent, [option for option, value in event_options.items() if value is not None], local=local)
        if local and excluded:
            raise ConfigError(f"--local cannot be combined with {', '.join(excluded)}. Omit one of them.")
    elif job_agent is not None:
        raise ConfigError("--agent requires a job file: flink-skills run JOB.yaml --local --agent NAME")
    elif excluded:
        raise ConfigError(f"{', '.join(excluded)} requires a job file: flink-skills run JOB.yaml {excluded[0]}")
    elif input_ is None:
        raise ConfigError("--input is missing. Pass a job file, or --input FILE and --key FIELD.")
    assignments = tuple(set_ or ())
    if is_file and parallelism:
        assignments = (f"parallelism.default={parallelism}", *assignments)
    if is_file and not local:
        path, as_json = Path(str(agent)), format_ is Format.JSON
        _check_file_options(excluded, as_json=as_json, has_input=input_ is not None)

        from flink_skills.cli.run import run_job

        with _invalid_file_reported():
            if check:
                code = run_job.check(path, assignments, reach=reach, as_json=as_json)
            elif explain:
                code = run_job.explain(
                    path, assignments, reach=reach, flink_plan=flink_plan, load=load, as_json=as_json
                )
            else:
                code = run_job.execute(path, assignments, input_)
        raise typer.Exit(code)
    assert input_ is not None  # noqa: S101 - checked above
    if is_file and format_ is Format.JSON:
        raise ConfigError(_JSON_WITHOUT_CHECK)

    from flink_skills.cli.run.run_events import RunRequest, run_agent, run_job_locally

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
        parallelism=parallelism or 1,
        assignments=assignments,
        local=local,
        job_agent=job_agent,
    )
    if is_file:
        with _invalid_file_reported():
            raise typer.Exit(run_job_locally(request))
    raise typer.Exit(run_agent(request))


def _check_job_options(file: str | None, present: list[str], *, local: bool) -> None:
    """Raise ConfigError if options for events are combined with a job file, or the events are missing."""
    others = [option for option in present if option not in (_LOCAL_JOB_OPTIONS if local else ("--input",))]
    if others:
        advice = ", or add --local to run it on events" if set(others) <= set(_LOCAL_JOB_OPTIONS) else ""
        raise ConfigError(
            f"{', '.join(others)} cannot be combined with the job file {file}. Set the values in the file{advice}."
        )
    if local and "--input" not in present:
        raise ConfigError(f"--input is missing. Pass --input FILE with the events for the agents of {file}.")


def _check_file_options(present: list[str], *, as_json: bool, has_input: bool) -> None:
    """Raise ConfigError if options of a job file exclude or require each other."""
    describes = "--check" in present or "--explain" in present
    if has_input and describes:
        raise ConfigError("--input reruns failed events and cannot be combined with --check or --explain")
    if "--check" in present and "--explain" in present:
        raise ConfigError("--check and --explain cannot be combined. Omit one of them.")
    for option in ("--flink-plan", "--load"):
        if option in present and "--explain" not in present:
            raise ConfigError(f"{option} requires --explain")
    if "--reach" in present and not describes:
        raise ConfigError("--reach requires --check or --explain")
    if as_json and not describes:
        raise ConfigError(_JSON_WITHOUT_CHECK)


@contextmanager
def _invalid_file_reported() -> Iterator[None]:
    """Print the problems of an invalid job file, and exit."""
    from flink_skills.cli.terminal_output import print_error, print_note
    from flink_skills.documents.document import DocumentError
    from flink_skills.errors import counted

    try:
        yield
    except DocumentError as error:
        # Each problem starts with its file and line, as in compiler output.
        for problem in error.problems:
            print_note(str(problem))
        print_error(f"invalid job file: {counted(len(error.problems), 'problem')}")
        raise typer.Exit(USAGE) from None


def is_job(argument: str | None, *, no_events: bool) -> bool:
    """Return True if the argument is a job file.

    Without events, any YAML file is a job file. With events, it can also be the YAML file of an agent.
    """
    if argument is None or not argument.endswith((".yaml", ".yml")):
        return False
    if no_events:
        return True
    from flink_skills.job.job_reading import is_job_file

    return is_job_file(Path(argument))
