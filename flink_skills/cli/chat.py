"""``flink-skills chat``: an interactive session with an agent, by the turns of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flink_skills.cli.words import Assignments

__all__ = ["chat"]


def chat(
    job: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOB",
            show_default=False,
            help="A job file, whose agent, skills and options are used; with several agents, --agent names one.",
        ),
    ] = None,
    *,
    skills: Annotated[
        list[str] | None,
        typer.Option("--skills", metavar="SOURCE", help="Folder, archive or URL of skills; may be repeated."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            help="module:Class or a YAML file; default: a plain agent. With JOB: the name of one of its agents.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="offline (default), or PROVIDER:NAME.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="Where the provider's API is.")] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option("--api-key-env", metavar="VARIABLE", help="Environment variable with the API key."),
    ] = None,
    instructions: Annotated[str, typer.Option("--instructions", help="System text of the plain agent.")] = "",
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="The model's tools: core (default), full, knowledge_only, or TOOL,TOOL."),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Show answers while they arrive; default: on a terminal."),
    ] = None,
    set_: Assignments = None,
) -> None:
    """Talk to an agent with skills, by the same turns that a job runs.

    Each line is an event of one key, whose conversation and workspace go on; a line that is a JSON object is a
    structured event. Answers go to stdout, everything else to stderr: tool calls, commands, skills that were loaded,
    tokens. /help lists commands. Ctrl-C interrupts an answer, Ctrl-D ends the session. Without a terminal, lines are
    read from stdin, one turn each.
    Exit code 0; 3 when a turn failed without a terminal; 130 after Ctrl-C without a terminal; 2 for bad usage.

    Examples:

        flink-skills chat --skills ./skills

        flink-skills chat --skills ./skills --model openai-compatible:qwen3 --base-url http://localhost:8000/v1

        flink-skills chat job.yaml --agent router
    """
    from flink_skills.cli.chat_session import ChatRequest, run_chat

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
