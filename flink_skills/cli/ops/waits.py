"""``flink-skills waits``: waiting turns in a savepoint or checkpoint."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.command_options import FAILED, Format, OutputFormat
from flink_skills.cli.ops.savepoint_args import FlinkOptions, SavepointPath, agents_of, key_candidates, open_savepoint

if TYPE_CHECKING:
    from flink_skills.flink.savepoints import KeyState, Savepoint

__all__ = ["waits"]

_MAX_PAYLOAD = 100


def waits(
    savepoint: SavepointPath,
    *,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Agent. By default, all agents of the job.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help='Show one key. Write a string verbatim, other types as JSON, for example 7 or ["a", 1].',
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
    from flink_skills.cli.printing import counted, json_line, print_error, print_line

    reader = open_savepoint(savepoint, flink)
    # The waits are sorted in memory, as text: about 300 bytes each, or the complete question for JSON.
    found: list[tuple[int, str]] = []
    early = keys = turns = 0
    for name in agents_of(reader, agent):
        for state in _states(reader, name, key_candidates(key)):
            keys += 1
            early += state.early_answers
            waiting = list(_waits_of(name, state))
            turns += len({wait["turn"] for wait in waiting})
            found += [(wait["since"], _line(wait) if format_ is Format.TEXT else json_line(wait)) for wait in waiting]
    if key is not None and not keys:
        print_error(f"The key {key!r} does not exist in {reader.location}")
        raise typer.Exit(FAILED)
    found.sort(key=lambda wait: wait[0])
    for since, line in found:
        if format_ is Format.JSON:
            sys.stdout.write(f"{line}\n")
        else:
            print_line((_time(since), "cyan"), f"  {line}")
    if format_ is Format.TEXT:
        print_line(f"{counted(turns, 'turn')} waiting, {counted(len(found), 'wait')}")
        if early:
            print_line(f"{counted(early, 'answer')} without a question")


def _states(reader: Savepoint, agent: str, candidates: Sequence[str | None]) -> Iterator[KeyState]:
    """Yield the agent's keys, or the first candidate that exists."""
    for candidate in candidates:
        found = False
        for state in reader.keys(agent, candidate):
            found = True
            yield state
        if found:
            return


def _waits_of(agent: str, state: KeyState) -> Iterator[dict[str, Any]]:
    for turn, wait in state.open_waits():
        asked = wait.request
        yield {
            "wait_id": wait.id,
            "agent": agent,
            "key": json.loads(state.key),
            "turn": turn,
            "kind": asked.kind,
            "name": asked.name,
            "question": asked.question,
            "payload": asked.payload,
            "tool": asked.tool,
            "arguments": None if asked.arguments is None else dict(asked.arguments),
            "since": wait.since,
            "deadline": wait.deadline,
            "event_time": asked.event_time,
            "attempt": wait.attempt,
        }


def _line(wait: dict[str, Any]) -> str:
    """Return the line for a wait, without its time."""
    what = f"{wait['kind']} of {wait['tool']}" if wait["tool"] else f"{wait['kind']} {wait['name']}"
    parts = [f"{wait['agent']} {json.dumps(wait['key'], ensure_ascii=False)} turn {wait['turn']}", what]
    if wait["deadline"] is not None:
        parts.append(f"until {_time(wait['deadline'])}{' in event time' if wait['event_time'] else ''}")
    if wait["kind"] != "sleep":
        parts.append(wait["wait_id"])
    data = wait["payload"] if wait["arguments"] is None else wait["arguments"]
    text = " ".join(word for word in (wait["question"], "" if data is None else _shortened(data)) if word)
    return ", ".join(parts) + (f": {text}" if text else "")


def _shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_PAYLOAD else f"{text[:_MAX_PAYLOAD]}…"


def _time(milliseconds: int) -> str:
    """Return a time in UTC with seconds."""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
