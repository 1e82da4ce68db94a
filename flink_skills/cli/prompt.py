"""``flink-skills prompt``: the menu that a model would see, or all that it is sent of skills and tools."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, configuration
from flink_skills.errors import ConfigError, SkillsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flink_skills.cli.prompt_parts import FirstRequest, Part
    from flink_skills.manager import AgentSkillManager, SkillView
    from flink_skills.options import SkillConfig
    from flink_skills.skill import Diagnostic

__all__ = ["prompt"]

_NAMED = 20
_EVENT = "An event."


def prompt(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help="Folders, archives or URLs of skills, as for list. With --agent these are the job's.",
        ),
    ] = None,
    *,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            show_default=False,
            help="Show the skills that a chat model of this agent sees: module:Class or a YAML file.",
        ),
    ] = None,
    chat_model: Annotated[
        str | None,
        typer.Option(
            "--chat-model", metavar="NAME", show_default=False, help="The agent's chat model; default: its first."
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--names",
            metavar="NAME,NAME",
            show_default=False,
            help="Only these skills, like skill_names of an agent or a model; may be repeated.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="PROFILE",
            show_default=False,
            help="Print all that a model with these tools is sent: core, full, knowledge_only, or TOOL,TOOL.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PROVIDER:NAME",
            show_default=False,
            help="Print the body of the first request to this model. Default: the agent's.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", show_default=False, help="Base URL of --model.")
    ] = None,
    event: Annotated[
        str | None,
        typer.Option(
            "--event",
            metavar="TEXT|JSON",
            show_default=False,
            help=f"Print the body of the first request of a turn for this event. Default with --model: {_EVENT!r}.",
        ),
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="With --model or --event: the body that requests a stream.")
    ] = False,
    max_chars: Annotated[
        int | None,
        typer.Option("--max-chars", metavar="N", min=1, show_default=False, help="Like skills.prompt.max-chars."),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Print the menu of skills exactly as a model would see it, and its size.

    The menu goes to stdout; its size, and what was shortened or left out to fit, to stderr. With --profile the whole
    system text goes to stdout, then each tool as a line of JSON, and the size of each part to stderr.
    With --model or --event the body of the request goes to stdout as one line, to the byte as the model's API receives
    it, and the size of its members to stderr. Nothing is sent, and no key is needed.
    Exit code 0; 1 when a source cannot be read, has no skill or a name does not exist; 2 for bad usage.

    Examples:

        flink-skills prompt ./skills

        flink-skills prompt ./skills --names log-triage,metrics --max-chars 4000

        flink-skills prompt ./skills --agent agent.yaml

        flink-skills prompt ./skills --profile full

        flink-skills prompt ./skills --model openai:gpt-x --event "The job restarts."

        flink-skills prompt ./skills --agent agent.yaml --event '{"job": "billing"}'
    """
    from flink_skills.cli.output import complain, diagnostic_line, print_json, print_line, visible

    config = configuration(set_, max_chars=max_chars)
    chosen = None if names is None else _listed(names)
    if chosen == []:
        raise ConfigError("--names: give at least one name, such as --names log-triage")
    if not sources and agent is None:
        raise ConfigError("give a SOURCE of skills or --agent, such as flink-skills prompt ./skills")
    if chat_model is not None and agent is None:
        raise ConfigError("--chat-model needs --agent, whose model it names")
    if profile is not None and agent is not None:
        raise ConfigError("--profile shows a model without an agent: leave out --profile or --agent")
    if profile is not None:
        _choose_tools(config, profile)
    if model is not None or event is not None or stream:
        if format_ is Format.JSON:
            raise ConfigError("--format json describes the menu: leave it out, the body of a request is JSON")
        if model is None and agent is None:
            raise ConfigError("--event and --stream need --model PROVIDER:NAME or --agent AGENT")
        _print_body(
            config,
            model=model,
            base_url=base_url,
            sources=sources or (),
            agent=agent,
            chat_model=chat_model,
            names=chosen,
            event=_EVENT if event is None else event,
            stream=stream,
        )
        return
    if base_url is not None:
        raise ConfigError("--base-url needs --model PROVIDER:NAME")
    try:
        if agent is not None:
            shown = _render_of_agent(sources or (), agent, chat_model, chosen, config)
        else:
            shown = _render(sources or (), chosen, config, tools=profile is not None)
    except SkillsError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None
    if format_ is Format.JSON:
        print_json(shown.to_json())
    else:
        sys.stdout.write("".join(f"{visible(text) if sys.stdout.isatty() else text}\n" for text in shown.texts()))
        for sentence in shown.sentences():
            print_line(sentence, stream=sys.stderr)
    for said in shown.errors:
        print_line(*diagnostic_line(said), stream=sys.stderr)
    raise typer.Exit(FAILED if shown.errors else 0)


