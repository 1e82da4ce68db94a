"""The zygote: a small single-threaded process that forks supervisors, each of which runs one command at a time.

A worker has threads and secrets; forking it is neither safe nor clean. The zygote has neither. It ends when
the worker closes the socket or dies, after the supervisors, which notice the same on their own.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
import time

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.process_tree import Reaped, drain, kill_children, watch_children
from flink_skills.execution.launcher.protocol import Report
from flink_skills.execution.launcher.restrictions import Restrictions, prepare
from flink_skills.execution.launcher.supervisor import supervise

__all__ = ["serve"]

_READY = b"ready"
_MAX_REFUSAL_BYTES = 400


def serve(descriptor: int, libraries: str = "", filters: str = "") -> None:
    """Serve requests from the socket ``descriptor`` until its other end is closed.

    ``libraries`` are the folders, separated by colons, that the libraries for confinement are in; without them
    commands are not confined. ``filters`` are the names of the filters that orders may use, separated by commas. The
    first message is :data:`_READY`, followed by the reason if mediated filters cannot be used.
    """
    linux.reset_signals()
    restrictions = prepare(libraries, tuple(filters.split(","))) if libraries else Restrictions({}, None)
    requests = socket.socket(fileno=descriptor)
    requests.setblocking(True)
    # Should a supervisor be killed, its orphans come here.
    linux.become_subreaper()
    linux.drop_capabilities()
    children_changed = watch_children()
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    poll.register(children_changed, select.POLLIN)
    gc.freeze()
    requests.send(_READY + restrictions.refusal.encode("utf-8", "replace")[:_MAX_REFUSAL_BYTES])
    supervisors: set[int] = set()
    while True:
        ready = {number for number, _ in poll.poll()}
        if children_changed in ready:
            _reap(supervisors, children_changed)
        if descriptor in ready and not _serve_one(requests, supervisors, children_changed, restrictions):
            break
    requests.close()
    while supervisors:
        select.select([children_changed], [], [])
        _reap(supervisors, children_changed)


def _serve_one(
    requests: socket.socket, supervisors: set[int], children_changed: int, restrictions: Restrictions
) -> bool:
    """Take one request and fork its supervisor; false at end of file."""
    try:
        message, received, _, _ = socket.recv_fds(requests, 16, 1)
    except ConnectionResetError:
        return False
    if not message:
        return False
    for descriptor in received:
        control = socket.socket(fileno=descriptor)
        try:
            pid = os.fork()
        except OSError as error:
            _refuse(control, error)
        else:
            if pid == 0:
                gc.disable()  # it makes no garbage, and a collection would copy pages
                requests.close()
                os.close(children_changed)
                _run_supervisor(control, restrictions)
            supervisors.add(pid)
        control.close()
    return True


def _refuse(control: socket.socket, error: OSError) -> None:
    try:
        control.sendall(Report(error=f"the launcher failed to fork a process for the command: {error}").encode())
    except OSError:
        return  # the worker no longer waits for this command


def _run_supervisor(control: socket.socket, restrictions: Restrictions) -> None:
    code = 1
    try:
        code = 0 if supervise(control, restrictions) else 1
    except BaseException:
        import traceback  # only now, because each module delays every fork

        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _reap(supervisors: set[int], children_changed: int) -> None:
    """Reap ended supervisors and end the orphans that a killed one has left to this process."""
    drain(children_changed)
    left_orphans = False
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            left_orphans |= pid not in supervisors or status != 0
            supervisors.discard(pid)
    except ChildProcessError:
        return
    if left_orphans:
        reaped = Reaped()
        kill_children(reaped, children_changed, time.monotonic() + 1.0, frozenset(supervisors))
        supervisors.difference_update(reaped.statuses)
