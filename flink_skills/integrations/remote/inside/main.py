"""The command line of the program in a sandbox. Every call prints one line of JSON.

    about [HOST:PORT…]          what the sandbox is, and which of these addresses it can connect to
    start ID PARTS SECONDS      unpack the order ID, which came as files ID.0, ID.1 …, run it, and wait
    wait ID SECONDS             wait for its end
    stop ID                     end it now

An answer has the ``state`` ``running``, ``ended`` (with the result) or ``lost`` (with the reason).
All are safe to repeat: the same order is run once.
"""

# pathlib cannot open without following links; sleeping is what waiting for another process's file takes.
from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import sys
import time
from typing import Any

from flink_skills.integrations.remote.inside.order import Order, StoredOrder

_CONNECT_WITHIN_SECONDS = 2.0
_STOP_WITHIN_SECONDS = 15.0
_POLL_SECONDS = (0.005, 0.05)


def main(arguments: list[str]) -> None:
    """Do what ``arguments`` say; see the module's text."""
    os.umask(0o077)
    verb, *rest = arguments
    if verb == "about":
        answer = _about(rest)
    elif verb == "start":
        answer = _start(StoredOrder(rest[0]), int(rest[1]), float(rest[2]))
    elif verb == "wait":
        answer = _wait(StoredOrder(rest[0]), float(rest[1]))
    else:
        answer = _stop(StoredOrder(rest[0]))
    sys.stdout.write(json.dumps(answer) + "\n")


def _about(addresses: list[str]) -> dict[str, Any]:
    from concurrent.futures import ThreadPoolExecutor  # not for the other verbs, which are to be quick

    with ThreadPoolExecutor(max_workers=8) as pool:
        reachable = [address for address, open_ in zip(addresses, pool.map(_connects, addresses), strict=True) if open_]
    return {
        "state": "ready",
        "python": platform.python_version(),
        "kernel": platform.release(),
        "uid": os.getuid(),
        "reachable": reachable,
    }


def _connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_WITHIN_SECONDS):
            return True
    except OSError:
        return False


def _start(stored: StoredOrder, parts: int, seconds: float) -> dict[str, Any]:
    if stored.take():
        try:
            order = Order.unpack(stored, parts)
        except (OSError, ValueError, EOFError) as error:
            stored.give_up(f"the sandbox could not unpack the files of the command: {error}")
        else:
            _in_background(stored, order)
    return _wait(stored, seconds)


def _in_background(stored: StoredOrder, order: Order) -> None:
    """Run the order in a process that outlives this one, as the answer may not take as long as the command."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        watcher = os.fork()
        if watcher:
            # Before the caller goes on: from then on this number tells whether the command is still watched.
            stored.set_process(watcher)
            os._exit(0)
        empty = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(empty, descriptor)
        try:
            stored.end(order.run(stored))
        except BaseException as error:
            stored.give_up(f"the sandbox could not run the command: {type(error).__name__}: {error}")
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()  # the supervisor: left to the first process of the pod, it might never be reaped
    finally:
        os._exit(0)


def _wait(stored: StoredOrder, seconds: float) -> dict[str, Any]:
    ends_at = time.monotonic() + seconds
    pause, longest = _POLL_SECONDS
    while True:
        # Asked before the result is, which is written before the process ends.
        alive = stored.alive()
        result = stored.result()
        if result is not None:
            return result
        if not alive:
            return {"state": "lost", "reason": "the process that watched the command was killed"}
        if time.monotonic() >= ends_at:
            return {"state": "running"}
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _stop(stored: StoredOrder) -> dict[str, Any]:
    with contextlib.suppress(ProcessLookupError):
        process = stored.process()
        if process:
            os.kill(process, signal.SIGTERM)
    return _wait(stored, _STOP_WITHIN_SECONDS)
