"""Linux calls that the standard library lacks: confinement of processes, namespaces, and system call filters."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import struct
import termios
from typing import NamedTuple

MAX_WAIT = 3600.0
"""Seconds of one wait: poll accepts no deadline that is years away, as that of a process without a limit."""

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

# All architectures share the numbers of calls that are as young as these.
_CLOSE_RANGE = 436
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_RULESET = struct.Struct("=QQQ")  # rights on files and on ports, scopes
_PATH_RULE = struct.Struct("=Qi")  # rights, descriptor
_CLONE3 = 435
_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "loongarch64": 220, "ppc64le": 120}
_CLONE_PARENT = 0x8000
_CLONE_ARGUMENTS = struct.Struct("=8Q")  # flags come first, the signal at the end follows from the flag
_MAX_DESCRIPTORS = 0xFFFF_FFFF

_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8
_SECCOMP = {"x86_64": 317, "aarch64": 277, "riscv64": 277, "loongarch64": 277, "ppc64le": 358}
_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_CALL = struct.Struct("=QIIiIQ6Q")  # id, thread, flags, number of the call, architecture, address, arguments
_ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
_ID = struct.Struct("=Q")
_CONTINUE = 1
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_long = ctypes.c_long
_ZERO = ctypes.c_ulong(0)


def system_call(what: str, number: int, *arguments: object) -> int:
    """Make the system call ``number``, and return its result. Raises :class:`OSError`, whose text begins with ``what``.

    Arguments are pointers, buffers or numbers; the latter fill a register.
    """
    words = (_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    return _checked(what, _libc.syscall(_long(number), *words))


def _checked(what: str, result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def _prctl(what: str, option: int, argument: int, pointer: object = _ZERO) -> None:
    _checked(what, _libc.prctl(option, ctypes.c_ulong(argument), pointer, _ZERO, _ZERO))


def become_subreaper() -> None:
    """Adopt every orphan among the descendants of this process."""
    _prctl("PR_SET_CHILD_SUBREAPER", _PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends."""
    _prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent can have ended between the fork and the call above.
    if os.getppid() != parent:
        os._exit(1)


def die_first_when_memory_is_short() -> None:
    """Offer this process to the kernel's memory killer before the worker and the TaskManager."""
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"1000")
        finally:
            os.close(descriptor)
    except OSError:
        # /proc is read-only. The command runs without this preference.
        return


def fork_sibling() -> int:
    """Fork as ``os.fork`` does, but have the new process be a child of this process's parent.

    For a process with one thread, which ends or is replaced by a program right after.
    """
    number = _CLONE.get(os.uname().machine)
    if number is not None:
        return system_call("clone", number, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    arguments = _CLONE_ARGUMENTS.pack(_CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0)
    return system_call("clone", _CLONE3, arguments, len(arguments))


def join_namespace(descriptor: int, name: str) -> None:
    """Move this process to the open namespace ``descriptor``, whose type is ``name`` in errors."""
    _checked(f"setns({name})", _libc.setns(descriptor, 0))


def forbid_new_privileges() -> None:
    """Deny rights of set-user-id bits and file capabilities to all programs that this process starts from now on."""
    _prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def load_filter(program: bytes) -> None:
    """Filter the system calls of this process by ``program``, made by libseccomp. Needs :func:`forbid_new_privileges`.

    libseccomp can only load a filter that it has just built, which takes longer than the whole confinement.
    """
    found = _Program(len(program) // _INSTRUCTION_BYTES, program)
    _prctl("PR_SET_SECCOMP", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(found))


def load_filter_and_listen(program: bytes) -> tuple[int, bool]:
    """Filter the system calls of this process by ``program``, and return a descriptor that listens to it.

    Also return whether only the end of its process interrupts a call once it is received (Linux 5.19). Raises
    :class:`OSError` if the kernel, or a filter that this process has already, refuses.
    """
    found = _Program(len(program) // _INSTRUCTION_BYTES, program)
    number = _SECCOMP.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "the number of seccomp() is unknown on this architecture")
    arguments = ctypes.byref(found)
    try:
        return system_call("seccomp", number, _SET_MODE_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, arguments), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return system_call("seccomp", number, _SET_MODE_FILTER, _NEW_LISTENER, arguments), False


class Call(NamedTuple):
    """A system call that waits: its ``id``, the calling thread, the number of the call and its arguments."""

    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


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
        if not self._ioctl(_RECEIVE, buffer):
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
        return self._ioctl(_SEND, bytearray(_ANSWER.pack(call.id, 0, -error, 0)))

    def let_through(self, call: Call) -> bool:
        """Have the kernel execute ``call``. Return False if it waits no longer."""
        return self._ioctl(_SEND, bytearray(_ANSWER.pack(call.id, 0, 0, _CONTINUE)))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _ioctl(self, request: int, buffer: bytearray) -> bool:
        """Return False if the call does not wait any more."""
        try:
            fcntl.ioctl(self._descriptor, request, buffer)
        except (FileNotFoundError, InterruptedError):
            return False
        return True


def create_ruleset(files: int, scopes: int) -> int:
    """Return a descriptor of a new Landlock ruleset that denies the rights ``files`` and ``scopes``."""
    attributes = _RULESET.pack(files, 0, scopes)
    return system_call("Landlock", _LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)


def add_rule(ruleset: int, descriptor: int, rights: int) -> None:
    """Grant ``rights`` on what ``descriptor`` is open for, and below if that is a folder."""
    rule = _PATH_RULE.pack(rights, descriptor)
    system_call("Landlock", _LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)


def restrict_self(ruleset: int) -> None:
    """Apply ``ruleset`` to this process for good. Needs :func:`forbid_new_privileges`."""
    system_call("Landlock", _LANDLOCK_RESTRICT_SELF, ruleset, 0)


def close_from(first: int) -> None:
    """Close all descriptors from the number ``first`` on."""
    if _libc.syscall(_long(_CLOSE_RANGE), _long(first), _long(_MAX_DESCRIPTORS), _long(0)) == 0:
        return
    for name in os.listdir("/proc/self/fd"):  # Linux before 5.9
        if int(name) >= first:
            try:
                os.close(int(name))
            except OSError:
                continue  # the one that listed the folder


def drop_capabilities() -> None:
    """Take the capabilities of root away from all programs that this process or its children start, if it is root.

    With an empty bounding set ``execve`` gives none even to uid 0. This process keeps what it has. Other users have
    none to lose.
    """
    if os.geteuid() != 0:
        return
    for capability in range(64):
        try:
            _prctl("PR_CAPBSET_DROP", _PR_CAPBSET_DROP, capability)
        except OSError:
            # EINVAL: past the last one this kernel knows. EPERM: a root without CAP_SETPCAP, as in a
            # hardened container, whose bounding set is what that container grants.
            return


def reset_signals() -> None:
    """Undo what parents do to signals.

    The JVM blocks SIGQUIT in the programs that it starts. Other parents may block and ignore more.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGINT}:
        signal.signal(number, signal.SIG_DFL)


def switch_user(user: tuple[int, int]) -> None:
    """Become ``(uid, gid)`` for good, with no other group."""
    uid, gid = user
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise PermissionError(f"the user is still {os.getresuid()}")


def set_limit(which: int, wanted: int, *, spare: int = 0) -> None:
    """Set the limit ``which`` of this process, at most to its hard limit. A new hard limit is higher by ``spare``."""
    _, hard = resource.getrlimit(which)
    value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (value, value if value == hard else value + spare))


def take_terminal(descriptor: int) -> None:
    """Make the terminal ``descriptor`` the one that controls the session of this process, which has to lead it."""
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
