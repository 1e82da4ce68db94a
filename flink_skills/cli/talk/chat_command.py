"""``flink-skills chat``: an interactive session with an agent that runs the same turns as a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.shared_options import Assignments, SkillsOption, configuration, text_option
from flink_skills.errors import ConfigError
from flink_skills.options import SkillOptions

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan
    from flink_skills.models.setup import ModelSetup


def chat(
    job: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOB",
            show_default=False,
            help="Job file whose agent, skills and options are used. If it has several agents, select one with "
            "--agent.",
        ),
    ] = None,
    *,
    skills: SkillsOption = None,
    agent: Annotated[
        str | None,
        text_option(
            "--agent",
            "AGENT",
            "Agent: module:Class or a YAML file. With JOB: name of an agent in the job file. Default: a plain agent.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Model: offline or PROVIDER:NAME. Default: offline, or the model of the agent."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Base URL of the provider's API. Requires --model.")
    ] = None,
    api_key_env: Annotated[
        str | None, text_option("--api-key-env", "VARIABLE", "Environment variable with the API key. Requires --model.")
    ] = None,
    instructions: Annotated[str, typer.Option("--instructions", help="System prompt of the plain agent.")] = "",
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="Tools of the model: core, full, knowledge_only, or TOOL,TOOL. Default: core."),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Show answers while they arrive. Default: only on a terminal."),
    ] = None,
    set_: Assignments = None,
) -> None:
    """Talk to an agent with skills.

    Each line is an event of one key and runs one turn, as in a job. The conversation and the workspace persist between
    lines. A line that is a JSON object is a structured event. Answers go to stdout, on a terminal as rendered Markdown.
    Tool calls, commands, loaded skills, token counts and costs go to stderr. /help lists the commands of the session.
    Ctrl-C interrupts an answer, and Ctrl-D ends the session. Without a terminal, lines are read from stdin.

    Examples:

        flink-skills chat --skills ./skills

        flink-skills chat --skills ./skills --model openai-compatible:qwen3 --base-url http://localhost:8000/v1

        flink-skills chat job.yaml --agent router
    """
    from flink_skills.cli.agent_args import compile_agent, find_agent, model_setup
    from flink_skills.cli.talk.chat_session import run_chat

    setup = model_setup(model, base_url, api_key_env)
    if job is not None:
        options = {"--skills": skills, "--instructions": instructions}
        if invalid := [option for option, value in options.items() if value]:
            raise ConfigError(
                f"{', '.join(invalid)} cannot be combined with the job file {job}. Set the values in the file."
            )
        assignments = [*(set_ or ()), *([] if profile is None else [f"{SkillOptions.TOOLS.key}={profile}"])]
        plan = _compile_of_job(job, assignments, agent, setup)
    else:
        config = configuration(set_)
        if profile is not None:
            config.set(SkillOptions.TOOLS, [name.strip() for name in profile.split(",")])
        plan = compile_agent(find_agent(agent, instructions), skills or (), config, setup)
    raise typer.Exit(run_chat(plan, stream=stream))


def _compile_of_job(job: Path, assignments: list[str], agent: str | None, setup: ModelSetup | None) -> AgentPlan:
    from flink_skills.job.job_reading import read_job
    from flink_skills.job.local_job import LocalJob

    declared = read_job(job, assignments)
    with declared.hiding():
        local_job = LocalJob(declared, model=setup)
        if agent is None and len(local_job.names) > 1:
            raise ConfigError(f"{job} has several agents. Select one with --agent {' | '.join(local_job.names)}")
        return local_job.plan(agent if agent is not None else local_job.names[0])
