"""``flink-skills sessions``: what agents knew of their keys when a savepoint was made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.words import FAILED, Format, OutputFormat
from flink_skills.errors import ConfigError

if TYPE_CHECKING:
    from flink_skills.agents.messages import Message
    from flink_skills.flink.savepoints import KeyState, Savepoint

__all__ = ["sessions"]

_LONGEST_STATE = 80


def sessions(
    savepoint: Annotated[
        str,
        typer.Argument(
            metavar="SAVEPOINT",
            show_default=False,
            help="The folder of a savepoint, or of a retained checkpoint: a path or a URL.",
        ),
    ],
    *,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", show_default=False, help="The agent, where the job has several."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            show_default=False,
            help='Show one key in full: a text as it is, anything else as JSON, such as 7 or ["a", 1].',
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    flink: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="KEY=VALUE", show_default=False, help="An option of Flink; may be repeated."),
    ] = None,
) -> None:
    """Read sessions out of a savepoint: turns, conversations, loaded skills, state, and turns under way.

    Without --key a line for each key; with it everything that the agent knew of the key. JSON has everything of all
    keys, an object on each line. Needs the flink extra and Java 17.

    Exit code 0; 1 when there is no such key; 2 for a savepoint that cannot be read, and for bad usage.

    Examples:

        flink-skills sessions s3://bucket/savepoints/savepoint-3f2a91-0c

        flink-skills sessions ./savepoint-3f2a91-0c --agent triage --key order-7
    """
    from flink_skills.agents.keys import key_to_text
    from flink_skills.cli.output import complain
    from flink_skills.flink.savepoints import Savepoint

    found = Savepoint(savepoint, dict(_assignments(flink or [])))
    name = _chosen(found, agent)
    wanted = [key_to_text(key), *_as_json(key)] if key is not None else [None]
    seen = 0
    for text in wanted:
        for state in found.keys(name, text):
            seen += 1
            _show(state, format_, whole=key is not None)
        if seen:
            break
    if key is not None and not seen:
        complain(f"agent {name} has no key {key!r} in {found.location}")
        raise typer.Exit(FAILED)


def _assignments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise typer.BadParameter(f"-D {word}: write KEY=VALUE")
        yield name.strip(), value.strip()


def _chosen(savepoint: Savepoint, agent: str | None) -> str:
    if agent is not None:
        return agent
    if len(savepoint.agents) == 1:
        return next(iter(savepoint.agents))
    if not savepoint.agents:
        raise ConfigError(f"{savepoint.location} has no state of an agent: was it made by another job?")
    raise typer.BadParameter(f"--agent: the savepoint has several: {', '.join(sorted(savepoint.agents))}")


def _as_json(key: str) -> list[str]:
    """The canonical text of a key that is given as JSON; nothing where it is not."""
    from flink_skills.agents.keys import key_to_text

    try:
        return [key_to_text(json.loads(key))]
    except (ValueError, RecursionError):
        return []


def _show(state: KeyState, format_: Format, *, whole: bool) -> None:
    from flink_skills.cli.output import print_json_line, print_line

    data = _data(state)
    if format_ is Format.JSON:
        print_json_line(data)
    elif whole:
        _print_whole(data)
    else:
        print_line(_summary(data))


def _data(state: KeyState) -> dict[str, Any]:
    """Everything of a key as plain data."""
    from flink_skills.agents.codec import decode
    from flink_skills.agents.session import Session
    from flink_skills.agents.stored_event import stored_event
    from flink_skills.tools import SkillState

    session = Session.decode(state.session)
    return {
        "key": json.loads(state.key),
        "turns": state.turns,
        "state": session.state,
        "conversations": [
            {
                "session_id": id_,
                "model": model,
                "loaded_skills": SkillState.from_json(kept).names if (kept := of.skill_states.get(model)) else [],
                "messages": [_message(message) for message in of.messages.get(model, ())],
            }
            for id_, of in session.conversations.items()
            for model in dict.fromkeys([*of.messages, *of.skill_states])
        ],
        "unfinished": [stored_event(event) for event in state.pending],
        # A step that only began has no result.
        "journal": [{"step": entry["id"], "result": entry.get("r")} for entry in map(decode, state.journal)],
    }


def _message(message: Message) -> dict[str, Any]:
    from flink_skills.agents.messages import AssistantMessage, ToolMessage

    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool": message.name, "call_id": message.call_id, "content": message.content}
    if isinstance(message, AssistantMessage):
        calls = [{"id": of.id, "tool": of.name, "arguments": of.arguments} for of in message.tool_calls]
        return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
    return {"role": "user", "content": message.content}


def _summary(data: dict[str, Any]) -> str:
    """A key in one line."""
    from flink_skills.cli.output import counted

    messages = sum(len(of["messages"]) for of in data["conversations"])
    skills = sorted({name for of in data["conversations"] for name in of["loaded_skills"]})
    parts = [
        counted(data["turns"], "turn"),
        *([counted(messages, "message")] if messages else []),
        *([f"skills {', '.join(skills)}"] if skills else []),
        *([f"state {_short(data['state'])}"] if data["state"] is not None else []),
        *([f"{len(data['unfinished'])} unfinished"] if data["unfinished"] else []),
    ]
    return f"{json.dumps(data['key'], ensure_ascii=False)}: {', '.join(parts)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_STATE else f"{text[:_LONGEST_STATE]}…"


def _print_whole(data: dict[str, Any]) -> None:
    from flink_skills.cli.output import counted, print_line

    print_line(("key ", "bold"), json.dumps(data["key"], ensure_ascii=False), f", {counted(data['turns'], 'turn')}")
    print_line(("state ", "bold"), json.dumps(data["state"], ensure_ascii=False))
    for of in data["conversations"]:
        session = f" {of['session_id']}" if of["session_id"] else ""
        print_line((f"conversation{session} ", "bold"), f"with {of['model']}")
        if of["loaded_skills"]:
            print_line("  loaded: ", ", ".join(of["loaded_skills"]))
        for message in of["messages"]:
            who = message.get("tool") or message["role"]
            print_line("  ", (f"{who}: ", "cyan"), message["content"])
            for call in message.get("tool_calls", ()):
                print_line("    calls ", call["tool"], " ", json.dumps(call["arguments"], ensure_ascii=False))
    for number, event in enumerate(data["unfinished"]):
        under_way = ", under way" if number == 0 else ""
        print_line((f"unfinished{under_way} ", "bold"), json.dumps(event, ensure_ascii=False))
        for step in data["journal"] if number == 0 else ():
            print_line("  done: ", step["step"])
