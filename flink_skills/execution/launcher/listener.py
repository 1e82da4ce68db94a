"""Listens to a filter of system calls: receives calls that wait for an answer, and answers them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from typing import NamedTuple

__all__ = ["Call", "Listener", "load_filter_and_listen"]

_SECCOMP = {"x86_64": 317, "aarch64": 277, "riscv64": 277, "loongarch64": 277, "ppc64le": 358}
_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_INSTRUCTION_BYTES = 8

_CALL = struct.Struct("=QIIiIQ6Q")  # id, thread, flags, number of the call, architecture, address, arguments
_ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
_ID = struct.Struct("=Q")
_CONTINUE = 1
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class Call(NamedTuple):
    """A system call that waits: its ``id``, the calling thread, the number of the call and its arguments."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


def load_filter_and_listen(program: bytes) -> tuple[int, bool]:
    """Filter the system calls of this process by ``program``, and return a descriptor that listens to it.

    Also return whether only the end of its process interrupts a call once it is received (Linux 5.19). Raises
    :class:`OSError` if the kernel, or a filter that this process has already, refuses.
    """
    filter_ = _Program(len(program) // _INSTRUCTION_BYTES, program)
    number = _SECCOMP.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "the number of seccomp() is unknown on this architecture")
    for killable in (_WAIT_KILLABLE, 0):
        arguments = (ctypes.c_long(_SET_MODE_FILTER), ctypes.c_long(_NEW_LISTENER | killable), ctypes.byref(filter_))
        descriptor = int(_libc.syscall(ctypes.c_long(number), *arguments))
        if descriptor >= 0:
            return descriptor, bool(killable)
        error = ctypes.get_errno()
        if error != errno.EINVAL:
            break
    raise OSError(error, f"seccomp: {os.strerror(error)}")


class Listener:
    """The descriptor ``descriptor`` that listens to a filter.

    ``killable`` says that only the end of its process interrupts a call once it is received.
    """

    def __init__(self, descriptor: int, *, killable: bool) -> None:
        self._descriptor = descriptor
        self.killable = killable

    def fileno(self) -> int:
        return self._descriptor

    def receive(self) -> Call | None:
        """Return a call. Return None if it was interrupted. Only for a descriptor that is ready to read."""
        buffer = bytearray(_CALL.size)
        try:
            fcntl.ioctl(self._descriptor, _RECEIVE, buffer)
        except (FileNotFoundError, InterruptedError):
            return None
        found, thread, _, number, _, _, *arguments = _CALL.unpack(buffer)
        return Call(found, thread, number, tuple(arguments))

    def waits(self, call: Call) -> bool:
        """Return True if ``call`` still waits, so the number of its thread belongs to no other thread."""
        try:
            fcntl.ioctl(self._descriptor, _IS_VALID, _ID.pack(call.id))
        except OSError:
            return False
        return True

    def answer(self, call: Call, error: int = 0) -> bool:
        """Have ``call`` return 0 or fail with ``error``. Return False if it waits no longer."""
        return self._send(_ANSWER.pack(call.id, 0, -error, 0))

    def let_through(self, call: Call) -> bool:
        """Have the kernel execute ``call``. Return False if it waits no longer."""
        return self._send(_ANSWER.pack(call.id, 0, 0, _CONTINUE))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _send(self, answer: bytes) -> bool:
        try:
            fcntl.ioctl(self._descriptor, _SEND, bytearray(answer))
        except (FileNotFoundError, InterruptedError):
            return False
        return True
