"""``flink-skills sessions``: the sessions of agents in a savepoint or checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.command_options import FAILED, Format, OutputFormat
from flink_skills.cli.ops.savepoint_args import FlinkOptions, SavepointPath, key_candidates, open_savepoint

if TYPE_CHECKING:
    from flink_skills.flink.savepoints import KeyState, Savepoint
    from flink_skills.models.messages import Message

__all__ = ["sessions"]

_MAX_STATE = 80


def sessions(
    savepoint: SavepointPath,
    *,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Agent. Required if the job has several.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help='Show one key in full. Write a string verbatim, other types as JSON, for example 7 or ["a", 1].',
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    flink: FlinkOptions = None,
) -> None:
    """Show agent sessions in a savepoint or checkpoint.

    A session consists of turns, conversations, loaded skills, state, and unfinished turns. Without --key, the command
    prints one line for each key. With --key, it prints the complete session of the key. JSON output has one object per
    line with the complete session of each key. The command requires the extra flink and Java 17.

    Examples:

        flink-skills sessions s3://bucket/savepoints/savepoint-3f2a91-0c

        flink-skills sessions ./savepoint-3f2a91-0c --agent triage --key order-7
    """
    from flink_skills.cli.printing import print_error

    reader = open_savepoint(savepoint, flink)
    name = _select_agent(reader, agent)
    count = 0
    for candidate in key_candidates(key):
        for state in reader.keys(name, candidate):
            count += 1
            _show(state, format_, whole=key is not None)
        if count:
            break
    if key is not None and not count:
        print_error(f"agent {name} has no key {key!r} in {reader.location}")
        raise typer.Exit(FAILED)


def _select_agent(savepoint: Savepoint, agent: str | None) -> str:
    if agent is not None:
        return agent
    if len(savepoint.agents) == 1:
        return next(iter(savepoint.agents))
    raise typer.BadParameter(
        f"--agent is required: the savepoint has several agents: {', '.join(sorted(savepoint.agents))}"
    )


def _show(state: KeyState, format_: Format, *, whole: bool) -> None:
    from flink_skills.cli.printing import print_json_line, print_line

    data = _to_json(state)
    if format_ is Format.JSON:
        print_json_line(data)
    elif whole:
        _print_session(data)
    else:
        print_line(_summary(data))


def _to_json(state: KeyState) -> dict[str, Any]:
    """Return the complete session of a key as JSON data."""
    from flink_skills.agents.state.codec import decode
    from flink_skills.agents.state.session import Session
    from flink_skills.agents.state.stored_event import stored_event
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
                "loaded_skills": SkillState.from_json(stored).names
                if (stored := conversation.skill_states.get(model))
                else [],
                "messages": [_message(message) for message in conversation.messages.get(model, ())],
            }
            for id_, conversation in session.conversations.items()
            for model in dict.fromkeys([*conversation.messages, *conversation.skill_states])
        ],
        "unfinished": [stored_event(event) for event in state.pending],
        # A step that did not finish has no result.
        "journal": [{"step": entry["id"], "result": entry.get("r")} for entry in map(decode, state.journal)],
    }


def _message(message: Message) -> dict[str, Any]:
    from flink_skills.models.messages import AssistantMessage, ToolMessage

    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool": message.name, "call_id": message.call_id, "content": message.content}
    if isinstance(message, AssistantMessage):
        calls = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in message.tool_calls]
        return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
    return {"role": "user", "content": message.content}


def _summary(data: dict[str, Any]) -> str:
    """Return the session of a key as one line."""
    from flink_skills.cli.printing import counted

    messages = sum(len(conversation["messages"]) for conversation in data["conversations"])
    skills = sorted({name for conversation in data["conversations"] for name in conversation["loaded_skills"]})
    parts = [
        counted(data["turns"], "turn"),
        *([counted(messages, "message")] if messages else []),
        *([f"skills {', '.join(skills)}"] if skills else []),
        *([f"state {_truncate(data['state'])}"] if data["state"] is not None else []),
        *([f"{len(data['unfinished'])} unfinished"] if data["unfinished"] else []),
    ]
    return f"{json.dumps(data['key'], ensure_ascii=False)}: {', '.join(parts)}"


def _truncate(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_STATE else f"{text[:_MAX_STATE]}…"


def _print_session(data: dict[str, Any]) -> None:
    from flink_skills.cli.printing import counted, print_line

    print_line(("key ", "bold"), json.dumps(data["key"], ensure_ascii=False), f", {counted(data['turns'], 'turn')}")
    print_line(("state ", "bold"), json.dumps(data["state"], ensure_ascii=False))
    for conversation in data["conversations"]:
        session = f" {conversation['session_id']}" if conversation["session_id"] else ""
        print_line((f"conversation{session} ", "bold"), f"with {conversation['model']}")
        if conversation["loaded_skills"]:
            print_line("  loaded: ", ", ".join(conversation["loaded_skills"]))
        for message in conversation["messages"]:
            author = message.get("tool") or message["role"]
            print_line("  ", (f"{author}: ", "cyan"), message["content"])
            for call in message.get("tool_calls", ()):
                print_line("    calls ", call["tool"], " ", json.dumps(call["arguments"], ensure_ascii=False))
    for number, event in enumerate(data["unfinished"]):
        state = "in progress" if number == 0 else "queued"
        print_line((f"unfinished, {state} ", "bold"), json.dumps(event, ensure_ascii=False))
        for step in data["journal"] if number == 0 else ():
            print_line("  done: ", step["step"])
