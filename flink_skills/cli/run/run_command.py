"""Arguments and options of ``flink-skills run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.command_options import Format, OutputFormat
from flink_skills.errors import ConfigError

__all__ = ["run"]

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
        typer.Option(
            "--load",
            metavar="NAME=N,...",
            help="With --explain: add the resources for a load, for example events=50,answer=2.",
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
    skills: Annotated[
        list[str] | None, typer.Option("--skills", help="Folder, archive or URL of skills. Can be repeated.")
    ] = None,
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
        typer.Option("--set", metavar="KEY=VALUE", help="Set an option of skills.* or of Flink. Overrides a job file."),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Run in this process, without Flink. A job file runs on the events of --input."),
    ] = False,
    job_agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="With --local: agent of the job file that receives the events. Default: the only one with an input "
            "table.",
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
        from flink_skills.cli.printing import print_json
        from flink_skills.job.schema import job_schema

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
    present = [option for option, value in event_options.items() if value is not None]
    file_options = {
        "--check": check,
        "--explain": explain,
        "--reach": reach,
        "--flink-plan": flink_plan,
        "--load": load,
    }
    if is_job(agent, no_events=input_ is None):
        allowed = _LOCAL_JOB_OPTIONS if local else ("--input",)
        others = [option for option in present if option not in allowed]
        if others:
            advice = ", or add --local to run it on events" if set(others) <= set(_LOCAL_JOB_OPTIONS) else ""
            raise ConfigError(
                f"{', '.join(others)} cannot be combined with the job file {agent}. Set the values in the file{advice}."
            )
        from flink_skills.cli.run.job_file import JobRequest, run_job_request
        from flink_skills.cli.run.job_local import LocalRequest

        local_request = None
        if local:
            if input_ is None:
                raise ConfigError(f"--input is missing. Pass --input FILE with the events for the agents of {agent}.")
            excluded = [option for option, value in file_options.items() if value]
            if excluded:
                raise ConfigError(f"--local cannot be combined with {', '.join(excluded)}. Omit one of them.")
            local_request = LocalRequest(input_, job_agent, output, errors, model, base_url)

        job = JobRequest(
            file=Path(str(agent)),
            assignments=(*([f"parallelism.default={parallelism}"] if parallelism else []), *(set_ or ())),
            check=check,
            explain=explain,
            reach=reach,
            flink_plan=flink_plan,
            load=load,
            as_json=format_ is Format.JSON,
            failed=None if local else input_,
            local=local_request,
        )
        raise typer.Exit(run_job_request(job))
    if job_agent is not None:
        raise ConfigError("--agent requires a job file: flink-skills run JOB.yaml --local --agent NAME")
    excluded = [option for option, value in file_options.items() if value]
    if excluded:
        raise ConfigError(f"{', '.join(excluded)} requires a job file: flink-skills run JOB.yaml {excluded[0]}")
    if input_ is None:
        raise ConfigError("--input is missing. Pass a job file, or --input FILE and --key FIELD.")
    from flink_skills.cli.run.run_events import RunRequest, run_job

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
        assignments=tuple(set_ or ()),
        local=local,
    )
    raise typer.Exit(run_job(request))


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
