"""``flink-skills sessions`` and ``flink-skills waits``: the state of agents in a savepoint or checkpoint."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.shared_options import FAILED, Format, OutputFormat, text_option
from flink_skills.cli.terminal_output import json_line, print_error, print_json_line, print_line, time_text
from flink_skills.errors import ConfigError, counted

if TYPE_CHECKING:
    from flink_skills.agents.state.waits import OpenWait
    from flink_skills.flink.savepoints import KeyState, Savepoint
    from flink_skills.models.messages import Message

_MAX_STATE, _MAX_PAYLOAD = 80, 100

SavepointPath = Annotated[
    str,
    typer.Argument(
        metavar="SAVEPOINT",
        show_default=False,
        help="Directory of a savepoint or a retained checkpoint: a path or a URL.",
    ),
]
FlinkOptions = Annotated[list[str] | None, text_option("-D", "KEY=VALUE", "Set an option of Flink. Can be repeated.")]


def sessions(
    savepoint: SavepointPath,
    *,
    agent: Annotated[str | None, text_option("--agent", "NAME", "Agent. Required if the job has several.")] = None,
    key: Annotated[
        str | None,
        text_option(
            "--key",
            "KEY",
            'Show one key in full. Write a string verbatim, other types as JSON, for example 7 or ["a", 1].',
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
    reader = _open_savepoint(savepoint, flink or [])
    if agent is None and len(reader.agents) > 1:
        raise typer.BadParameter(
            f"--agent is required: the savepoint has several agents: {', '.join(sorted(reader.agents))}"
        )
    show: Callable[[dict[str, Any]], None] = _print_session if key is not None else _print_summary
    found = False
    for _, state in _states(reader, agent, key):
        found = True
        (print_json_line if format_ is Format.JSON else show)(_session_json(state))
    if key is not None and not found:
        print_error(f"agent {agent or next(iter(reader.agents))} has no key {key!r} in {reader.location}")
        raise typer.Exit(FAILED)


def waits(
    savepoint: SavepointPath,
    *,
    agent: Annotated[str | None, text_option("--agent", "NAME", "Agent. By default, all agents of the job.")] = None,
    key: Annotated[
        str | None,
        text_option(
            "--key", "KEY", 'Show one key. Write a string verbatim, other types as JSON, for example 7 or ["a", 1].'
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    flink: FlinkOptions = None,
) -> None:
    """Show the turns that wait in a savepoint or checkpoint.

    The command prints one line for each wait, the oldest first: since when, the agent, the key, the turn, the wait, and
    its deadline. JSON output has one object per line with the complete question. The command requires the extra flink
    and Java 17.

    Examples:

        flink-skills waits s3://bucket/checkpoints/7c1b/chk-42

        flink-skills waits ./savepoint-3f2a91-0c --agent refunds --format json
    """
    reader = _open_savepoint(savepoint, flink or [])
    # The waits are sorted in memory, as text: about 300 bytes each, or the complete question for JSON.
    found: list[tuple[int, str]] = []
    early = keys = turns = 0
    for name, state in _states(reader, agent, key):
        keys += 1
        early += state.early_answers
        waiting = [_wait_json(name, state, turn, wait) for turn, wait in state.open_waits()]
        turns += len({wait["turn"] for wait in waiting})
        found += [(wait["since"], _wait_line(wait) if format_ is Format.TEXT else json_line(wait)) for wait in waiting]
    if key is not None and not keys:
        print_error(f"The key {key!r} does not exist in {reader.location}")
        raise typer.Exit(FAILED)
    found.sort(key=lambda wait: wait[0])
    if format_ is Format.JSON:
        sys.stdout.writelines(f"{line}\n" for _, line in found)
        return
    for since, line in found:
        print_line((time_text(since), "cyan"), f"  {line}")
    print_line(f"{counted(turns, 'turn')} waiting, {counted(len(found), 'wait')}")
    if early:
        print_line(f"{counted(early, 'answer')} without a question")


def _open_savepoint(location: str, assignments: list[str]) -> Savepoint:
    """Return the savepoint at ``location``, read with options ``KEY=VALUE`` of Flink.

    Raises:
        ConfigError: There is no savepoint, or it has no state of agents.
    """
    from flink_skills.flink import Savepoint

    options = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise typer.BadParameter(f"-D {assignment}: expected KEY=VALUE")
        options[name.strip()] = value.strip()
    found = Savepoint(location, options)
    if not found.agents:
        raise ConfigError(f"{found.location} contains no agent state. Check that a job with agents wrote it.")
    return found


def _states(reader: Savepoint, agent: str | None, key: str | None) -> Iterator[tuple[str, KeyState]]:
    """Yield the agent and state of each key, or of ``key``. None selects all agents, or all keys.

    A user can mean two keys: the string itself, and the value if it is JSON. The first that exists is selected.
    """
    from flink_skills.agents.state.keys import key_to_text

    candidates = [None if key is None else key_to_text(key)]
    if key is not None:
        with contextlib.suppress(ValueError, RecursionError):  # The key is not JSON.
            candidates.append(key_to_text(json.loads(key)))
    for name in sorted(reader.agents) if agent is None else [agent]:
        for candidate in candidates:
            found = False
            for state in reader.keys(name, candidate):
                found = True
                yield name, state
            if found:
                break


def _session_json(state: KeyState) -> dict[str, Any]:
    """Return the complete session of a key as JSON data."""
    from flink_skills.agents.state.codec import decode
    from flink_skills.agents.state.event import stored_event
    from flink_skills.agents.state.session import Session
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
                "messages": [_message_json(message) for message in conversation.messages.get(model, ())],
            }
            for id_, conversation in session.conversations.items()
            for model in dict.fromkeys([*conversation.messages, *conversation.skill_states])
        ],
        "unfinished": [stored_event(event) for event in state.pending],
        # A step that did not finish has no result.
        "journal": [{"step": entry["id"], "result": entry.get("r")} for entry in map(decode, state.journal)],
    }


def _message_json(message: Message) -> dict[str, Any]:
    from flink_skills.models.messages import AssistantMessage, ToolMessage

    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool": message.name, "call_id": message.call_id, "content": message.content}
    if isinstance(message, AssistantMessage):
        calls = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in message.tool_calls]
        return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
    return {"role": "user", "content": message.content}


def _print_summary(data: dict[str, Any]) -> None:
    """Print the session of a key as one line."""
    messages = sum(len(conversation["messages"]) for conversation in data["conversations"])
    skills = sorted({name for conversation in data["conversations"] for name in conversation["loaded_skills"]})
    parts = [
        counted(data["turns"], "turn"),
        *([counted(messages, "message")] if messages else []),
        *([f"skills {', '.join(skills)}"] if skills else []),
        *([f"state {_to_text(data['state'], _MAX_STATE)}"] if data["state"] is not None else []),
        *([f"{len(data['unfinished'])} unfinished"] if data["unfinished"] else []),
    ]
    print_line(f"{_to_text(data['key'])}: {', '.join(parts)}")


def _print_session(data: dict[str, Any]) -> None:
    print_line(("key ", "bold"), _to_text(data["key"]), f", {counted(data['turns'], 'turn')}")
    print_line(("state ", "bold"), _to_text(data["state"]))
    for conversation in data["conversations"]:
        session = f" {conversation['session_id']}" if conversation["session_id"] else ""
        print_line((f"conversation{session} ", "bold"), f"with {conversation['model']}")
        if conversation["loaded_skills"]:
            print_line("  loaded: ", ", ".join(conversation["loaded_skills"]))
        for message in conversation["messages"]:
            author = message.get("tool") or message["role"]
            print_line("  ", (f"{author}: ", "cyan"), message["content"])
            for call in message.get("tool_calls", ()):
                print_line("    calls ", call["tool"], " ", _to_text(call["arguments"]))
    for number, event in enumerate(data["unfinished"]):
        state = "in progress" if number == 0 else "queued"
        print_line((f"unfinished, {state} ", "bold"), _to_text(event))
        for step in data["journal"] if number == 0 else ():
            print_line("  done: ", step["step"])


def _wait_json(agent: str, state: KeyState, turn: int, wait: OpenWait) -> dict[str, Any]:
    from flink_skills.agents.rows.wait_record import wait_record

    record = wait_record(wait, None, agent=agent, key=json.loads(state.key), turn=turn)
    ended = ("status", "answer", "by", "at")  # Fields of waits that have ended.
    return {**{name: record[name] for name in record if name not in ended}, "event_time": wait.request.event_time}


def _wait_line(wait: dict[str, Any]) -> str:
    """Return the line for a wait, without its time."""
    what = f"{wait['kind']} of {wait['tool']}" if wait["tool"] else f"{wait['kind']} {wait['name']}"
    parts = [f"{wait['agent']} {_to_text(wait['key'])} turn {wait['turn']}", what]
    if wait["deadline"] is not None:
        parts.append(f"until {time_text(wait['deadline'])}{' in event time' if wait['event_time'] else ''}")
    if wait["kind"] != "sleep":
        parts.append(wait["wait_id"])
    data = wait["payload"] if wait["arguments"] is None else wait["arguments"]
    text = " ".join(word for word in (wait["question"], "" if data is None else _to_text(data, _MAX_PAYLOAD)) if word)
    return ", ".join(parts) + (f": {text}" if text else "")


def _to_text(value: Any, max_length: int | None = None) -> str:
    """Return a value as JSON, truncated to ``max_length`` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if max_length is None or len(text) <= max_length else f"{text[:max_length]}…"
