"""Format of agent events: one flat record for all kinds, which is also a row of a table."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Tag of the side output that emits events.
EVENTS_TAG = "events"
#: Version of the format. A new column at the end does not increase the version; a removed or changed column does.
EVENT_VERSION = 1

#: Kinds of events, each with its occasion.
EVENT_KINDS = {
    "turn": "A turn ended.",
    "chat": "A chat model answered, or failed after all retries.",
    "delta": "Part of an answer while a chat model writes it. Requires `skills.events.deltas`.",
    "tool": "A tool call ended.",
    "command": "A sandboxed command ended, or a process that continues after its call was started.",
    "step": "A durable step of the agent's own code (`ctx.step`) ended.",
    "agent": "A sub-agent that was called as a tool answered, or failed.",
    "skill": "A skill was loaded, or one of its files was read.",
    "retry": "A request to a chat model failed and is retried.",
    "fallback": "A chat model failed after all retries or was skipped, and the request is sent to its next fallback.",
    "restart": "A running turn restarted from its beginning, because its journal does not match the agent's code.",
    "wait": "A wait began, or ended with an answer, a timeout or a cancellation.",
    "control": "A control record paused, refused or resumed an agent, a skill or a tool, or erases a key.",
    "forget": "A key was erased. `detail` has the SHA-256 of the key.",
    "open": "An agent was opened on a TaskManager.",
    "refresh": "The skills of an open agent changed.",
    "diagnostic": "A skill or source has a problem.",
}


@dataclass(frozen=True)
class EventColumn:
    """Column of an event: its name, SQL type, the kinds that fill it (all if empty), and its description."""

    name: str
    type: str
    kinds: tuple[str, ...]
    doc: str


_TURN = ("turn", "chat", "delta", "tool", "command", "step", "agent", "skill", "retry", "fallback", "restart", "wait")
_TIMED = ("turn", "chat", "tool", "command", "step", "agent")
_MODEL = ("chat", "delta", "tool", "command", "agent", "skill", "retry", "fallback")
_CALLED = ("tool", "command", "step", "skill")

EVENT_COLUMNS = (
    EventColumn("version", "INT", (), "Version of the event format: 1."),
    EventColumn("id", "STRING", (), "ID of the event. It stays the same if a failover emits the event again."),
    EventColumn("kind", "STRING", (), "Kind of the event, see [Kinds](#event-kinds)."),
    EventColumn("at", "TIMESTAMP_LTZ(3)", (), "Start time. In records: milliseconds since 1970."),
    EventColumn("duration_ms", "DOUBLE", _TIMED, "Duration in milliseconds."),
    EventColumn("status", "STRING", (), "`ok` or `error`."),
    EventColumn(
        "error",
        "STRING",
        (),
        "Type of the error, such as `LimitError` or `exit 1`. `cancelled` means that the turn ended first.",
    ),
    EventColumn("agent", "STRING", (), "ID of the job's agent, including in events of its sub-agents."),
    EventColumn("subagent", "STRING", _TURN, "Name of the sub-agent that was active, if one was."),
    EventColumn("key", "STRING", _TURN, "Key of the input event: a string verbatim, any other value as JSON."),
    EventColumn("turn", "BIGINT", _TURN, "Number of the turn of its key, from 1."),
    EventColumn("turn_id", "STRING", _TURN, "ID of the turn, the same on every attempt."),
    EventColumn("attempt", "INT", _TURN, "Number of the attempt: 1 plus the number of worker crashes during the turn."),
    EventColumn("step", "STRING", _TURN, "ID of the durable step that contains the event. Null for the turn."),
    EventColumn("parent_step", "STRING", _TURN, "ID of the step that called the sub-agent of this step."),
    EventColumn("name", "STRING", (), "Name of the agent, chat model, tool, program, step or skill."),
    EventColumn("model", "STRING", _MODEL, "Name, in the agent, of the chat model that answered or made the call."),
    EventColumn("model_id", "STRING", ("chat",), "Provider and model, such as `openai:gpt-5`."),
    EventColumn(
        "tool", "STRING", ("delta", "tool", "command", "agent", "skill", "wait", "control"), "Name of the called tool."
    ),
    EventColumn(
        "call_id", "STRING", _CALLED, "ID of the call, the same on every attempt. Tools and commands receive it."
    ),
    EventColumn("skill", "STRING", ("command", "skill", "diagnostic", "control"), "Name of the skill."),
    EventColumn("skill_digest", "STRING", ("command", "skill"), "SHA-256 of the skill's files."),
    EventColumn(
        "action",
        "STRING",
        ("delta", "skill", "wait", "control"),
        "For `skill`: `activate` or `read`. For `delta`: `text`, `arguments`, `withdrawn` or `restarted`. For `wait`: "
        "`open`, `answered`, `timed_out`, `cancelled` or `input_ended`. For `control`: `pause`, `refuse`, `resume` "
        "or `forget`.",
    ),
    EventColumn("path", "STRING", ("skill", "diagnostic"), "Path of the file that was read or has the problem."),
    EventColumn("input_tokens", "BIGINT", ("turn", "chat"), "Number of input tokens."),
    EventColumn("output_tokens", "BIGINT", ("turn", "chat"), "Number of output tokens."),
    EventColumn("requests", "INT", ("turn", "chat"), "Number of requests that models answered."),
    EventColumn("cost", "DOUBLE", ("turn", "chat"), "Cost of the tokens in USD, if the price of the model is known."),
    EventColumn("exit_code", "INT", ("command",), "Exit code of the program. Null if it was terminated."),
    EventColumn(
        "limit_hit",
        "STRING",
        ("command",),
        "Limit that the command exceeded. A timeout has the `error` `timeout` instead.",
    ),
    EventColumn("isolation", "STRING", ("command", "open"), "Isolation level of commands."),
    EventColumn(
        "output_size",
        "BIGINT",
        ("chat", "delta", "tool", "command"),
        "Size of the output: characters of an answer, delta or tool result, bytes of a command.",
    ),
    EventColumn("code", "STRING", ("diagnostic",), "Code of the diagnostic."),
    EventColumn("severity", "STRING", ("diagnostic",), "`error`, `warning` or `info`."),
    EventColumn(
        "detail",
        "STRING",
        (),
        "Further fields as JSON, see [Detail](#event-detail). Null if there are none.",
    ),
    EventColumn("cache_read_tokens", "BIGINT", ("turn", "chat"), "Number of input tokens read from a cache."),
    EventColumn("cache_write_tokens", "BIGINT", ("turn", "chat"), "Number of input tokens written to a cache."),
    EventColumn("reasoning_tokens", "BIGINT", ("turn", "chat"), "Number of output tokens used for reasoning."),
)

# The bytes of a pickle around the values: the protocol and the function, and its call with a tuple of one item.
_PROTOCOL = 3
_UNPACKS = b"\x80\x03c" + __name__.encode() + b"\n_event_of\n"
_CALL = b"\x85R."

_NAMES = tuple(column.name for column in EVENT_COLUMNS)


def position(name: str) -> int:
    """Return the index of the field ``name`` in a packed event."""
    return _NAMES.index(name)


class AgentEvent(dict[str, Any]):
    """Event of an agent: a dict with all fields of :data:`EVENT_COLUMNS`, which are also attributes.

    A field that does not apply is None. ``detail`` is a JSON string, so that the event is flat.

    >>> event["kind"], event.tool, event.duration_ms
    ('tool', 'load_skill', 3.2)
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"event has no field {name!r}. Fields: {', '.join(_NAMES)}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _event_of, (tuple(self.values()),)


class PackedEvent:
    """Values of an event in the order of :data:`EVENT_COLUMNS`. It is unpickled as an :class:`AgentEvent`.

    A worker creates tens of thousands of events per second and reads none of them; a tuple is cheaper than a dict.
    """

    __slots__ = ("values",)

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return _event_of, (self.values,)

    def pickled(self) -> bytes:
        """Return the same bytes as ``pickle.dumps``, in half the time.

        ``pickle.dumps`` looks up the unpickling function for each event.
        """
        return _UNPACKS + pickle.dumps(self.values, _PROTOCOL)[2:-1] + _CALL

    def unpacked(self) -> AgentEvent:
        """Return the event as a dict."""
        return _event_of(self.values)


def event_of_fields(fields: Mapping[str, Any]) -> AgentEvent:
    """Return the event with ``fields``. The pickled events of the operator call this function."""
    return AgentEvent(dict.fromkeys(_NAMES) | dict(fields))


def _event_of(values: tuple[Any, ...]) -> AgentEvent:
    # Not strict: events that an earlier release pickled have fewer fields.
    event = AgentEvent(zip(_NAMES, values, strict=False))
    if len(values) < len(_NAMES):
        event.update(dict.fromkeys(_NAMES[len(values) :]))
    return event
