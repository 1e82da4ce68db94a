"""``flink-skills chat``: an interactive session with an agent that runs the same turns as a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.shared_options import Assignments, text_option


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
    skills: Annotated[
        list[str] | None, text_option("--skills", "SOURCE", "Folder, archive or URL of skills. Can be repeated.")
    ] = None,
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
    lines. A line that is a JSON object is a structured event. Answers go to stdout. Tool calls, commands, loaded skills
    and token counts go to stderr. /help lists the commands of the session. Ctrl-C interrupts an answer, and Ctrl-D ends
    the session. Without a terminal, lines are read from stdin.

    Examples:

        flink-skills chat --skills ./skills

        flink-skills chat --skills ./skills --model openai-compatible:qwen3 --base-url http://localhost:8000/v1

        flink-skills chat job.yaml --agent router
    """
    from flink_skills.cli.talk.chat_session import ChatRequest, run_chat

    request = ChatRequest(
        job=job,
        skills=tuple(skills or ()),
        agent=agent,
        model=model,
        base_url=base_url,
        api_key_env=api_key_env,
        instructions=instructions,
        profile=profile,
        stream=stream,
        assignments=tuple(set_ or ()),
    )
    raise typer.Exit(run_chat(request))
