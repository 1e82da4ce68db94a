"""The zygote: a small single-threaded process that forks a supervisor for every command.

A worker has threads and secrets; forking it is neither safe nor clean. The zygote has neither. It ends when
the worker closes the socket or dies, after the supervisors, which notice the same on their own.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
import traceback

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.command import Filters
from flink_skills.execution.launcher.protocol import Report
from flink_skills.execution.launcher.supervisor import end_children, supervise

__all__ = ["DESCRIPTORS_PER_COMMAND", "READY", "serve"]

READY = b"ready"
DESCRIPTORS_PER_COMMAND = 4  # control socket, stdin, stdout, stderr


def serve(descriptor: int, libraries: str = "") -> None:
    """Serve requests from the socket ``descriptor`` until its other end is closed.

    ``libraries`` are the folders, separated by colons, that the libraries for confinement are in; without them
    commands are not confined.
    """
    # The JVM blocks SIGQUIT in the programs that it starts, and other parents may block more.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    filters = _load_filters(libraries) if libraries else {}
    requests = socket.socket(fileno=descriptor)
    requests.setblocking(True)
    # Should a supervisor be killed, its orphans come here.
    linux.become_subreaper()
    linux.drop_capabilities()
    children_changed = linux.watch_children()
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    poll.register(children_changed, select.POLLIN)
    gc.freeze()
    requests.send(READY)
    supervisors: set[int] = set()
    while True:
        ready = {number for number, _ in poll.poll()}
        if children_changed in ready:
            _bury(supervisors, children_changed)
        if descriptor in ready and not _serve_one(requests, supervisors, children_changed, filters):
            break
    requests.close()
    while supervisors:
        select.select([children_changed], [], [])
        _bury(supervisors, children_changed)


def _load_filters(libraries: str) -> Filters:
    """Import what confines commands, once and before the first fork, and build the filters."""
    sys.path += [folder for folder in libraries.split(":") if folder not in sys.path]
    # Imported by the library itself, and needed by nobody here: it would bring in a third of this process's memory,
    # which every fork pays for, and modules that do things of their own at each fork.
    sys.modules.setdefault("landlockpy.testing", type(sys)("landlockpy.testing"))
    from flink_skills.execution.launcher import confinement, syscall_filter

    confinement.prepare()
    modes = (syscall_filter.OFFLINE, syscall_filter.INET)
    return {mode: syscall_filter.filter_program(mode) for mode in modes}


def _serve_one(requests: socket.socket, supervisors: set[int], children_changed: int, filters: Filters) -> bool:
    """Take one request and fork its supervisor; false at end of file."""
    try:
        message, received, _, _ = socket.recv_fds(requests, 16, DESCRIPTORS_PER_COMMAND)
    except ConnectionResetError:
        return False
    if not message:
        return False
    if len(received) == DESCRIPTORS_PER_COMMAND:
        control = socket.socket(fileno=received[0])
        try:
            pid = os.fork()
        except OSError as error:
            _refuse(control, error)
        else:
            if pid == 0:
                gc.disable()  # nothing lives long enough for it
                requests.close()
                os.close(children_changed)
                _run_supervisor(control, (received[1], received[2], received[3]), filters)
            supervisors.add(pid)
        control.close()
        received = received[1:]
    for descriptor in received:
        os.close(descriptor)
    return True


def _refuse(control: socket.socket, error: OSError) -> None:
    try:
        control.sendall(Report(error=f"cannot start a process: {error}").encode())
    except OSError:
        return  # the worker no longer waits for this command


def _run_supervisor(control: socket.socket, stdio: tuple[int, int, int], filters: Filters) -> None:
    code = 1
    try:
        supervise(control, stdio, filters)
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _bury(supervisors: set[int], children_changed: int) -> None:
    """Reap ended supervisors and end the orphans that a killed one has left to this process."""
    try:
        while os.read(children_changed, 4096):
            continue
    except BlockingIOError:
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
        ended = end_children(children_changed, time.monotonic() + 1.0, frozenset(supervisors))
        supervisors.difference_update(ended)
