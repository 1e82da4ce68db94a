"""The event loop of a worker, and what becomes of it in a process that user code forks."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import sys

import uvloop

__all__ = ["new_event_loop"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that waits for events in this process alone.

    A forked process that returns into the loop is a second worker: it has the same pipes, connections and epoll object,
    and what it removes from the epoll object is removed for both. So such a process gets a new, empty epoll
    object, and ends in the next round of its loop.
    """
    loop = uvloop.new_event_loop()
    os.register_at_fork(after_in_child=lambda: _end_soon(loop))
    return loop


def _end_soon(loop: uvloop.Loop) -> None:
    if loop.is_closed() or not loop.is_running():
        return
    if sys.platform == "linux":
        with select.epoll() as empty:
            os.dup2(empty.fileno(), loop._get_backend_id(), inheritable=False)  # type: ignore[attr-defined]
    loop.call_soon(_end)


def _end() -> None:
    logging.getLogger("flink_skills.worker").error(
        "a process that was forked from the worker came back into it and is ended: user code calls os.fork() "
        "and returns in the child; start programs with the module subprocess"
    )
    os._exit(1)