def _print_body(config: SkillConfig, *, model: str | None, base_url: str | None, **words: Any) -> None:
    """Print the body of a request to stdout, and its sizes to stderr."""
    from flink_skills.cli.agents import model_setup
    from flink_skills.cli.output import complain, counted, print_line
    from flink_skills.cli.prompt_body import BodyRequest, sent_body

    try:
        body = sent_body(BodyRequest(setup=model_setup(model, base_url), **words), config)
    except SkillsError as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None
    # Bytes, whatever the encoding of stdout is.
    sys.stdout.flush()
    sys.stdout.buffer.write(body.data + b"\n")
    print_line(f"{body.model}: {counted(len(body.data), 'byte')}", stream=sys.stderr)
    for name, size in body.parts:
        print_line(f"{name:<26}{size:>8,} bytes", stream=sys.stderr)
    if body.toolsets:
        print_line(
            f"without the tools of tool sets, which are not opened: {_some([*body.toolsets])}", stream=sys.stderr
        )


def _listed(words: Sequence[str]) -> list[str]:
    return [name for word in words for each in word.split(",") if (name := each.strip())]


def _choose_tools(config: SkillConfig, profile: str) -> None:
    """Let ``config`` choose the tools; raises :class:`ConfigError` for what is no profile and no tool."""
    from flink_skills.options import SkillOptions
    from flink_skills.tools.profiles import resolve_tools

    wanted = _listed([profile])
    if not wanted:
        raise ConfigError("--profile: give core, full, knowledge_only, or names of tools, such as --profile full")
    try:
        resolve_tools(wanted)
    except SkillsError as error:
        raise ConfigError(f"--profile: {error}") from None
    config.set(SkillOptions.TOOLS, wanted)


@dataclass(frozen=True)
class _Shown:
    """The menu, what became of each skill in it, and with ``--profile`` the request that it is part of."""

    text: str
    budget: int
    listed: list[str]
    shortened: list[str]
    left_out: list[str]
    hidden: list[str]
    unsupported: list[Diagnostic]
    errors: list[Diagnostic]
    request: FirstRequest | None = None

    @property
    def tokens(self) -> int:
        from flink_skills.skill.inspection import about_tokens

        return about_tokens(self.text)

    def to_json(self) -> dict[str, object]:
        return {
            "prompt": self.text,
            "chars": len(self.text),
            "tokens": self.tokens,
            "max_chars": self.budget,
            "skills": self.listed,
            "shortened": self.shortened,
            "left_out": self.left_out,
            "hidden": self.hidden,
            "unsupported": {said.skill: said.message for said in self.unsupported},
            **(self.request.to_json() if self.request is not None else {}),
        }

    def texts(self) -> list[str]:
        """What goes to stdout."""
        if self.request is None:
            return [self.text] if self.text else []
        found = [self.request.system] if self.request.system else []
        return [*found, *(["", *self.request.tools] if found and self.request.tools else self.request.tools)]

    def sentences(self) -> list[str]:
        from flink_skills.cli.output import counted

        size = f"{counted(len(self.text), 'character')} of {self.budget:,}, about {counted(self.tokens, 'token')}"
        said = [f"{counted(len(self.listed), 'skill')}: {size}"]
        if self.shortened:
            said.append(f"shortened to fit: {_some(self.shortened)}")
        if self.left_out:
            said.append(f"left out to fit: {_some(self.left_out)}")
        if self.hidden:
            said.append(f"not offered because of disable-model-invocation: {_some(self.hidden)}")
        said += [str(each) for each in self.unsupported]
        if self.request is not None:
            said += [_size(part) for part in (*self.request.parts, self.request.fixed, self.request.total)]
        return said


