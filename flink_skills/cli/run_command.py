"""The words of ``flink-skills run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.words import Format, OutputFormat
from flink_skills.errors import ConfigError

__all__ = ["run"]

_OF_LOCAL_JOBS = ("--local", "--input", "--agent", "--output", "--errors", "--model", "--base-url")


def run(
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB_OR_AGENT",
            show_default=False,
            help="A job file; or an agent, module:Class or a YAML file, for the events of --input; without either, a "
            "plain agent with --instructions.",
        ),
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Job file: look for all that is wrong, and submit nothing.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Job file: say what the job will be, and submit nothing.")
    ] = False,
    reach: Annotated[
        bool,
        typer.Option(
            "--reach",
            help="With --check or --explain: load the skills of URLs and connect to MCP servers. --check also "
            "asks each model.",
        ),
    ] = False,
    flink_plan: Annotated[bool, typer.Option("--flink-plan", help="With --explain: Flink's own plan as well.")] = False,
    load: Annotated[
        str | None,
        typer.Option(
            "--load",
            metavar="NAME=N,...",
            show_default=False,
            help="With --explain: the size that the job needs for a load, such as events=50,answer=2.",
        ),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of job files.")] = False,
    format_: OutputFormat = Format.TEXT,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Events, one JSON object a line, - for stdin; or error records, to run what has failed again.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Field of the events that is their key; without it, --input has error records."),
    ] = None,
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
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", min=1, show_default=False, help="Parallelism of the job; default: 1.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option, skills.* or Flink's; wins over a job file."),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Run in this process, without Flink; a job file on the events of --input."),
    ] = False,
    job_agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            show_default=False,
            help="With --local: the agent of a job file that gets the events; default: the only one with a table.",
        ),
    ] = None,
) -> None:
    """Run a job file, or an agent over a file of events, in a mini cluster of this process.

    Exit code 0; 1 when the job failed, or --check found something wrong; 2 for bad usage, or a job file that cannot be
    used; 3 if turns failed. A run ends with its turns and failures on stderr.

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
        from flink_skills.cli.output import print_json
        from flink_skills.job.schema import job_schema

        print_json(job_schema())
        return
    of_events = {
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
    given = [word for word, value in of_events.items() if value is not None]
    of_file = {"--check": check, "--explain": explain, "--reach": reach, "--flink-plan": flink_plan, "--load": load}
    if is_job(agent, no_events=input_ is None):
        allowed = _OF_LOCAL_JOBS if local else ("--input",)
        others = [word for word in given if word not in allowed]
        if others:
            advice = "; with --local it runs on events" if set(others) <= set(_OF_LOCAL_JOBS) else ""
            raise ConfigError(f"{agent} is a job file, which says itself what {', '.join(others)} would{advice}")
        from flink_skills.cli.job_file import JobRequest, run_job_request
        from flink_skills.cli.job_local import LocalRequest

        on_events = None
        if local:
            if input_ is None:
                raise ConfigError(f"--input is missing: --local runs the agents of {agent} on events of a file")
            words = [word for word, value in of_file.items() if value]
            if words:
                raise ConfigError(f"--local runs a job file: leave out {', '.join(words)}")
            on_events = LocalRequest(input_, job_agent, output, errors, model, base_url)

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
            local=on_events,
        )
        raise typer.Exit(run_job_request(job))
    if job_agent is not None:
        raise ConfigError("--agent needs a job file: flink-skills run JOB.yaml --local --agent NAME")
    wrong = [word for word, value in of_file.items() if value]
    if wrong:
        raise ConfigError(f"{', '.join(wrong)} needs a job file: flink-skills run JOB.yaml {wrong[0]}")
    if input_ is None:
        raise ConfigError("--input is missing: give a job file, or --input FILE and --key FIELD")
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
        parallelism=parallelism or 1,
        assignments=tuple(set_ or ()),
        local=local,
    )
    raise typer.Exit(run_job(request))


def is_job(word: str | None, *, no_events: bool) -> bool:
    """Whether the first word of the command is a job file: a YAML file that is one, or that stands alone."""
    if word is None or not word.endswith((".yaml", ".yml")):
        return False
    if no_events:
        return True
    from flink_skills.job.reading import is_job_file

    return is_job_file(Path(word))
