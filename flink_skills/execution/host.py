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

_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "localtime", "timezone"),
    *("passwd", "group", "nsswitch.conf", "locale.alias", "locale.conf", "default/locale"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust/extracted"),
    *("ca-certificates", "ca-certificates.conf"),
    *("mime.types", "magic", "fonts", "terminfo", "inputrc", "bash.bashrc", "profile", "os-release", "debian_version"),
    *("lsb-release", "gitconfig", "perl", "python3", "java-17-openjdk", "services", "protocols"),
)
_NETWORK_SETTINGS = ("hosts", "host.conf", "resolv.conf", "gai.conf", "hostname")
_KERNEL_FILES = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version"),
    *("/proc/filesystems", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/ostype", "/proc/sys/kernel/pid_max"),
    *("/proc/sys/kernel/random", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/max_map_count"),
    *("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage"),
)


def system_paths(*, network: bool = False) -> tuple[str, ...]:
    """Return the paths that exist on this host, and with ``network`` the files that name resolution reads.

    They include the worker's own Python with its installed packages.
    """
    settings = (*_SETTINGS, *(_NETWORK_SETTINGS if network else ()))
    wanted = (*_PROGRAMS, *(f"/etc/{name}" for name in settings), *_KERNEL_FILES, *_python_paths())
    existing = [path for path in wanted if Path(path).exists()]
    # Links lead elsewhere: /etc/localtime to /usr, /etc/resolv.conf possibly to /run.
    return tuple(dict.fromkeys(found for path in existing for found in (path, os.path.realpath(path))))


def _python_paths() -> tuple[str, ...]:
    """Return the directories of the interpreter, without prefixes that contain many other files."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    return tuple(sorted(prefix for prefix in prefixes if prefix not in ("/", "/usr", "/opt", "/home", "/root")))


def is_within(path: str, folders: Container[str]) -> bool:
    """Return True if an absolute ``path`` is one of ``folders`` or inside of one. Links are not resolved.

    >>> is_within("/usr/bin/env", {"/usr"})
    True
    """
    while path not in folders:
        if path == "/":
            return False
        path = os.path.dirname(path)
    return True


def outermost(paths: Iterable[str]) -> list[str]:
    """Return ``paths`` without those that are inside of others, the shortest first.

    >>> outermost(["/usr/bin", "/etc", "/usr"])
    ['/etc', '/usr']
    """
    found: dict[str, None] = {}
    for path in sorted(set(paths), key=lambda path: (len(path), path)):
        if not is_within(path, found):
            found[path] = None
    return list(found)


def own_status(field: str) -> str:
    """Return a field of ``/proc/self/status``, such as ``Seccomp``. Return an empty text if it cannot be read.

    >>> own_status("Threads").isdigit()
    True
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:")), "")
