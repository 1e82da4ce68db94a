"""Messages between a worker and a supervisor on the control socket of the supervisor.

Worker to supervisor: a :data:`HEADER` of kind :data:`ORDER` with the size of an :class:`Order` as JSON, which follows,
and with the descriptors for standard input, output and error. Supervisor to worker: :data:`STARTING`, then, when all
processes of the command have ended, four bytes of length and a :class:`Report` as JSON. The supervisor then waits for
the next order. Without ``STARTING`` nothing has been run. A header of kind :data:`GRACE` with milliseconds means: send
SIGTERM, and end the command when that time is over. End of file from the worker means: end the command now, and then
the supervisor.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

HEADER = struct.Struct("!cI")
ORDER, GRACE = b"o", b"g"
STARTING = b"\n"
_LENGTH = struct.Struct("!I")

SIGNALS = "signals"
"""Part of a mediated filter: the supervisor answers the calls that signal processes."""

TRUNCATION = "truncation"
"""Part of a filter: calls that truncate files without the right to write are denied."""

PARTS = "+"
"""Separator of the mode and the parts in the name of a filter, such as ``offline+signals``."""


def is_mediated(name: str) -> bool:
    """Return True if the supervisor answers calls for the filter ``name``."""
    return SIGNALS in name.split(PARTS)


class Rights(NamedTuple):
    """Landlock rights that this kernel supports, as numbers.

    Attributes:
        every: All rights on files.
        read, write: Rights on a folder that a command reads or writes.
        growth: Rights that make a workspace larger.
        of_files: Rights that a rule on a file can have.
        device, terminal: Rights on a device and on the command's terminal.
        write_file: Right to write to an existing file.
        domain: Rights that are handled and granted everywhere. They make a process one that Landlock restricts.
        scopes: Confinement of signals and abstract sockets. 0 where the kernel cannot confine these.
    """

    every: int
    read: int
    write: int
    growth: int
    of_files: int
    device: int
    terminal: int
    write_file: int
    domain: int
    scopes: int


class Restrictions(NamedTuple):
    """Prepared restrictions of commands.

    Attributes:
        filters: System call filters by name, as programs for the kernel.
        rights: Rights of Landlock. None without Landlock.
        calls: Numbers of the calls that signal processes by name. Empty without mediated filters.
        refusal: Why mediated filters cannot be used. Empty if they can, or if none was requested.
    """

    filters: Mapping[str, bytes]
    rights: Rights | None
    calls: Mapping[str, int] = {}
    refusal: str = ""


class Confinement(NamedTuple):
    """Confinement of a process before it becomes the command.

    Attributes:
        user: uid and gid to switch to. None means those of the supervisor.
        read: Paths that can be read and executed if files are confined. Missing ones are ignored.
        write: Directories that can also be written.
        files: Whether files are confined to ``read`` and ``write`` (Landlock).
        scope: Whether the memory of processes outside the command is closed (Landlock), with signals and abstract
            sockets from Linux 6.12 on.
        filter: Name of the system call filter. Empty means that all are allowed. See
            :mod:`~flink_skills.execution.launcher.kernel_policy`.
        namespaces: Arguments of bubblewrap that create the namespaces of the command, one operation each: see
            :func:`~flink_skills.execution.launcher.namespaces.open_namespaces`. Empty for the supervisor's own.
    """

    user: tuple[int, int] | None = None
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    files: bool = False
    scope: bool = False
    filter: str = ""
    namespaces: tuple[tuple[str, ...], ...] = ()


class Order(NamedTuple):
    """A command to run. Times are seconds, sizes bytes; 0 means no limit.

    ``rlimits`` maps names such as ``RLIMIT_CORE`` to values. ``counted`` are the directories whose contents count
    against ``workspace_bytes`` and ``workspace_files``; ``full`` is the one of these limits that they already exceed.
    If ``tty`` is true, standard input and output are a terminal, which becomes the one that controls the command.
    """

    argv: list[str]
    cwd: str
    env: dict[str, str]
    wall_time: float
    grace: float
    rlimits: dict[str, int]
    cpu_time: float = 0.0
    memory: int = 0
    processes: int = 0
    file_size: int = 0
    workspace_bytes: int = 0
    workspace_files: int = 0
    counted: tuple[str, ...] = ()
    full: str = ""
    tty: bool = False
    confinement: Confinement = Confinement()

    def encode(self) -> bytes:
        # ASCII JSON can contain the lone surrogates with which Python represents bytes that are not valid UTF-8.
        body = json.dumps({**self._asdict(), "confinement": self.confinement._asdict()}).encode("ascii")
        return HEADER.pack(ORDER, len(body)) + body

    @classmethod
    def decode(cls, body: bytes) -> Order:
        fields: dict[str, Any] = json.loads(body)
        return cls(**{**fields, "confinement": Confinement(**fields["confinement"])})


class Report(NamedTuple):
    """End of a command. If it could not be started, ``error`` is set and the other fields are empty.

    ``full`` is the limit of the workspace that is exceeded now.
    """

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    limit: str | None = None
    error: str | None = None
    cpu_time: float = 0.0
    memory: int = 0
    full: str = ""

    def encode(self) -> bytes:
        body = json.dumps(self._asdict()).encode("ascii")
        return _LENGTH.pack(len(body)) + body


def read_report(received: bytes | bytearray) -> Report | None:
    """Return the report in all that a supervisor has sent for one order. Return None if it is not complete."""
    begin = len(STARTING) if received.startswith(STARTING) else 0
    body = begin + _LENGTH.size
    if len(received) < body:
        return None
    (size,) = _LENGTH.unpack_from(received, begin)
    return Report(**json.loads(received[body:])) if len(received) == body + size else None


class Orders:
    """Orders that arrive on the socket ``control``, with at most ``max_descriptors`` descriptors each."""

    def __init__(self, control: socket.socket, max_descriptors: int = 3) -> None:
        self._control = control
        self._max_descriptors = max_descriptors

    def fileno(self) -> int:
        return self._control.fileno()

    def next(self) -> tuple[Order, list[int]] | None:
        """Wait for the next order and return it with its descriptors.

        Return None if none will arrive, or if this process has no room for its descriptors.
        """
        try:
            kind, number, received = self._header()
            while kind != ORDER:  # a grace for a command that had ended before the worker knew of it
                kind, number, received = self._header()
        except (EOFError, OSError):
            return None
        try:
            body = self._receive(number)
        except (EOFError, OSError):
            body = b""
        if body and len(received) >= 3:
            return Order.decode(body), received
        for descriptor in received:
            os.close(descriptor)
        return None

    def grace(self) -> float | None:
        """Return the seconds that the worker grants the running command to end.

        Return None if the command has to end immediately.
        """
        try:
            kind, number, received = self._header()
        except (EOFError, OSError):
            return None
        for descriptor in received:
            os.close(descriptor)
        return number / 1000 if kind == GRACE else None

    def _header(self) -> tuple[bytes, int, list[int]]:
        data, received, _, _ = socket.recv_fds(self._control, HEADER.size, self._max_descriptors)
        if not data:
            raise EOFError
        data += self._receive(HEADER.size - len(data))
        kind, number = HEADER.unpack(data)
        return kind, number, received

    def _receive(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises :class:`EOFError` if the input ends before."""
        data = bytearray()
        while len(data) < size:
            chunk = self._control.recv(min(1 << 20, size - len(data)))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)
