"""A few Linux calls, most of which the standard library lacks, and the process tree of ``/proc``."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
import termios

__all__ = [
    "MAX_WAIT",
    "add_rule",
    "become_subreaper",
    "child_ids",
    "close_from",
    "create_ruleset",
    "die_first_when_memory_is_short",
    "die_with_parent",
    "drop_capabilities",
    "forbid_new_privileges",
    "fork_sibling",
    "join_namespace",
    "load_filter",
    "reset_signals",
    "restrict_self",
    "switch_user",
    "take_terminal",
    "watch_children",
]

MAX_WAIT = 3600.0
"""Seconds of one wait: poll takes no deadline that is years away, which processes without a limit have."""

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8

# All architectures share the numbers of calls that are as young as these.
_CLOSE_RANGE = 436
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_CLONE3 = 435
_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "loongarch64": 220, "ppc64le": 120}
_CLONE_PARENT = 0x8000
_CLONE_ARGUMENTS = struct.Struct("=8Q")  # flags come first, the signal at the end follows from the flag
_PATH_BENEATH = 1
_RULESET = struct.Struct("=QQQ")  # rights on files and on ports, scopes
_PATH_RULE = struct.Struct("=Qi")  # rights, descriptor
_MAX_DESCRIPTORS = 0xFFFF_FFFF

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_setns = _libc.setns
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_long = ctypes.c_long


def _call(option: int, argument: int, what: str) -> None:
    zero = ctypes.c_ulong(0)
    if _prctl(option, ctypes.c_ulong(argument), zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def become_subreaper() -> None:
    """Adopt every orphan among the descendants of this process."""
    _call(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends."""
    _call(_PR_SET_PDEATHSIG, signal.SIGKILL, "PR_SET_PDEATHSIG")
    # The parent may have ended between the fork and the call above.
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
    zero = _long(0)
    if number is not None:
        pid = _syscall(_long(number), _long(_CLONE_PARENT | signal.SIGCHLD), zero, zero, zero, zero)
    else:
        arguments = _CLONE_ARGUMENTS.pack(_CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0)
        pid = _syscall(_long(_CLONE3), arguments, _long(len(arguments)))
    if pid < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"clone: {os.strerror(error)}")
    return int(pid)


def join_namespace(descriptor: int, name: str) -> None:
    """Move this process into the namespace that ``descriptor`` is open for. Errors say ``name``."""
    if _setns(descriptor, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"setns({name}): {os.strerror(error)}")


def forbid_new_privileges() -> None:
    """No program started from here on gains rights by set-user-id bits or file capabilities."""
    _call(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def load_filter(program: bytes) -> None:
    """Filter the system calls of this process by ``program``, made by libseccomp. Needs :func:`forbid_new_privileges`.

    libseccomp loads only what it makes anew each time, which takes longer than all the rest of confining a process.
    """
    found = _Program(len(program) // _INSTRUCTION_BYTES, program)
    zero = ctypes.c_ulong(0)
    if _prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(found), zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"PR_SET_SECCOMP: {os.strerror(number)}")


def create_ruleset(files: int, scopes: int) -> int:
    """Return a descriptor of a new Landlock ruleset that denies the rights ``files`` and ``scopes``."""
    attributes = _RULESET.pack(files, 0, scopes)
    return _landlock(_LANDLOCK_CREATE_RULESET, attributes, _long(len(attributes)), _long(0))


def add_rule(ruleset: int, descriptor: int, rights: int) -> None:
    """Grant ``rights`` on what ``descriptor`` is open for, and below if that is a folder."""
    rule = _PATH_RULE.pack(rights, descriptor)
    _landlock(_LANDLOCK_ADD_RULE, _long(ruleset), _long(_PATH_BENEATH), rule, _long(0))


def restrict_self(ruleset: int) -> None:
    """Apply ``ruleset`` to this process for good. Needs :func:`forbid_new_privileges`."""
    _landlock(_LANDLOCK_RESTRICT_SELF, _long(ruleset), _long(0))


def _landlock(number: int, *arguments: object) -> int:
    result = int(_syscall(_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result


def close_from(first: int) -> None:
    """Close all descriptors from the number ``first`` on."""
    if _syscall(_long(_CLOSE_RANGE), _long(first), _long(_MAX_DESCRIPTORS), _long(0)) == 0:
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
            _call(_PR_CAPBSET_DROP, capability, "PR_CAPBSET_DROP")
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


def take_terminal(descriptor: int) -> None:
    """Make the terminal ``descriptor`` the one that controls the session of this process, which has to lead it."""
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def watch_children() -> int:
    """Return a descriptor that becomes readable when a child ends (never blocks when read)."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def stat_fields(pid: int | str) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the third one on. Return an empty list if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The second field is the program's name in parentheses and may hold anything.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def child_ids(pid: int) -> list[int]:
    """The children of process ``pid``. May miss some that come or go meanwhile: ask again."""
    found: list[int] = []
    known = False
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
            known = True
        except OSError:
            continue
    return found if known else _scan_for_children(pid)


def _scan_for_children(pid: int) -> list[int]:
    """The same from every ``/proc/*/stat``, for kernels without the ``children`` file."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = stat_fields(name)
        if len(fields) > 1 and int(fields[1]) == pid:
            found.append(int(name))
    return found
