"""``flink-skills prompt``: the skill menu of a model, its system prompt and tools, or its first request."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.shared_options import (
    FAILED,
    Assignments,
    Format,
    OutputFormat,
    SkillsOption,
    Sources,
    configuration,
    skill_sources,
    text_option,
)
from flink_skills.cli.terminal_output import diagnostic_line, print_error, print_json, print_note
from flink_skills.errors import ConfigError, SkillsError, counted
from flink_skills.texts import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flink_skills.cli.look.prompt_request import AgentRequest, FirstRequest, Part
    from flink_skills.manager import AgentSkillManager
    from flink_skills.options import SkillConfig
    from flink_skills.skill import Diagnostic

_MAX_NAMES = 20
_EVENT = "An event."


def prompt(
    sources: Sources = None,
    *,
    skills: SkillsOption = None,
    agent: Annotated[
        str | None,
        text_option("--agent", "AGENT", "Show the menu of a chat model of this agent: module:Class or a YAML file."),
    ] = None,
    chat_model: Annotated[
        str | None, text_option("--chat-model", "NAME", "Chat model of the agent. Default: the first one.")
    ] = None,
    names: Annotated[
        list[str] | None,
        text_option("--names", "NAME,NAME", "Limit the menu to these skills, as skill_names does. Can be repeated."),
    ] = None,
    profile: Annotated[
        str | None,
        text_option(
            "--profile",
            "PROFILE",
            "Print the system prompt and the tools of a profile: core, full, knowledge_only, or TOOL,TOOL.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        text_option(
            "--model",
            "PROVIDER:NAME",
            "Print the body of the first request to this model. Default with --event: the agent's model.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, text_option("--base-url", "URL", "Base URL of the provider's API. Requires --model.")
    ] = None,
    event: Annotated[
        str | None,
        text_option(
            "--event",
            "TEXT|JSON",
            f"Print the body of the first request of a turn for this event. Default with --model: {_EVENT!r}.",
        ),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print the body of a streaming request. Requires --model or --agent.")
    ] = False,
    max_chars: Annotated[
        int | None,
        typer.Option(
            "--max-chars",
            metavar="N",
            min=1,
            help="Maximum size of the menu in characters. Overrides skills.prompt.max-chars.",
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Print the skill menu that a model receives, and its size.

    The menu goes to stdout. Its size and the names of shortened or omitted skills go to stderr. With --profile, stdout
    has the complete system prompt and each tool as a line of JSON, and stderr has the size of each part. With --model
    or --event, stdout has the exact body of the first request as one line, and stderr has the size of its members.
    Only prompt_cache_key is missing, because it follows from the event's key. The command sends no request and requires
    no API key.

    Examples:

        flink-skills prompt --skills ./skills

        flink-skills prompt --skills ./skills --names log-triage,metrics --max-chars 4000

        flink-skills prompt --skills ./skills --agent agent.yaml

        flink-skills prompt --skills ./skills --profile full

        flink-skills prompt --skills ./skills --model openai:gpt-x --event "The job restarts."

        flink-skills prompt --skills ./skills --agent agent.yaml --event '{"job": "billing"}'
    """
    config = configuration(set_, max_chars=max_chars)
    selected = None if names is None else _split_names(names)
    if selected == []:
        raise ConfigError("--names requires at least one name, for example --names log-triage")
    found = [*(sources or ()), *(skills or ())]
    if not found and agent is None:
        raise ConfigError("--skills or --agent is required, for example: flink-skills prompt --skills ./skills")
    if chat_model is not None and agent is None:
        raise ConfigError("--chat-model requires --agent")
    if profile is not None and agent is not None:
        raise ConfigError("--profile and --agent cannot be combined: an agent declares its tools. Omit one of them.")
    if profile is not None:
        _set_tools(config, profile)
    sends = model is not None or event is not None or stream
    if sends and format_ is Format.JSON:
        raise ConfigError(
            "--format json cannot be combined with --model, --event or --stream: a request body is always JSON"
        )
    if sends and model is None and agent is None:
        raise ConfigError("--event and --stream require --model PROVIDER:NAME or --agent AGENT")
    if base_url is not None and not sends:
        raise ConfigError("--base-url requires --model PROVIDER:NAME")

    from flink_skills.cli.agent_args import model_setup
    from flink_skills.cli.look.prompt_request import AgentRequest

    request = AgentRequest(found, agent, chat_model, selected, config, model_setup(model, base_url))
    try:
        if sends:
            _print_body(request, _EVENT if event is None else event, stream=stream)
            return
        menu = _read_agent_menu(request) if agent is not None else _read_menu(request, tools=profile is not None)
    except SkillsError as error:
        print_error(str(error))
        raise typer.Exit(FAILED) from None
    if format_ is Format.JSON:
        print_json(menu.to_json())
    else:
        sys.stdout.write("".join(f"{visible(text) if sys.stdout.isatty() else text}\n" for text in menu.stdout_texts()))
        for line in menu.stderr_lines():
            print_note(line)
    for diagnostic in menu.errors:
        print_note(*diagnostic_line(diagnostic))
    raise typer.Exit(FAILED if menu.errors else 0)


def _print_body(request: AgentRequest, event: str, *, stream: bool) -> None:
    """Print the body of a request on stdout, and its sizes on stderr."""
    from flink_skills.cli.look.prompt_request import sent_body

    body = sent_body(request, event, stream=stream)
    # Write bytes, regardless of the encoding of stdout.
    sys.stdout.flush()
    sys.stdout.buffer.write(body.data + b"\n")
    print_note(f"{body.model}: {counted(len(body.data), 'byte')}")
    for name, size in body.parts:
        print_note(f"{name:<26}{size:>8,} bytes")
    if body.toolsets:
        print_note(f"The body lacks the tools of tool sets, which are not opened: {_join_names([*body.toolsets])}")


