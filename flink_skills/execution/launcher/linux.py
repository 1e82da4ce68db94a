"""A few Linux calls, most of which the standard library lacks, and the process tree of ``/proc``."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import termios

__all__ = [
    "become_subreaper",
    "child_ids",
    "die_with_parent",
    "drop_capabilities",
    "forbid_new_privileges",
    "load_filter",
    "switch_user",
    "take_terminal",
    "watch_children",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8

_prctl = ctypes.CDLL(None, use_errno=True).prctl


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
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The second field is the program's name in parentheses and may hold anything.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 1 and int(fields[1]) == pid:
            found.append(int(name))
    return found
