"""Computes slots, workers, turns in flight, cores and memory of a job from its load.

The rules are those of ``docs/sizing.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from flink_skills.errors import ConfigError, UnknownNameError, counted


@dataclass(frozen=True)
class Costs:
    """The costs of one unit. CPU times are those of the JVM and of the worker together, in milliseconds.

    The defaults were measured on two cores of about 3 GHz, with the model server on the same cores.
    """

    turn_ms: float = 0.14
    """A turn without its requests."""
    request_ms: float = 0.25
    """A request to a model over HTTP."""
    history_ms: float = 0.04
    """100 more messages of history in a request."""
    tool_ms: float = 0.14
    """A tool call, without the work of the tool."""
    command_ms: float = 2.8
    """A command in the sandbox, without the work of its program."""
    worker_mb: float = 110
    """The memory of a worker without turns."""
    turn_mb: float = 0.016
    """The memory of a turn in flight in its worker."""
    jvm_mb: float = 420
    """The memory of a TaskManager's JVM without its state."""


_MEASURED = Costs()
# A core that is busier than this makes turns wait for each other.
_BUSY = 0.6
# Turns in flight vary: arrivals are not regular, and some answers take longer.
_SPARE = 1.5
# The maximum of a TaskManager with skills.worker.processes = 0.
_MAX_WORKERS = 4
_MIN_IN_FLIGHT = 50
_BYTES_OF_TOKEN = 4
# Sessions in memory have several times the bytes of their stored form.
_MEMORY_OF_SESSION = 5


@dataclass(frozen=True)
class Load:
    """The load of a job.

    Args:
        events: Events per second, at the busiest time.
        answer: Seconds of one answer of the model.
        requests: Requests to the model per turn. Each round of tool calls needs one more.
        tools: Tool calls per turn.
        commands: Commands in the sandbox per turn.
        tool_seconds: Seconds that the tools and commands of a turn take.
        input: Tokens of a request.
        output: Tokens of an answer.
        history: Messages that a request has from earlier turns of its key.
        keys: Different keys; 0 for more than turns are in flight.
        cores: Cores of one TaskManager.
    """

    events: float
    answer: float
    requests: float = 1
    tools: float = 0
    commands: float = 0
    tool_seconds: float = 0
    input: float = 1000
    output: float = 200
    history: float = 0
    keys: float = 0
    cores: float = 2

    @classmethod
    def parse(cls, text: str) -> Load:
        """Read ``name=number`` words that are separated by commas.

        >>> Load.parse("events=50,answer=2").turn_seconds
        2.0

        Raises:
            ConfigError: A value is not a number of 0 or more, or ``events`` or ``answer`` is missing.
            UnknownNameError: A name does not exist.
        """
        known = [field.name for field in fields(cls)]
        found: dict[str, float] = {}
        for word in filter(None, (word.strip() for word in text.split(","))):
            name, _, value = (part.strip() for part in word.partition("="))
            if name not in known:
                raise UnknownNameError("name", name, known, place="--load", show_all=True)
            try:
                found[name] = float(value)
            except ValueError:
                found[name] = math.nan
            if not 0 <= found[name] < math.inf:
                raise ConfigError(f"--load: {name} is {value!r}: write a number of 0 or more, such as {name}=2")
        for name in ("events", "answer"):
            if not found.get(name):
                raise ConfigError(f"--load has no {name}: write at least events=PER_SECOND,answer=SECONDS")
        return cls(**found)

    @property
    def turn_seconds(self) -> float:
        """Seconds of a turn."""
        return float(self.requests * self.answer + self.tool_seconds)


@dataclass(frozen=True)
class Size:
    """The size of a job.

    ``in_flight`` are the turns that run at the same time, and ``max_in_flight`` is the value of
    ``skills.worker.max-in-flight``. ``cores`` are needed for 60 % of use. ``memory_mb`` is that of one TaskManager's
    container without commands and state. ``problems`` are sentences about what no size can solve.
    """

    turn_seconds: float
    in_flight: float
    cpu_ms_per_turn: float
    cores: float
    task_managers: int
    slots: int
    workers: int
    max_in_flight: int
    worker_mb: int
    memory_mb: int
    state_mb: float
    requests_per_minute: float
    tokens_per_minute: float
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON-like data, with three significant digits."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: float(f"{of:.3g}") if isinstance(of, float) else of for name, of in found.items()} | {
            "problems": list(self.problems)
        }


def size_of(load: Load, costs: Costs = _MEASURED, options: Mapping[str, int] | None = None) -> Size:
    """Return the size for a load.

    Args:
        load: The load of the job.
        costs: What one unit costs; the measured costs by default.
        options: What the job has already: ``slots`` in all, and ``max_in_flight`` of each.

    >>> size_of(Load(events=50, answer=2)).in_flight
    100.0
    """
    in_flight = load.events * load.turn_seconds
    cpu_ms = (
        costs.turn_ms
        + load.requests * (costs.request_ms + load.history / 100 * costs.history_ms)
        + load.tools * costs.tool_ms
        + load.commands * costs.command_ms
    )
    cores = load.events * cpu_ms / 1000 / _BUSY
    slots = max(1, math.ceil(cores))
    task_managers = math.ceil(slots / max(1, math.floor(load.cores)))
    slots = math.ceil(slots / task_managers) * task_managers
    workers = min(slots // task_managers, _MAX_WORKERS)
    per_worker = in_flight * _SPARE / (task_managers * workers)
    # Half of the messages of the history are answers.
    message_bytes = (load.output * _BYTES_OF_TOKEN + 200) / 2 + 200
    session_mb = load.history * message_bytes / 2**20
    # The conversations of turns in flight are in the cache of their worker; others come and go.
    worker_mb = math.ceil(costs.worker_mb + per_worker * (costs.turn_mb + session_mb * _MEMORY_OF_SESSION))
    return Size(
        turn_seconds=load.turn_seconds,
        in_flight=in_flight,
        cpu_ms_per_turn=cpu_ms,
        cores=cores,
        task_managers=task_managers,
        slots=slots,
        workers=workers,
        max_in_flight=max(_MIN_IN_FLIGHT, math.ceil(in_flight * _SPARE / slots)),
        worker_mb=worker_mb,
        memory_mb=math.ceil(costs.jvm_mb + workers * worker_mb),
        state_mb=load.keys * session_mb,
        requests_per_minute=load.events * load.requests * 60,
        tokens_per_minute=load.events * load.requests * 60 * (load.input + load.output),
        problems=tuple(_problems(load, in_flight, options or {})),
    )


def _problems(load: Load, in_flight: float, options: Mapping[str, int]) -> list[str]:
    found = []
    if 0 < load.keys < in_flight:
        found.append(
            f"{load.keys:,.0f} keys allow {load.keys / load.turn_seconds:,.3g} turns a second, because a key runs one "
            f"turn at a time: choose a finer key for {load.events:,.3g} events a second"
        )
    places = options.get("slots", 0) * options.get("max_in_flight", 0)
    if 0 < places < in_flight * _SPARE:
        found.append(
            f"{counted(options['slots'], 'slot')} with skills.worker.max-in-flight = {options['max_in_flight']:,} hold "
            f"{places:,} turns, and this load has {in_flight:,.0f} on average: raise the option, or the parallelism"
        )
    return found
