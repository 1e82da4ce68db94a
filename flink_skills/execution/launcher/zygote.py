"""The zygote: a small single-threaded process that forks supervisors, each of which runs one command at a time.

A worker has threads and secrets; forking it is neither safe nor clean. The zygote has neither. It ends when
the worker closes the socket or dies, after the supervisors, which notice the same on their own.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.process_tree import Reaped, drain, kill_children, watch_children
from flink_skills.execution.launcher.protocol import Report, Restrictions, Rights, is_mediated
from flink_skills.execution.launcher.supervisor import supervise

_READY = b"ready"
_MAX_REFUSAL_BYTES = 400


def serve(descriptor: int, libraries: str, filters: str) -> None:
    """Serve requests from the socket ``descriptor`` until its other end is closed.

    ``libraries`` are the directories of the libraries for confinement, separated by colons. ``filters`` are the names
    of the filters that orders may use, separated by commas. The first message is ``ready``, followed by the reason if
    mediated filters cannot be used.
    """
    linux.reset_signals()
    restrictions = _prepare(libraries, tuple(filters.split(",")))
    requests = socket.socket(fileno=descriptor)
    requests.setblocking(True)
    # Adopt the orphans of a supervisor that is killed.
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
    """Accept one request and fork its supervisor. Return False at the end of the requests."""
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
            report = Report(error=f"the launcher failed to fork a process for the command: {error}")
            with suppress(OSError):  # the worker no longer waits for this command
                control.sendall(report.encode())
        else:
            if pid == 0:
                gc.disable()  # it makes no garbage, and a collection would copy pages
                requests.close()
                os.close(children_changed)
                _run_and_exit(partial(supervise, control, restrictions))
            supervisors.add(pid)
        control.close()
    return True


def _run_and_exit(action: Callable[[], bool]) -> NoReturn:
    """Exit with code 0 if ``action`` returns True."""
    code = 1
    try:
        code = 0 if action() else 1
    except BaseException:
        import traceback  # only now, because each module delays every fork

        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
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


def _prepare(libraries: str, filters: tuple[str, ...]) -> Restrictions:
    """Prepare the restrictions with the libraries in the directories ``libraries``, separated by colons.

    ``filters`` are the filter names that orders can use. If this process is not allowed to use mediated ones,
    ``refusal`` of the result is the reason.

    A forked process imports the libraries: every command is a fork of this process, and each page of memory and each
    library that acts at a fork would delay it.

    Raises :class:`RuntimeError` if that process fails. Its standard error has the reason.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_and_exit(partial(_write_restrictions, libraries, filters, writer))
    os.close(writer)
    with open(reader, "rb") as file:
        body = file.read()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise RuntimeError(f"the restrictions of commands cannot be prepared: wait status {status}")
    fields = json.loads(body)
    programs = {name: bytes.fromhex(program) for name, program in fields["filters"].items()}
    rights = Rights(*fields["rights"]) if fields["rights"] else None
    return Restrictions(programs, rights, fields["calls"], fields["refusal"])


def _write_restrictions(libraries: str, names: tuple[str, ...], writer: int) -> bool:
    sys.path += [folder for folder in libraries.split(":") if folder not in sys.path]
    from flink_skills.execution.launcher import kernel_policy

    # First, because filters deny the calls that query the kernel's rights.
    rights = kernel_policy.kernel_rights()
    programs = {name: kernel_policy.filter_program(name) for name in names}
    calls: dict[str, int] = {}
    refusal = ""
    mediated = [name for name in names if is_mediated(name)]
    if mediated:
        try:
            linux.forbid_new_privileges()
            descriptor, _ = linux.load_filter_and_listen(programs[mediated[0]])
            os.close(descriptor)
            calls = kernel_policy.signal_call_numbers()
        except OSError as error:
            refusal = error.strerror or str(error)
            programs = {name: program for name, program in programs.items() if name not in mediated}
    filters = {name: program.hex() for name, program in programs.items()}
    found = {"filters": filters, "rights": rights, "calls": calls, "refusal": refusal}
    with open(writer, "wb") as file:
        file.write(json.dumps(found).encode("ascii"))
    return True
