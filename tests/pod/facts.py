"""Runs in the pod, and writes what a process there is and can do to ``/results/facts.json``."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.pod.bundle import CHECKOUT, MASKED, READ_ONLY

CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWNS = 0x10000000, 0x40000000, 0x20000
SIGCHLD = 17
# The same numbers on all processors; those of clone, keyctl and ptrace differ.
LANDLOCK_CREATE_RULESET, CLONE3, PIDFD_OPEN, PIDFD_GETFD, OPEN_TREE = 444, 435, 434, 438, 428
CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)

libc = ctypes.CDLL(None, use_errno=True)


def outcome(action: Callable[[], Any]) -> str:
    """``done``, or the name of the error of ``action``."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


def libc_call(function: str, *arguments: Any) -> str:
    def call() -> None:
        if getattr(libc, function)(*arguments) == -1:
            raise OSError(ctypes.get_errno(), function)

    return outcome(call)


def in_child(call: Callable[[], str]) -> str:
    """``call`` in a process of its own, because it changes what the process may do."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, call().encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def clone_with(flags: int) -> str:
    def call() -> None:
        child = libc.syscall(CLONE, ctypes.c_long(flags | SIGCHLD), None, None, None, None)
        if child == 0:
            os._exit(0)
        if child == -1:
            raise OSError(ctypes.get_errno(), "clone")
        os.waitpid(child, 0)

    return "no number" if CLONE is None else outcome(call)


def contents(path: Path) -> str:
    """``absent``, ``empty`` or ``something``: what is to be seen of a masked path."""
    if not path.exists():
        return "absent"
    return "something" if (any(path.iterdir()) if path.is_dir() else path.read_bytes()) else "empty"


def status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def written(path: str) -> str:
    return outcome(lambda: Path(path).write_bytes(b""))


def facts() -> dict[str, Any]:
    import flink_skills.execution

    return {
        "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
        "status": status(),
        "unshare": {
            name: in_child(lambda flags=flags: libc_call("unshare", flags))  # type: ignore[misc]
            for name, flags in (("user", CLONE_NEWUSER), ("net", CLONE_NEWNET), ("mount", CLONE_NEWNS))
        },
        "clone": {"user": clone_with(CLONE_NEWUSER), "plain": clone_with(0)},
        "clone3": libc_call("syscall", CLONE3, None, 0),
        "setns": libc_call("setns", os.open("/proc/self/ns/net", os.O_RDONLY), CLONE_NEWNET),
        "mount": libc_call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None),
        "umount": libc_call("umount2", b"/tmp", 0),
        "open_tree": libc_call("syscall", OPEN_TREE, -100, b"/tmp", 1),
        "chroot": outcome(lambda: os.chroot("/tmp")),
        "pidfd_getfd": libc_call("syscall", PIDFD_GETFD, libc.syscall(PIDFD_OPEN, 1, 0), 0, 0),
        "landlock_abi": libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1),
        "masked": {path: contents(Path(path)) for path in MASKED},
        "proc_read_only": {
            path: bool(os.statvfs(path).f_flag & os.ST_RDONLY) for path in READ_ONLY if Path(path).exists()
        },
        "core_pattern": written("/proc/sys/kernel/core_pattern"),
        "write": {
            path: written(f"{path}/planted")
            for path in ("/", "/usr", "/etc", "/opt", str(CHECKOUT), sys.prefix, sys.base_prefix, "/sys", "/root")
            if Path(path).is_dir()
        },
        "write_own": {
            path: written(f"{path}/planted") for path in ("/tmp", "/dev/shm", "/results", os.environ["HOME"])
        },
        "processes": sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()),
        "self": os.getpid(),
        "first_environment": Path("/proc/1/environ").read_bytes().decode().split("\0"),
        "token": Path("/var/run/secrets/kubernetes.io/serviceaccount/token").read_text(),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "loopback": outcome(loopback),
        "outside": outcome(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)),
        "devices": sorted(path.name for path in Path("/dev").iterdir()),
        "execution": flink_skills.execution.__file__,
    }


def loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
        server.accept()[0].close()


if __name__ == "__main__":
    found = facts()
    Path("/results/facts.json").write_text(json.dumps(found))
