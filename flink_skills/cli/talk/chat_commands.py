"""Slash commands of a chat session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flink_skills.cli.printing import counted, print_error, print_line
from flink_skills.cli.talk.chat_conversation import Conversation
from flink_skills.errors import near_misses

__all__ = ["COMMANDS", "run_command", "tokens_text"]

_MAX_DESCRIPTION = 90


class Command(NamedTuple):
    """Summary and function of a slash command. The function returns False to end the session."""

    summary: str
    run: Callable[[Conversation], bool]


def run_command(line: str, conversation: Conversation) -> bool:
    """Run the command that ``line`` names. Return False to end the session."""
    name = line[1:].split(maxsplit=1)[0].lower() if len(line) > 1 else ""
    command = COMMANDS.get(name)
    if command is None:
        suggestions = near_misses(name, COMMANDS)
        hint = f"Did you mean /{suggestions[0]}? " if suggestions else ""
        print_error(f"unknown command /{name}. {hint}Use /help to list commands, or // to send a message with a slash.")
        return True
    return command.run(conversation)


def _help(conversation: Conversation) -> bool:
    for name, command in COMMANDS.items():
        print_line((f"/{name:<8}", "bold"), f" {command.summary}", stream=sys.stderr)
    print_line("Ctrl-C interrupts an answer. Ctrl-D ends the session.", stream=sys.stderr)
    return True


def _skills(conversation: Conversation) -> bool:
    models = conversation.models()
    for model in models:
        if len(models) > 1:
            print_line((f"model {model.name}", "bold"), stream=sys.stderr)
        loaded = conversation.skill_state(model)
        for name in model.view.names:
            state = "loaded  " if name in loaded else "        "
            skill = model.view.get(name)
            description = " ".join(skill.description.split()) if skill is not None else ""
            if len(description) > _MAX_DESCRIPTION:
                description = description[: _MAX_DESCRIPTION - 1] + "…"
            print_line((state, "green"), (name, "bold"), f"  {description}", stream=sys.stderr)
        if not model.view.names:
            print_line("No skills. Set a source with --skills.", stream=sys.stderr)
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
            print_line("No tools.", stream=sys.stderr)
        if model.services.toolsets is not None:
            print_line("The agent's tool sets add more tools, depending on the key of the event.", stream=sys.stderr)
        if model.services.pool is not None:
            print_line("A loaded skill adds the tools of the agent's pool that it names.", stream=sys.stderr)
    return True


def tokens_text(usage: Mapping[str, int]) -> str:
    """Return token counts as text, with cached tokens and reasoning tokens if there are any.

    >>> tokens_text({"input_tokens": 1200, "output_tokens": 80, "cache_read_tokens": 1000})
    '1,200 tokens in (1,000 from cache), 80 out'
    """

    def parts(**names: str) -> str:
        counts = [f"{usage[name]:,} {label}" for name, label in names.items() if usage.get(name)]
        return f" ({', '.join(counts)})" if counts else ""

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
    print_line(
        f"Started a new conversation with key {conversation.key}, an empty history and an empty workspace.",
        stream=sys.stderr,
    )
    return True


def _exit(conversation: Conversation) -> bool:
    return False


COMMANDS: dict[str, Command] = {
    "help": Command("List the commands.", _help),
    "skills": Command("List the skills that the model can load, and show which are loaded.", _skills),
    "tools": Command("List the tools that the model can call now.", _tools),
    "usage": Command("Show turns, requests and tokens of this conversation.", _usage),
    "reset": Command("Discard the conversation and start a new one.", _reset),
    "exit": Command("End the session.", _exit),
}
