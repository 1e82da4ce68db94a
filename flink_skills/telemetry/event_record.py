"""What an event of an agent is: one flat shape for all kinds, as a record and as columns of a table."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

__all__ = [
    "EVENTS_TAG",
    "EVENT_COLUMNS",
    "EVENT_KINDS",
    "EVENT_VERSION",
    "AgentEvent",
    "EventColumn",
    "PackedEvent",
    "position",
]

#: The side output that events leave by.
EVENTS_TAG = "events"
#: Of the shape. A column that is added, at the end, keeps it; one that changes its meaning, or goes, raises it.
EVENT_VERSION = 1

#: The kinds of events, and when there is one.
EVENT_KINDS = {
    "turn": "A turn ended.",
    "chat": "A chat model answered, or failed for good.",
    "delta": "A piece of an answer, while a chat model writes it, with `skills.events.deltas`.",
    "tool": "A tool call ended.",
    "command": "A command of a sandbox ended; a process that goes on after its call: it was started.",
    "step": "A durable step of the agent's own code (`ctx.step`) ended.",
    "agent": "An agent that another one called as a tool came to an answer, or failed.",
    "skill": "A skill was loaded, or a file of it was read.",
    "retry": "A request to a chat model failed, and is made again.",
    "fallback": "A chat model failed for good, or was passed over, and the next of its fallbacks gets the request.",
    "restart": "A turn under way was started anew: its journal does not fit the agent's code.",
    "open": "An agent was opened on a TaskManager.",
    "refresh": "The skills of an open agent changed.",
    "diagnostic": "Something is to be said about a skill or a source.",
}


@dataclass(frozen=True)
class EventColumn:
    """One field of an event: its name, its SQL type, the kinds that have it (empty: all), and what it holds."""

    name: str
    type: str
    kinds: tuple[str, ...]
    doc: str


_TURN = ("turn", "chat", "delta", "tool", "command", "step", "agent", "skill", "retry", "fallback", "restart")
_TIMED = ("turn", "chat", "tool", "command", "step", "agent")
_MODEL = ("chat", "delta", "tool", "command", "agent", "skill", "retry", "fallback")
_CALLED = ("tool", "command", "step", "skill")

EVENT_COLUMNS = (
    EventColumn("version", "INT", (), "Version of this shape: 1."),
    EventColumn("id", "STRING", (), "Of this event, the same when it is emitted again after a failover."),
    EventColumn("kind", "STRING", (), "What happened, see above."),
    EventColumn("at", "TIMESTAMP_LTZ(3)", (), "When it began; in records milliseconds since 1970."),
    EventColumn("duration_ms", "DOUBLE", _TIMED, "How long it took, in milliseconds."),
    EventColumn("status", "STRING", (), "`ok` or `error`."),
    EventColumn(
        "error",
        "STRING",
        (),
        "What kind of error it was, such as `LimitError` or `exit 1`; `cancelled`: the turn ended first.",
    ),
    EventColumn("agent", "STRING", (), "Id of the agent; of a turn, the agent whose turn it is."),
    EventColumn("subagent", "STRING", _TURN, "The agent that did it, where that is one called as a tool."),
    EventColumn("key", "STRING", _TURN, "The event's key: a text as it is, anything else as JSON."),
    EventColumn("turn", "BIGINT", _TURN, "Number of the turn on its key, from 1."),
    EventColumn("turn_id", "STRING", _TURN, "Id of the turn, the same on every attempt."),
    EventColumn("attempt", "INT", _TURN, "1, and one more for each time that a worker died during the turn."),
    EventColumn("step", "STRING", _TURN, "The durable step that it is part of; null for the turn itself."),
    EventColumn("parent_step", "STRING", _TURN, "The step that called the agent whose step this is."),
    EventColumn("name", "STRING", (), "Name of what it is about: agent, chat model, tool, program, step or skill."),
    EventColumn("model", "STRING", _MODEL, "The agent's name for the chat model that answered or called."),
    EventColumn("model_id", "STRING", ("chat",), "Provider and model behind it, such as `openai:gpt-5`."),
    EventColumn("tool", "STRING", ("delta", "tool", "command", "agent", "skill"), "The tool that was called."),
    EventColumn("call_id", "STRING", _CALLED, "Id of the call, the same on every attempt; tools and commands get it."),
    EventColumn("skill", "STRING", ("command", "skill", "diagnostic"), "Name of the skill."),
    EventColumn("skill_digest", "STRING", ("command", "skill"), "sha256 over the skill's files."),
    EventColumn(
        "action",
        "STRING",
        ("delta", "skill"),
        "`activate` or `read`; `text`, `arguments`, `withdrawn` or `restarted`.",
    ),
    EventColumn("path", "STRING", ("skill", "diagnostic"), "The file that was read, or that the diagnostic is about."),
    EventColumn("input_tokens", "BIGINT", ("turn", "chat"), "Tokens that models read."),
    EventColumn("output_tokens", "BIGINT", ("turn", "chat"), "Tokens that models wrote."),
    EventColumn("requests", "INT", ("turn", "chat"), "Requests to models that were answered."),
    EventColumn("cost", "DOUBLE", ("turn", "chat"), "What the tokens cost, where the job states prices."),
    EventColumn("exit_code", "INT", ("command",), "The program's exit code; null where it did not end by itself."),
    EventColumn(
        "limit_hit",
        "STRING",
        ("command",),
        "The limit that the command ran into; for too much time see `error`: `timeout`.",
    ),
    EventColumn("isolation", "STRING", ("command", "open"), "Isolation level of commands."),
    EventColumn(
        "output_size",
        "BIGINT",
        ("chat", "delta", "tool", "command"),
        "Characters of the answer or the piece, bytes of a command.",
    ),
    EventColumn("code", "STRING", ("diagnostic",), "Code of the diagnostic."),
    EventColumn("severity", "STRING", ("diagnostic",), "`error`, `warning` or `info`."),
    EventColumn("detail", "STRING", (), "JSON: what else is known, see below. Null where there is nothing."),
    EventColumn("cache_read_tokens", "BIGINT", ("turn", "chat"), "Tokens of the input that were read from a cache."),
    EventColumn("cache_write_tokens", "BIGINT", ("turn", "chat"), "Tokens of the input that were written to a cache."),
    EventColumn("reasoning_tokens", "BIGINT", ("turn", "chat"), "Tokens of the output that are reasoning."),
)

# The parts of a pickle around the values: its version and the function, and the call of it with a tuple of one.
_PROTOCOL = 3
_UNPACKS = b"\x80\x03c" + __name__.encode() + b"\n_event_of\n"
_CALL = b"\x85R."

_NAMES = tuple(column.name for column in EVENT_COLUMNS)


def position(name: str) -> int:
    """Where the field ``name`` is in a packed event."""
    return _NAMES.index(name)


class AgentEvent(dict[str, Any]):
    """One event of an agent: a dict that has all fields of :data:`EVENT_COLUMNS`, which are attributes too.

    What does not apply is None. ``detail`` is JSON text, so that an event is flat: it fits a table and a line of JSON.

    >>> event["kind"], event.tool, event.duration_ms
    ('tool', 'load_skill', 3.2)
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"an event has no field {name!r}; there are: {', '.join(_NAMES)}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _event_of, (tuple(self.values()),)


class PackedEvent:
    """The values of an event in the order of :data:`EVENT_COLUMNS`; it is unpickled as an :class:`AgentEvent`.

    A worker makes tens of thousands of them in a second and looks into none: this is cheaper than a dict.
    """

    __slots__ = ("values",)

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return _event_of, (self.values,)

    def pickled(self) -> bytes:
        """What ``pickle.dumps`` gives in half the time: it would look up again for each event what unpacks it."""
        return _UNPACKS + pickle.dumps(self.values, _PROTOCOL)[2:-1] + _CALL

    def unpacked(self) -> AgentEvent:
        """The event itself."""
        return _event_of(self.values)


def _event_of(values: tuple[Any, ...]) -> AgentEvent:
    # Without strict: events that were pickled by an earlier release have fewer fields.
    event = AgentEvent(zip(_NAMES, values, strict=False))
    if len(values) < len(_NAMES):
        event.update(dict.fromkeys(_NAMES[len(values) :]))
    return event
