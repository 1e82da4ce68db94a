"""The measured costs of turns, which sizing uses. ``python -m docs.gen_sizing`` compares them with the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Costs"]


@dataclass(frozen=True)
class Costs:
    """The costs of one unit. CPU times are those of the JVM and of the worker together, in milliseconds."""

    turn_ms: float
    """A turn without its requests."""
    request_ms: float
    """A request to a model over HTTP."""
    history_ms: float
    """100 more messages of history in a request."""
    tool_ms: float
    """A tool call, without the work of the tool."""
    command_ms: float
    """A command in the sandbox, without the work of its program."""
    worker_mb: float
    """The memory of a worker without turns."""
    turn_mb: float
    """The memory of a turn in flight in its worker."""
    jvm_mb: float
    """The memory of a TaskManager's JVM without its state."""

    @classmethod
    def measured(cls) -> Costs:
        """Return what the benchmarks measured on two cores of about 3 GHz, with the model server on the same cores."""
        return cls(
            turn_ms=0.14,
            request_ms=0.25,
            history_ms=0.04,
            tool_ms=0.14,
            command_ms=2.8,
            worker_mb=110,
            turn_mb=0.016,
            jvm_mb=420,
        )
