"""The program of the canaries: attempts, as a command, all that a command must not be able to do.

An interpreter reads it from standard input, so it imports only modules of every Python and none of this package.
The argument is a JSON object of targets, which all belong to the worker. It writes a JSON object: for each attempt
``null`` if it was stopped, or what it reached.
"""

# Small and quick to start: no pathlib, no annotations at run time.
from __future__ import annotations

import _socket
import ctypes
import fcntl
import json
import os
import sys
import time
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

targets = json.loads(sys.argv[1])
worker = targets["worker"]
found: dict[str, str | None] = {}


def attempt(name: str, action: Callable[[], object]) -> None:
    """Record that ``action`` was stopped by an error, or what it reached."""
    try:
        reached = action()
    except (OSError, ValueError):
        found.setdefault(name, None)
    else:
        found[name] = str(reached)[:80]


def read(path: str) -> object:
    with open(path, "rb") as file:
        return file.read(1) or "nothing in it"


def write(path: str, flags: int = os.O_WRONLY) -> int:
    descriptor = os.open(path, flags, 0o600)
    try:
        return os.write(descriptor, b"x")
    finally:
        os.close(descriptor)


def through_link(path: str) -> object:
    link = os.path.join(targets["work"], "link")
    os.symlink(path, link)
    try:
        return read(link)
    finally:
        os.unlink(link)


def connect(family: int, address: Any, protocol: int = 0, kind: int = _socket.SOCK_STREAM) -> str:
    connection = _socket.socket(family, kind, protocol)
    connection.settimeout(1.0)
    try:
        connection.connect(address)
        if kind == _socket.SOCK_DGRAM:
            connection.send(b"x")
        return "connected"
    finally:
        connection.close()


def make_socket(family: int, kind: int) -> str:
    _socket.socket(family, kind).close()
    return "socket"


def send_from_pair(path: str) -> int:
    """Send from a socket of a pair, which can send to other addresses too."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        return ours.sendto(b"x", path)
    finally:
        ours.close()
        theirs.close()


def trace(pid: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    seize, detach = 0x4206, 17
    if libc.ptrace(seize, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    libc.ptrace(detach, pid, None, None)
    return "traced"


# tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo. All architectures share the numbers of the two calls about pidfds.
SIGNALING = {"x86_64": (200, 234, 129, 297), "ppc64le": (208, 250, 177, 322)}.get(
    os.uname().machine, (130, 131, 138, 240)
)
PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434


def system_call(number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise OSError(ctypes.get_errno(), "a system call")
    return result


def signal_by_descriptor(pid: int) -> int:
    descriptor = system_call(PIDFD_OPEN, pid, 0)
    try:
        return system_call(PIDFD_SEND_SIGNAL, descriptor, 0, 0, 0)
    finally:
        os.close(descriptor)


def signal_process(pid: int, group: int) -> None:
    """Ask the kernel by each of its calls whether it would signal a process. Signal 0 changes nothing."""
    about = bytes(8) + (-1).to_bytes(4, sys.byteorder, signed=True) + bytes(116)  # says that a program sends it
    of_thread, of_thread_in, queued, queued_for_thread = SIGNALING
    attempt("signal_worker", lambda: os.kill(pid, 0))
    if group > 1:  # in a container it can be 0 or 1, which mean the own group and every process
        attempt("signal_worker", lambda: os.kill(-group, 0))
    attempt("signal_worker", lambda: system_call(of_thread, pid, 0))
    attempt("signal_worker", lambda: system_call(of_thread_in, pid, pid, 0))
    attempt("signal_worker", lambda: system_call(queued, pid, 0, about))
    attempt("signal_worker", lambda: system_call(queued_for_thread, pid, pid, 0, about))
    attempt("signal_worker", lambda: signal_by_descriptor(pid))


def truncate_by_opening(path: str, access: int) -> str:
    os.close(os.open(path, access | os.O_TRUNC))
    return "truncated"


def privileges() -> str | None:
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file if ":" in line)
    if os.getuid() == 0 or int(status["CapEff"], 16):
        return "root, or capabilities"
    return None if status["NoNewPrivs"].strip() == "1" else "may gain privileges"


def worker_has_no_number() -> bool:
    """Return True if the worker's process id is that of another process or of none, as in another namespace."""
    try:
        elsewhere = os.stat("/proc/self/ns/pid").st_ino != targets["processes"]
        return elsewhere and os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def other_memory() -> str:
    """Open the memory of each listed process, including those that hold the namespaces."""
    opened = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        if int(name) != os.getpid():
            try:
                os.close(os.open(f"/proc/{name}/mem", os.O_RDWR))
            except OSError:
                continue
            opened.append(name)
    if not opened:
        raise PermissionError
    return f"of process {opened[0]}"


