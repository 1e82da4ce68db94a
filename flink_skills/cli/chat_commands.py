"""The commands of a session that begin with a slash."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flink_skills.cli.chat_conversation import Conversation
from flink_skills.cli.output import complain, counted, print_line
from flink_skills.errors import near_misses

__all__ = ["COMMANDS", "run_command", "tokens_text"]

_DESCRIPTION = 90


class Command(NamedTuple):
    """What a command is for, and what it does; False ends the session."""

    summary: str
    run: Callable[[Conversation], bool]


def run_command(line: str, conversation: Conversation) -> bool:
    """Run the command that ``line`` names; False when the session is to end."""
    name = line[1:].split(maxsplit=1)[0].lower() if len(line) > 1 else ""
    command = COMMANDS.get(name)
    if command is None:
        near = near_misses(name, COMMANDS)
        hint = f"did you mean /{near[0]}? " if near else ""
        complain(f"there is no command /{name}: {hint}/help lists them; // begins a message that has a slash")
        return True
    return command.run(conversation)


def _help(conversation: Conversation) -> bool:
    for name, command in COMMANDS.items():
        print_line((f"/{name:<8}", "bold"), f" {command.summary}", stream=sys.stderr)
    print_line("Ctrl-C interrupts an answer, Ctrl-D ends the session.", stream=sys.stderr)
    return True


def _skills(conversation: Conversation) -> bool:
    models = conversation.models()
    for model in models:
        if len(models) > 1:
            print_line((f"model {model.name}", "bold"), stream=sys.stderr)
        loaded = conversation.loaded(model)
        for name in model.view.names:
            mark = "loaded  " if name in loaded else "        "
            skill = model.view.get(name)
            description = " ".join(skill.description.split()) if skill is not None else ""
            shown = description if len(description) <= _DESCRIPTION else description[: _DESCRIPTION - 1] + "…"
            print_line((mark, "green"), (name, "bold"), f"  {shown}", stream=sys.stderr)
        if not model.view.names:
            print_line("no skills: give a source with --skills", stream=sys.stderr)
    return True


def _tools(conversation: Conversation) -> bool:
    models = conversation.models()
    for model in models:
        if len(models) > 1:
            print_line((f"model {model.name}", "bold"), stream=sys.stderr)
        for spec in conversation.tools(model):
            first = " ".join(spec.description.split()).split(". ")[0].rstrip(".")
            print_line((spec.name, "bold"), f"  {first}", stream=sys.stderr)
        if not model.tools.names:
            print_line("no tools", stream=sys.stderr)
        if model.services.toolsets is not None:
            print_line("and those of the agent's tool sets, which depend on the event's key", stream=sys.stderr)
        if model.services.pool is not None:
            print_line("and those of the agent's pool that a loaded skill names", stream=sys.stderr)
    return True


def tokens_text(usage: Mapping[str, int]) -> str:
    """Return the tokens of a usage for people, with those of caches and of reasoning if there are any.

    >>> tokens_text({"input_tokens": 1200, "output_tokens": 80, "cache_read_tokens": 1000})
    '1,200 tokens in (1,000 from cache), 80 out'
    """

    def parts(**names: str) -> str:
        found = [f"{usage[name]:,} {word}" for name, word in names.items() if usage.get(name)]
        return f" ({', '.join(found)})" if found else ""

    cached = parts(cache_read_tokens="from cache", cache_write_tokens="to cache")
    reasoned = parts(reasoning_tokens="reasoning")
    return f"{usage['input_tokens']:,} tokens in{cached}, {usage['output_tokens']:,} out{reasoned}"


def _usage(conversation: Conversation) -> bool:
    usage = conversation.usage
    print_line(
        f"{counted(conversation.turns, 'turn')}, {counted(usage.requests, 'request')}, " + tokens_text(vars(usage)),
        stream=sys.stderr,
    )
    return True


def _reset(conversation: Conversation) -> bool:
    conversation.reset()
    print_line(f"a new conversation, key {conversation.key}: empty history, empty workspace", stream=sys.stderr)
    return True


def _exit(conversation: Conversation) -> bool:
    return False


COMMANDS: dict[str, Command] = {
    "help": Command("this list", _help),
    "skills": Command("the skills that the model may load, and those that are loaded", _skills),
    "tools": Command("the tools that the model may call now", _tools),
    "usage": Command("turns, requests and tokens of this conversation", _usage),
    "reset": Command("forget the conversation and begin another one", _reset),
    "exit": Command("end the session", _exit),
}
