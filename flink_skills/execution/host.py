"""This host: the parts of its file system that every command may read, and the kernel's status of this process.

:func:`system_paths` returns programs, libraries, and the files that these read. It omits ``/etc`` as one directory,
``/opt``, ``/home``, ``/var``, ``/run``, ``/tmp`` and ``/dev/shm``, which contain configuration, secrets, tokens and the
data of other processes. A job adds the paths that its skills need by ``skills.shell.readable``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable
from pathlib import Path

__all__ = ["is_within", "outermost", "own_status", "system_paths"]

_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "localtime", "timezone"),
    *("passwd", "group", "nsswitch.conf", "locale.alias", "locale.conf", "default/locale"),
    *(
        "ssl/certs",
        "ssl/openssl.cnf",
        "pki/tls/certs",
        "pki/ca-trust/extracted",
        "ca-certificates",
        "ca-certificates.conf",
    ),
    *("mime.types", "magic", "fonts", "terminfo", "inputrc", "bash.bashrc", "profile", "os-release", "debian_version"),
    *("lsb-release", "gitconfig", "perl", "python3", "java-17-openjdk", "services", "protocols"),
)
_NETWORK_SETTINGS = ("hosts", "host.conf", "resolv.conf", "gai.conf", "hostname")
_FIGURES = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version"),
    *("/proc/filesystems", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/ostype", "/proc/sys/kernel/pid_max"),
    *("/proc/sys/kernel/random", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/max_map_count"),
    *("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage"),
)


def system_paths(*, network: bool = False) -> tuple[str, ...]:
    """The paths of this machine, as far as they exist; with ``network`` also what names are looked up by.

    The worker's own Python is among them, with the packages that are installed beside it.
    """
    settings = (*_SETTINGS, *(_NETWORK_SETTINGS if network else ()))
    wanted = (*_PROGRAMS, *(f"/etc/{name}" for name in settings), *_FIGURES, *_python_paths())
    found: dict[str, None] = {}
    for path in wanted:
        if path in found or not Path(path).exists():
            continue
        found[path] = None
        # What is linked to lies elsewhere: /etc/localtime leads to /usr, /etc/resolv.conf may lead to /run.
        real = os.path.realpath(path)
        if real != path:
            found[real] = None
    return tuple(found)


def _python_paths() -> tuple[str, ...]:
    """The folders of the interpreter. A prefix that holds all the system's files says nothing."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    return tuple(sorted(prefix for prefix in prefixes if prefix not in ("/", "/usr", "/opt", "/home", "/root")))


def is_within(path: str, folders: Container[str]) -> bool:
    """Whether an absolute ``path`` is one of ``folders`` or inside of one.

    >>> is_within("/usr/bin/env", {"/usr"})
    True
    """
    while path not in folders:
        if path == "/":
            return False
        path = os.path.dirname(path)
    return True


def outermost(paths: Iterable[str]) -> list[str]:
    """``paths`` without those that are inside of others, the shortest first.

    >>> outermost(["/usr/bin", "/etc", "/usr"])
    ['/etc', '/usr']
    """
    found: dict[str, None] = {}
    for path in sorted(set(paths), key=lambda path: (len(path), path)):
        if not is_within(path, found):
            found[path] = None
    return list(found)


def own_status(field: str) -> str:
    """A field of ``/proc/self/status``, such as ``Seccomp`` or ``CapEff``; empty where it cannot be read.

    >>> own_status("Threads").isdigit()
    True
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:")), "")