def _split_names(values: Sequence[str]) -> list[str]:
    return [name for value in values for part in value.split(",") if (name := part.strip())]


def _set_tools(config: SkillConfig, profile: str) -> None:
    """Set the tools of ``profile`` in ``config``.

    Raises:
        ConfigError: ``profile`` is neither a profile nor a list of tools.
    """
    from flink_skills.options import SkillOptions
    from flink_skills.tools.profiles import resolve_tools

    tools = _split_names([profile])
    if not tools:
        raise ConfigError(
            "--profile: expected core, full, knowledge_only, or names of tools, for example --profile full"
        )
    try:
        resolve_tools(tools)
    except SkillsError as error:
        raise ConfigError(f"--profile: {error}") from None
    config.set(SkillOptions.TOOLS, tools)


@dataclass(frozen=True)
class _Menu:
    """Menu with the state of each skill, and the first request if ``--profile`` is set."""

    text: str
    budget: int
    listed: list[str]
    shortened: list[str]
    omitted: list[str]
    hidden: list[str]
    unsupported: list[Diagnostic]
    errors: list[Diagnostic]
    request: FirstRequest | None = None

    @property
    def tokens(self) -> int:
        from flink_skills.skill.skill_inspection import about_tokens

        return about_tokens(self.text)

    def to_json(self) -> dict[str, object]:
        return {
            "prompt": self.text,
            "chars": len(self.text),
            "tokens": self.tokens,
            "max_chars": self.budget,
            "skills": self.listed,
            "shortened": self.shortened,
            "left_out": self.omitted,
            "hidden": self.hidden,
            "unsupported": {diagnostic.skill: diagnostic.message for diagnostic in self.unsupported},
            **(self.request.to_json() if self.request is not None else {}),
        }

    def stdout_texts(self) -> list[str]:
        """Return the lines for stdout."""
        if self.request is None:
            return [self.text] if self.text else []
        system = [self.request.system] if self.request.system else []
        return [*system, *(["", *self.request.tools] if system and self.request.tools else self.request.tools)]

    def stderr_lines(self) -> list[str]:
        """Return the lines for stderr: sizes, and shortened, omitted and hidden skills."""
        size = f"{counted(len(self.text), 'character')} of {self.budget:,}, about {counted(self.tokens, 'token')}"
        lines = [f"{counted(len(self.listed), 'skill')}: {size}"]
        if self.shortened:
            lines.append(f"Descriptions shortened to fit: {_join_names(self.shortened)}")
        if self.omitted:
            lines.append(f"Omitted to fit: {_join_names(self.omitted)}")
        if self.hidden:
            lines.append(f"Not in the menu because of disable-model-invocation: {_join_names(self.hidden)}")
        lines += [str(diagnostic) for diagnostic in self.unsupported]
        if self.request is not None:
            lines += [_size_line(part) for part in (*self.request.parts, self.request.fixed, self.request.total)]
        return lines


def _size_line(part: Part) -> str:
    suffix = "" if part.fixed else "  (depends on the skills)"
    return f"{part.name:<26}{part.chars:>8,} characters, about {part.tokens:>6,} tokens{suffix}"


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _read_menu(request: AgentRequest, *, tools: bool) -> _Menu:
    from flink_skills.cli.look.prompt_request import first_request
    from flink_skills.manager import AgentSkillManager

    paths, urls = skill_sources(request.sources)
    manager = AgentSkillManager(paths, urls=urls, config=request.config)
    first = first_request(manager.view(request.names), request.config) if tools else None
    return _build_menu(manager, request.names, request.config, first)


def _read_agent_menu(request: AgentRequest) -> _Menu:
    """Return the menu of a chat model of the agent."""
    with request.open() as (_, plan, model, manager):
        names = plan.filter_of(model)
        # The job does not support the hidden skills, and the menu reports why.
        known = {*manager.view(names).names, *(name for name in manager.hidden if names is None or name in names)}
        selected = sorted(known) if request.names is None else [name for name in request.names if name in known]
        return _build_menu(manager, selected, request.config)


def _build_menu(
    manager: AgentSkillManager,
    names: Sequence[str] | None,
    config: SkillConfig,
    request: FirstRequest | None = None,
) -> _Menu:
    from flink_skills.manager.menu import parse_menu
    from flink_skills.options import SkillOptions
    from flink_skills.skill.text import clean_line

    text = manager.get_system_prompt(names) if request is None else request.menu
    skills = {skill.name: skill for skill in manager.get_skills()}
    selected = list(skills) if names is None else sorted(set(names))
    entries = dict(parse_menu(text))
    unsupported = [manager.hidden[name] for name in selected if name in manager.hidden]
    hidden = [name for name in selected if skills[name].hidden and name not in entries and name not in manager.hidden]
    # A source without skills is an error here, because the user named it.
    errors = [one for one in manager.diagnostics if one.severity == "error" or one.code == "D04"]
    return _Menu(
        text,
        config.get(SkillOptions.PROMPT_MAX_CHARS),
        listed=list(entries),
        shortened=[name for name, line in entries.items() if line != clean_line(skills[name].description)],
        omitted=[name for name in selected if name not in {*entries, *hidden, *manager.hidden}],
        hidden=hidden,
        unsupported=unsupported,
        errors=[replace(diagnostic, severity="error") for diagnostic in errors],
        request=request,
    )