def _size(part: Part) -> str:
    mark = "" if part.fixed else "  (depends on the skills)"
    return f"{part.name:<26}{part.chars:>8,} characters, about {part.tokens:>6,} tokens{mark}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _render(words: Sequence[str], names: Sequence[str] | None, config: SkillConfig, *, tools: bool) -> _Shown:
    from flink_skills.cli.places import source_word
    from flink_skills.manager import AgentSkillManager

    places = [source_word(word) for word in words]
    manager = AgentSkillManager(
        [location for kind, location in places if kind == "path"],
        urls=[location for kind, location in places if kind == "url"],
        config=config,
    )
    request = _first_request(manager.view(names), config) if tools else None
    return _shown(manager, names, config, request)


def _render_of_agent(
    words: Sequence[str], agent: str, chat_model: str | None, names: Sequence[str] | None, config: SkillConfig
) -> _Shown:
    """Return the menu of a chat model of ``agent`` in a job with the sources ``words``. ``names`` narrow it further."""
    from flink_skills.agents import compile_plan
    from flink_skills.agents.generation import check_names
    from flink_skills.cli.agents import find_agent, job_scope
    from flink_skills.errors import UnknownNameError
    from flink_skills.manager import AgentSkillManager

    scope = job_scope(words, config)
    plan = compile_plan(find_agent(agent, ""), job_scopes=[scope] if scope.sources else [], config=config)
    models = {model.name: model for model in plan.models}
    if chat_model is not None and chat_model not in models:
        raise UnknownNameError("chat model", chat_model, models, place=f"agent {plan.agent_id}")
    model = models[chat_model] if chat_model is not None else next(iter(plan.models), None)
    # Tool sets of the agent are not open here.
    with AgentSkillManager.from_scopes(plan.scopes, config=config, tools=None) as manager:
        known = [skill.name for skill in manager.get_skills()]
        check_names(plan, model, known)
        for name in names or ():
            if name not in known:
                raise UnknownNameError("skill", name, known, place="--names")
        visible = {*manager.view(plan.filter_of(model)).names, *_hidden_among(manager, plan.filter_of(model))}
        seen = sorted(visible)
        return _shown(manager, seen if names is None else [name for name in names if name in visible], config)


def _hidden_among(manager: AgentSkillManager, names: Sequence[str] | None) -> list[str]:
    """The skills that the filter ``names`` lets through, and that the job does not support."""
    return [name for name in manager.hidden if names is None or name in names]


def _shown(
    manager: AgentSkillManager,
    names: Sequence[str] | None,
    config: SkillConfig,
    request: FirstRequest | None = None,
) -> _Shown:
    from flink_skills.manager.menu import parse_menu
    from flink_skills.options import SkillOptions
    from flink_skills.skill.text import clean_line

    text = manager.get_system_prompt(names) if request is None else request.menu
    skills = {skill.name: skill for skill in manager.get_skills()}
    wanted = list(skills) if names is None else sorted(set(names))
    entries = dict(parse_menu(text))
    unsupported = [manager.hidden[name] for name in wanted if name in manager.hidden]
    hidden = [name for name in wanted if skills[name].hidden and name not in entries and name not in manager.hidden]
    # A source without skills is no mere oddity where somebody asks what is in it.
    errors = [said for said in manager.diagnostics if said.severity == "error" or said.code == "D04"]
    return _Shown(
        text,
        config.get(SkillOptions.PROMPT_MAX_CHARS),
        listed=list(entries),
        shortened=[name for name, shown in entries.items() if shown != clean_line(skills[name].description)],
        left_out=[name for name in wanted if name not in entries and name not in hidden and name not in manager.hidden],
        hidden=hidden,
        unsupported=unsupported,
        errors=[replace(said, severity="error") for said in errors],
        request=request,
    )


def _first_request(view: SkillView, config: SkillConfig) -> FirstRequest:
    from flink_skills.cli.prompt_parts import first_request

    return first_request(view, config)
