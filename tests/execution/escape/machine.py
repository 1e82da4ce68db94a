"""What this machine is able to do at all, found out without any backend.

Where something is missing an attempt cannot succeed even without isolation, and the control does not expect it.
Nothing here makes an isolating backend's duty smaller.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.execution.escape.probes.kernel import call_i386, call_x32
from tests.execution.escape.probes.kit import filter_and_listen, syscall

__all__ = [
    "COMMAND_USER",
    "Identity",
    "can_listen",
    "is_in_memory",
    "landlock_abi",
    "missing",
    "own_address",
    "python_for",
    "runs_for",
    "seccomp_filtered",
]

COMMAND_USER = 65534
"""The user that attacks and is attacked when the suite is run by root."""


@dataclass(frozen=True)
class Identity:
    """Who the worker is and who its commands are; None for the user that runs the suite."""

    name: str
    worker_uid: int
    command_uid: int

    @property
    def switches(self) -> bool:
        return self.worker_uid != self.command_uid


@functools.cache
def landlock_abi() -> int:
    """The version of Landlock of this kernel; 0 where there is none or where it is not allowed."""
    try:
        return syscall("landlock_create_ruleset", 0, 0, 1)
    except (OSError, KeyError):
        return 0


@functools.cache
def can_listen() -> bool:
    """Return True if the kernel and the container let a process receive the system calls of another one."""
    child = os.fork()
    if child == 0:
        try:
            os.close(filter_and_listen(-1))
        except (OSError, KeyError):
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def is_in_memory(path: Path) -> bool:
    """Return True if the file system of ``path`` is a volume in memory."""
    found = path.stat().st_dev
    device = f"{os.major(found)}:{os.minor(found)}"
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    # https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html: the type follows the dash.
    return any(of[2] == device and of[of.index("-") + 1] == "tmpfs" for of in mounts)


def _status(field: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return line.partition(":")[2].strip()
    return ""


def seccomp_filtered() -> bool:
    """Whether a filter of system calls holds for the suite itself, as in a container."""
    return _status("Seccomp") == "2"


@functools.cache
def own_address() -> str:
    """An address of this machine that is not loopback's; empty when there is none. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: only the route is looked up
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address


@functools.cache
def runs_for(uid: int, *argv: str) -> bool:
    """Whether ``uid`` can run a program with success, without any backend."""
    other = uid != os.geteuid()
    try:
        done = subprocess.run(
            argv,
            user=uid if other else None,
            group=uid if other else None,
            extra_groups=[] if other else None,
            cwd="/",
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


@functools.cache
def python_for(uid: int) -> str:
    """An interpreter that ``uid`` can run: this one, or the system's; empty when there is none."""
    names = (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}", "/usr/bin/python3")
    return next((name for name in names if runs_for(uid, name, "-I", "-S", "-c", "import json, ctypes")), "")


def missing(fact: str, uid: int) -> str:
    """Why nothing that needs ``fact`` can succeed here for a command of ``uid``; empty when it can."""
    if fact.startswith("/"):
        return "" if Path(fact).exists() else f"{fact} does not exist here"
    return _FACTS[fact](uid)


def _socket(*arguments: int) -> Callable[[int], str]:
    def look(uid: int) -> str:
        try:
            socket.socket(*arguments).close()
        except OSError as error:
            return f"this kernel has no such socket: {error}"
        return ""

    return look


def _call(name: str, *arguments: object) -> Callable[[int], str]:
    """Whether a call gets as far as to complain about its arguments."""

    def look(uid: int) -> str:
        try:
            syscall(name, *arguments)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS, errno.EACCES):
                return f"{name} is closed for the suite itself: {error}"
        return ""

    return look


def _setting(path: str, at_most: int) -> str:
    try:
        value = int(Path("/proc/sys", path).read_text())
    except (OSError, ValueError):
        return ""
    return "" if value <= at_most else f"{path} is {value} here"


def _both(*checks: Callable[[int], str]) -> Callable[[int], str]:
    return lambda uid: next(filter(None, (check(uid) for check in checks)), "")


def _unless_root(path: str, at_most: int) -> Callable[[int], str]:
    return lambda uid: "" if uid == 0 else _setting(path, at_most)


def _ipv6(uid: int) -> str:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return f"no IPv6 here: {error}"
    return ""


def _root(uid: int) -> str:
    if uid != 0:
        return "needs root"
    return "" if int(_status("CapEff") or "0", 16) & (1 << 21) else "needs a root with capabilities"


def _user_namespaces(uid: int) -> str:
    if seccomp_filtered():
        return "a filter of system calls holds for the suite itself"
    for path, least in (("user/max_user_namespaces", 1), ("kernel/unprivileged_userns_clone", 1)):
        file = Path("/proc/sys", path)
        if file.exists() and int(file.read_text()) < least:
            return f"{path} is off here"
    if reason := _setting("kernel/apparmor_restrict_unprivileged_userns", 0):
        return reason
    text = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"
    python = python_for(uid)
    return (
        "" if python and runs_for(uid, python, "-I", "-S", "-c", text) else "the kernel makes no user namespaces here"
    )


def _ping(uid: int) -> str:
    lowest, highest = (int(word) for word in Path("/proc/sys/net/ipv4/ping_group_range").read_text().split())
    return "" if lowest <= uid <= highest else "net.ipv4.ping_group_range leaves the user out"


