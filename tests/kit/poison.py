"""Events and agents that break turns: each must cost its own turn only, in every mode and on every path."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from typing import Any

from pydantic import BaseModel, model_validator

from flink_skills import Agent

__all__ = [
    "FAILURES",
    "UNREADABLE_KEYS",
    "BadText",
    "ExitsWhenRead",
    "FailsWhenRead",
    "Poisoned",
    "PoisonedState",
    "nested",
]

#: Texts that are not the canonical text of any key.
UNREADABLE_KEYS = ('{"$date":"2024-01-01T00:00:00Z"}', '{"$decimal":"x"}', '{"$bytes":5}', "{", "nope")


def nested(levels: int) -> Any:
    """Return a list within a list, ``levels`` deep."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


class FailsWhenRead:
    """An event that raises ``error`` while it is unpickled."""

    def __init__(self, error: str) -> None:
        self.error = error

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise BaseException if state["error"] == "BaseException" else _error(state["error"])


class ExitsWhenRead:
    """An event that ends the process that unpickles it."""

    def __setstate__(self, state: Any) -> None:
        os._exit(7)

    def __getstate__(self) -> dict[str, Any]:
        return {"some": "state"}


class BadText(Exception):
    """An error, and an output, without a text and without a pickled form."""

    def __str__(self) -> str:
        raise KeyboardInterrupt("no text")

    def __repr__(self) -> str:
        raise SystemExit("no text either")

    def __reduce__(self) -> Any:
        raise GeneratorExit("no form")


def _error(name: str) -> BaseException:
    return {
        "KeyError": KeyError("a"),
        "RecursionError": RecursionError("deep"),
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
        "BadText": BadText(),
        "surrogate": ValueError("lone \ud800 surrogate"),
        "huge": ValueError("x" * (20 << 20)),
    }[name]


_ERRORS = (
    "KeyError",
    "RecursionError",
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "CancelledError",
    "BadText",
    "surrogate",
    "huge",
)


class Poisoned(Agent):
    """Does what the event's first item says, with the others as arguments. Answers everything else with it."""

    name = "poisoned"

    async def on_event(self, event: Any, ctx: Any) -> Any:
        if not isinstance(event, tuple):
            return event
        what, *arguments = event
        return await getattr(self, f"do_{what}")(ctx, *arguments)

    async def do_raise(self, ctx: Any, name: str, *rest: Any) -> Any:
        raise _error(name)

    async def do_raise_in_step(self, ctx: Any, name: str) -> Any:
        def fail() -> None:
            raise _error(name)

        return await ctx.step("fail", fail)

    async def do_raise_in_task(self, ctx: Any, name: str) -> Any:
        async def fail() -> None:
            raise _error(name)

        return await asyncio.create_task(fail())

    async def do_await_cancelled(self, ctx: Any) -> Any:
        task = asyncio.create_task(asyncio.sleep(3600))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    async def do_cancel_itself(self, ctx: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(3600)

    async def do_output(self, ctx: Any, what: str) -> Any:
        if what == "nested":
            return nested(100_000)
        if what == "lock":
            return threading.Lock()
        if what == "bad text":
            return BadText()
        if what == "tag":
            ctx.emit_to("lone \ud800", 1)
            return None
        assert what == "itself"
        loop: list[Any] = [BadText()]
        loop.append(loop)
        return loop

    async def do_state(self, ctx: Any, what: str) -> Any:
        ctx.state["kept"] = nested(100_000) if what == "nested" else BadText()

    async def do_swallow(self, ctx: Any, seconds: float) -> Any:
        """Outlive cancellation for some seconds, then emit and run a step."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        ctx.emit("late")
        return await ctx.step("late", lambda: "late")

    async def do_hang(self, ctx: Any, steps: int) -> Any:
        """Block threads for good."""
        await asyncio.gather(*(ctx.step("hang", hang) for _ in range(steps)))


def hang() -> None:
    """Wait for good."""
    threading.Event().wait()


class PoisonedState(Agent):
    """Has a state type that raises what the stored state names."""

    name = "poisoned_state"

    class State(BaseModel):
        error: str = ""

        @model_validator(mode="before")
        @classmethod
        def _fails(cls, data: Any) -> Any:
            if isinstance(data, dict) and data.get("error"):
                if data["error"] == "exit":
                    os._exit(7)
                raise _error(data["error"])
            return data

    state_type = State

    async def on_event(self, event: Any, ctx: Any) -> Any:
        return event


#: Events that :class:`Poisoned` fails with, by name.
FAILURES: dict[str, Any] = {
    "a nested event": ("raise", "KeyError", nested(260)),
    **{f"{name} raised": ("raise", name) for name in _ERRORS},
    **{f"{name} raised in a step": ("raise_in_step", name) for name in _ERRORS},
    **{f"{name} raised in a task": ("raise_in_task", name) for name in _ERRORS},
    "a cancelled task": ("await_cancelled",),
    "a task that cancels itself": ("cancel_itself",),
    **{f"output {what}": ("output", what) for what in ("nested", "lock", "bad text", "tag", "itself")},
    **{f"state {what}": ("state", what) for what in ("nested", "object")},
    **{f"{name} while the event is read": FailsWhenRead(name) for name in _ERRORS},
}