def leave_a_daemon() -> None:
    """Start a process that leaves session, group and parent, and that locks a file as long as it lives."""
    ready, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            lock = os.open(targets["lock"], os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(writer, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(ready, 1)


outside, other = targets["outside"], targets["other"]
attempt("read_outside", lambda: read(outside))
attempt("list_outside", lambda: os.listdir(os.path.dirname(outside)))
attempt("write_outside", lambda: write(outside))
attempt("write_outside", lambda: write(outside + ".new", os.O_WRONLY | os.O_CREAT))
attempt("truncate_outside", lambda: os.truncate(outside, 0))
for access in (os.O_RDONLY, os.O_WRONLY, os.O_ACCMODE):
    attempt("truncate_outside", partial(truncate_by_opening, outside, access))
attempt("link_outside", lambda: through_link(outside))
attempt("link_outside", lambda: os.link(outside, os.path.join(targets["work"], "hard")))
attempt("metadata_outside", lambda: os.stat(outside).st_size)
attempt("other_workspace", lambda: read(other))
attempt("other_workspace", lambda: os.listdir(os.path.dirname(other)))
attempt("other_workspace", lambda: write(other))
attempt("write_skills", lambda: write(os.path.join(targets["skills"], "new"), os.O_WRONLY | os.O_CREAT))
about_worker: dict[str, Callable[[], object]] = {
    "worker_environment": lambda: read(f"/proc/{worker}/environ"),
    "worker_command_line": lambda: read(f"/proc/{worker}/cmdline"),
    "worker_memory": lambda: write(f"/proc/{worker}/mem", os.O_RDWR),
    "worker_files": lambda: os.listdir(f"/proc/{worker}/cwd/"),
    "trace_worker": lambda: trace(worker),
}
for name, action in about_worker.items():
    if worker_has_no_number():
        found[name] = None
    else:
        attempt(name, action)
if worker_has_no_number():
    found["signal_worker"] = None
else:
    signal_process(worker, targets["group"])
attempt("other_memory", other_memory)
attempt("unix_socket", lambda: connect(_socket.AF_UNIX, targets["unix"]))
attempt("unix_socket", lambda: connect(_socket.AF_UNIX, targets["unix_datagram"], 0, _socket.SOCK_DGRAM))
attempt("unix_socket", lambda: send_from_pair(targets["unix_datagram"]))
attempt("abstract_socket", lambda: connect(_socket.AF_UNIX, "\0" + targets["abstract"]))
for family, kind in ((16, 3), (17, 3), (38, 5), (40, 1)):  # netlink, packet, kernel crypto, vsock
    attempt("kernel_sockets", partial(make_socket, family, kind))
if targets["offline"]:
    attempt("tcp", lambda: connect(_socket.AF_INET, ("127.0.0.1", targets["tcp"])))
    attempt("tcp", lambda: connect(_socket.AF_INET6, ("::1", targets["tcp"])))
    attempt("tcp", lambda: connect(_socket.AF_INET, ("127.0.0.1", targets["tcp"]), 262))  # multipath TCP
    attempt("udp", lambda: connect(_socket.AF_INET, ("127.0.0.1", targets["udp"]), 0, _socket.SOCK_DGRAM))
known = {*targets["env"], "LC_CTYPE", "PWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"}
found["environment"] = ", ".join(sorted(set(os.environ) - known)) or None
found["privileges"] = privileges()
with open(os.path.join(targets["work"], "written"), "w") as file:
    file.write("work is writable")
leave_a_daemon()
json.dump(found, sys.stdout)