def _shared_memory_folder(uid: int) -> str:
    folder = Path("/dev/shm")
    return "" if folder.is_dir() and folder.stat().st_mode & 0o002 else "/dev/shm is not for everybody here"


def _attributes(uid: int) -> str:
    with tempfile.NamedTemporaryFile() as file:
        try:
            os.setxattr(file.name, "user.escape", b"x")
        except OSError as error:
            return f"the file system has no attributes: {error}"
    return ""


def _setuid(uid: int) -> str:
    if os.geteuid() != 0:
        return "only root can make such a program"
    if os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOSUID:
        return "the file system is mounted nosuid"
    return "" if shutil.which("id") else "there is no program to copy"


def _privileges(uid: int) -> str:
    return "" if _status("NoNewPrivs") == "0" else "new privileges are off for the suite itself"


def _futex_table(uid: int) -> str:
    try:
        return "" if syscall("prctl", 78, 2, 0, 0, 0) >= 0 else "the kernel has no tables of futexes"
    except OSError as error:
        return f"the kernel has no tables of futexes: {error}"


def _huge_pages(uid: int) -> str:
    free = Path("/proc/meminfo").read_text().partition("HugePages_Free:")[2].split()
    return "" if free and int(free[0]) else "the machine has no huge pages"


def _file_request(request: int, value: bytes) -> Callable[[int], str]:
    """Return a check that temporary files accept the ioctl ``request``."""

    def look(uid: int) -> str:
        with tempfile.NamedTemporaryFile() as file:
            try:
                syscall("ioctl", file.fileno(), request, value)
            except OSError as error:
                return f"the file system does not support it: {error}"
        return ""

    return look


def _file_flags(uid: int) -> str:
    with tempfile.NamedTemporaryFile() as file:
        try:
            syscall("file_setattr", -100, file.name.encode(), bytes(24), 24, 0)
        except OSError as error:
            return f"the kernel or the file system has no such call: {error}"
    return ""


def _machine_call(call: Callable[..., int], number: int) -> Callable[[int], str]:
    def look(uid: int) -> str:
        if platform.machine() != "x86_64":
            return "only on x86-64"
        # In a process of its own: the answer may be a signal.
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if call(number) > 0 else 1)
            except OSError:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return "" if code == 0 else "the kernel does not take such calls"

    return look


_FACTS: dict[str, Callable[[int], str]] = {
    "ipv6": _ipv6,
    "address": lambda uid: "" if own_address() else "there is loopback only",
    "mptcp": _socket(socket.AF_INET, socket.SOCK_STREAM, 262),
    "sctp": _socket(socket.AF_INET, socket.SOCK_STREAM, 132),
    "smc": _socket(43, socket.SOCK_STREAM, 0),
    "vsock": _socket(40, socket.SOCK_STREAM, 0),
    "alg": _socket(38, socket.SOCK_SEQPACKET, 0),
    "ping": _ping,
    "root": _root,
    "userns": _user_namespaces,
    "clone3": _call("clone3", 0, 0),
    "io_uring": _both(_call("io_uring_setup", 0, 0), _unless_root("kernel/io_uring_disabled", 0)),
    "bpf": _both(_unless_root("kernel/unprivileged_bpf_disabled", 0), _call("bpf", -1, 0, 0)),
    "perf": _both(_call("perf_event_open", 0, 0, -1, -1, 0), _unless_root("kernel/perf_event_paranoid", 2)),
    "userfaultfd": _call("userfaultfd", 0x41),
    "keyctl": _call("keyctl", 9999),
    "shared-memory-folder": _shared_memory_folder,
    "xattr": _attributes,
    "setuid": _both(_setuid, _privileges),
    "privileges": _privileges,
    "ptrace": _both(
        _call("ptrace", 0x4206, 0, 0, 0), lambda uid: "" if uid == 0 else _setting("kernel/yama/ptrace_scope", 0)
    ),
    "process_vm_readv": _call("process_vm_readv", 1 << 22, 0, 0, 0, 0, 0),
    "pidfd_getfd": _call("pidfd_getfd", -1, -1, 0),
    "kcmp": _call("kcmp", 1 << 22, 1 << 22, 0, 0, 0),
    "listener": lambda uid: "" if can_listen() else "no process may listen to system calls here",
    "openat2": _call("openat2", -1, 0, 0, 0),
    "i386": _machine_call(call_i386, 20),
    "x32": _machine_call(call_x32, 39),
    "shmget": _call("shmget", 0x7E57, 0, 0),
    "semget": _call("semget", 0x7E57, 0, 0),
    "msgget": _call("msgget", 0x7E57, 0),
    "vmsplice": _call("vmsplice", -1, 0, 0, 0),
    "io_setup": _call("io_setup", 0, 0),
    "landlock": lambda uid: "" if landlock_abi() else "the kernel has no Landlock",
    "futex-table": _futex_table,
    "huge-pages": _huge_pages,
    "close_range": _call("close_range", 1000, 999, 0),
    "x86-64": lambda uid: "" if platform.machine() == "x86_64" else "only on x86-64",
    "file_setattr": _file_flags,
    "file-flags": _file_request(0x40086602, (0x40).to_bytes(8, "little")),
    "reserve": _file_request(0x4030582A, struct.pack("@hhqqiI16x", 0, 0, 0, 4096, 0, 0)),
    "mq_open": _call("mq_unlink", b"escape-no-such-queue"),
}

# The library is loaded before any thread is there: later it would be loaded in each probe.
ctypes.CDLL(None)
