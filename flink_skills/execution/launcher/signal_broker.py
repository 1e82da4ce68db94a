"""Answers to the calls by which a command signals processes, if Landlock cannot restrict these (before Linux 6.12).

A command may signal only its own processes: the descendants of this process. The kernel executes a call itself if its
target is the caller, whose number cannot be reused while it waits. This process executes all other calls: it opens the
target, proves that the target is a descendant, and signals what it opened. So a reused number is never signaled.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from flink_skills.execution.launcher.linux import Call, Listener, system_call
from flink_skills.execution.launcher.process_tree import descendants, stat_fields

_LOWEST = -(1 << 31)
_SIGINFO_BYTES = 128
_CODE_AT, _SI_TKILL = 8, -6
_NUMBER = struct.Struct("=i")
# A process that is about to be killed may fork meanwhile, and its child is of the group as well.
_PASSES = 8
_MAX_LOOKS = 5


class _Delivery(NamedTuple):
    """A signal for ``processes``, or for ``thread`` of the calling process. ``group`` is theirs; 0 for none."""

    number: int
    processes: tuple[int, ...] = ()
    group: int = 0
    thread: tuple[int, int] | None = None
    about: bytes | None = None


class SignalBroker:
    """Answers the calls that ``listener`` receives. ``calls`` are the numbers of calls by name."""

    def __init__(self, listener: Listener, calls: Mapping[str, int]) -> None:
        self._listener = listener
        self._calls = calls
        self._names = {number: name for name, number in calls.items()}
        self._own = os.getpid()

    def fileno(self) -> int:
        return self._listener.fileno()

    def answer(self) -> None:
        """Answer one call. Only for a descriptor that is ready to read."""
        call = self._listener.receive()
        if call is None:
            return
        try:
            delivery = self._decide(call)
            if delivery is None:
                self._listener.let_through(call)
            elif self._listener.killable:
                # The caller wakes up with what it has sent to itself, as if it had executed the call.
                self._send(delivery)
                self._listener.answer(call)
            else:
                # A signal interrupts the call, which is then repeated. It must not be sent twice.
                self._send(delivery._replace(number=0, about=None))
                if self._listener.answer(call) and delivery.number:
                    with suppress(OSError):  # its targets have ended since
                        self._send(delivery)
        except OSError as error:
            self._listener.answer(call, error.errno or errno.EPERM)
        except (ValueError, IndexError, OverflowError):
            self._listener.answer(call, errno.EPERM)

    def _decide(self, call: Call) -> _Delivery | None:
        """Return what to send. Return None for a call that the kernel may execute. Raises :class:`OSError`."""
        caller = _process_of_thread(call.thread)
        if not caller or not self._listener.waits(call):
            raise ProcessLookupError(errno.ESRCH, "the caller has exited")
        first, second, third = (_int(word) for word in call.arguments[:3])
        name = self._names[call.number]
        if name == "kill":
            return self._kill(caller, first, second)
        if name == "tkill":
            return self._thread_of_any(caller, call.thread, first, second)
        if name == "tgkill":
            return self._thread(caller, first, second, third)
        if name == "rt_sigqueueinfo":
            if first == caller:
                return None
            return _Delivery(second, (_positive(first),), about=self._about(call, call.arguments[2], second))
        if name == "rt_tgsigqueueinfo":
            found = self._thread(caller, first, second, third)
            return found and found._replace(about=self._about(call, call.arguments[3], third))
        return self._by_descriptor(call, first, second)

    def _kill(self, caller: int, pid: int, number: int) -> _Delivery | None:
        if pid in (0, caller):
            return None  # its group has processes of the command only: their session began with the command
        if pid > 0:
            return _Delivery(number, (pid,))
        if pid == -1:
            # As the kernel does, this succeeds if there are only processes that the caller may not signal.
            return _Delivery(number, tuple(other for other in descendants(self._own) if other != caller))
        if pid == _LOWEST:
            raise ProcessLookupError(errno.ESRCH, "the group does not exist")
        members = tuple(self._members(-pid))
        if not members:
            os.killpg(-pid, 0)  # raises if there is no such group
            raise PermissionError(errno.EPERM, "the group is not one of the command")
        return _Delivery(number, members, group=-pid)

    def _thread_of_any(self, caller: int, calling: int, thread: int, number: int) -> _Delivery | None:
        if thread == calling:
            return None
        process = _process_of_thread(_positive(thread))
        if process != caller:
            return self._thread(caller, process or thread, thread, number)
        # Only a process that ended since, and whose number and this one belong to one other process, would be mistaken.
        return _Delivery(number, thread=(caller, thread))

    def _thread(self, caller: int, process: int, thread: int, number: int) -> _Delivery | None:
        if _positive(process) == caller:
            return None
        if _positive(thread) != process:
            found = os.path.exists(f"/proc/{process}/task/{thread}")
            raise OSError(
                errno.EPERM if found else errno.ESRCH, "the thread is not the first one of a process of the command"
            )
        return _Delivery(number, (process,))

    def _by_descriptor(self, call: Call, descriptor: int, number: int) -> _Delivery:
        if call.arguments[3] & 0xFFFF_FFFF:
            raise OSError(errno.EINVAL, "the call has unsupported flags")
        try:
            with open(f"/proc/{call.thread}/fdinfo/{descriptor}", "rb", buffering=0) as file:
                fields = dict(line.split(b":", 1) for line in file.read(4096).splitlines() if b":" in line)
        except FileNotFoundError:
            raise OSError(errno.EBADF, "the descriptor does not exist") from None
        except PermissionError:
            # The program can be executed but not read. Programs then use kill().
            raise OSError(errno.ENOSYS, "the descriptors of the caller are hidden") from None
        if b"Pid" not in fields:
            raise OSError(errno.EBADF, "the descriptor is not one of a process")
        process = int(fields[b"Pid"])
        if process <= 0:
            raise ProcessLookupError(errno.ESRCH, "the process has exited")
        about = self._about(call, call.arguments[2], number) if call.arguments[2] else None
        return _Delivery(number, (process,), about=about)

    def _about(self, call: Call, address: int, number: int) -> bytes:
        """Return the caller's information about a signal. It must not look like the kernel's own."""
        try:
            with open(f"/proc/{call.thread}/mem", "rb", buffering=0) as file:
                found = os.pread(file.fileno(), _SIGINFO_BYTES, address)
        except OSError as error:
            raise PermissionError(errno.EPERM, "the memory of the caller is not readable") from error
        if len(found) < _SIGINFO_BYTES or not self._listener.waits(call):
            raise OSError(errno.EFAULT, "the memory of the caller is not readable")
        (code,) = _NUMBER.unpack_from(found, _CODE_AT)
        if code >= 0 or code == _SI_TKILL:
            raise PermissionError(errno.EPERM, "only the kernel may use this code")
        return _NUMBER.pack(number) + found[_NUMBER.size :]

    def _members(self, group: int) -> list[int]:
        return [pid for pid in descendants(self._own) if _group_of(pid) == group]

    def _send(self, delivery: _Delivery) -> None:
        """Send a signal. Raises :class:`OSError` if no target could be signaled."""
        if delivery.thread is not None:
            system_call("tgkill", self._calls["tgkill"], *delivery.thread, delivery.number)
            return
        descent = _Descent(self._own)
        sent, failure = False, None
        done: set[int] = set()
        waiting: Iterable[int] = delivery.processes
        for _ in range(_PASSES):
            for pid in waiting:
                done.add(pid)
                try:
                    self._send_to(pid, delivery, descent)
                    sent = True
                except OSError as error:
                    failure = error
            if not delivery.group or delivery.number != signal.SIGKILL:
                break
            waiting = set(self._members(delivery.group)) - done
            if not waiting:
                break
        if not sent and failure is not None:
            raise failure

    def _send_to(self, pid: int, delivery: _Delivery, descent: _Descent) -> None:
        process, descriptor = _open_process(pid)
        try:
            if not descent.includes(process):
                raise PermissionError(errno.EPERM, "the process is not one of the command")
            if delivery.group and _group_of(process) != delivery.group:
                raise ProcessLookupError(errno.ESRCH, "the process left the group")
            if delivery.about is None:
                signal.pidfd_send_signal(descriptor, delivery.number)
            else:
                call = self._calls["pidfd_send_signal"]
                system_call("pidfd_send_signal", call, descriptor, delivery.number, delivery.about, 0)
        finally:
            os.close(descriptor)


def _open_process(pid: int) -> tuple[int, int]:
    """Return the number of the process that ``pid`` or a thread ``pid`` is of, and a descriptor of it."""
    try:
        return pid, os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise
    # The number of a thread: kill() then signals its process.
    process = _process_of_thread(pid)
    if not process:
        raise ProcessLookupError(errno.ESRCH, "the process does not exist")
    return process, os.pidfd_open(process)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _int(register: int) -> int:
    """Return the ``int`` in a register."""
    value = register & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def _positive(number: int) -> int:
    if number <= 0:
        raise OSError(errno.EINVAL, "the number is not one of a process")
    return number


class _Descent:
    """Descent from the living process ``ancestor``, as needed for one call of a command.

    It remembers what it has proved, so the proof for each of many processes takes the same time at any depth.
    """

    def __init__(self, ancestor: int) -> None:
        self._ancestor = ancestor
        self._proved: dict[int, int] = {}

    def includes(self, pid: int) -> bool:
        """Return True if process ``pid`` descends from the ancestor. The caller holds a descriptor of the process."""
        for _ in range(_MAX_LOOKS if pid != self._ancestor else 0):
            found = self._look(pid)
            if found is not None:
                return found
        return False

    def _look(self, pid: int) -> bool | None:
        """Return None if a parent ended meanwhile: then the process has another one."""
        line: dict[int, int] = {}
        youngest = None
        while pid != self._ancestor:
            if pid <= 1:
                return False
            found = _parent_and_start(pid)
            # A parent is older than its child. A younger process has the number of a parent that ended.
            if found is None or (youngest is not None and found[1] > youngest):
                return None
            parent, youngest = found
            if self._proved.get(pid) == youngest:
                break
            line[pid] = youngest
            pid = parent
        self._proved.update(line)
        return True


def _process_of_thread(thread: int) -> int:
    """Return the process id of a thread. Return 0 if there is no such thread."""
    try:
        with open(f"/proc/{thread}/status", "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return 0
    return int(text.partition(b"\nTgid:")[2].split(None, 1)[0])


def _parent_and_start(pid: int) -> tuple[int, int] | None:
    """Return the parent of a process and its start in clock ticks. Return None if there is no such process."""
    fields = stat_fields(pid)
    # Fields 4 (parent) and 22 (start), less 3.
    return (int(fields[1]), int(fields[19])) if fields else None
