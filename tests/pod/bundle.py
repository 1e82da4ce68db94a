"""What ``runc`` is told of the pod: its user, files, namespaces and limits, as a node gives to a restricted pod."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The user of Flink's images. It has no entry in /etc/passwd, as in many clusters. The kernel counts the processes of a
# user in all pods, so each parallel process of pytest has another user.
USER = 9999 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
CHECKOUT = Path(__file__).resolve().parents[2]

# Defaults of containerd and CRI-O.
MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"),
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_HARDENED = ["nosuid", "noexec", "nodev"]


def make_root(folder: Path) -> None:
    """Fill ``folder`` with the frame of a root file system; what the distribution has is mounted into it."""
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            (folder / path.name).symlink_to(path.readlink())
    for name in ("proc", "sys", "dev", "tmp", "home", "opt", "var/tmp", "run"):
        (folder / name).mkdir(parents=True)
    for name in ("tmp", "var/tmp"):  # runc gives what it mounts there the mode of the folder
        (folder / name).chmod(0o1777)
    (folder / "var/run").symlink_to("/run")


def configuration(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    root: Path,
    results: Path,
    token: Path,
    seccomp: Mapping[str, Any] | None,
    cgroup: str,
) -> dict[str, Any]:
    """The OCI configuration of a pod that runs ``command``.

    ``root`` is what :func:`make_root` filled, ``results`` a folder that the pod may write at ``/results``,
    ``token`` the file that stands for the token of a service account, ``seccomp`` the profile, or None for none.
    """
    return {
        "ociVersion": "1.0.2",
        "hostname": "taskmanager",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "args": list(command),
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": str(CHECKOUT),
            "user": {"uid": USER, "gid": USER},
            "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")},
            "noNewPrivileges": True,
        },
        "mounts": [
            *({"destination": path, **_bind(path)} for path in _SYSTEM if Path(path).is_dir() and not _is_link(path)),
            *_of_the_kernel(),
            _memory("/tmp", "mode=1777", "size=2g", "nosuid", "nodev"),
            _memory("/var/tmp", "mode=1777", "size=64m", "nosuid", "nodev"),
            *({"destination": path, **_bind(path)} for path in python_and_checkout()),
            {
                "destination": "/run/secrets/kubernetes.io/serviceaccount/token",
                **_bind(str(token)),
            },
            {"destination": "/results", "type": "bind", "source": str(results), "options": ["bind", "rw", "nosuid"]},
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount", "cgroup")],
            "cgroupsPath": cgroup,
            # Room for everything that should run, and an end for what a broken limit lets go.
            "resources": {
                "devices": [{"allow": False, "access": "rwm"}],
                "pids": {"limit": 2048},
                "memory": {"limit": 4 << 30},
            },
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(READ_ONLY),
            **({"seccomp": dict(seccomp)} if seccomp is not None else {}),
        },
    }


def python_and_checkout() -> list[str]:
    """The folders that this Python and its packages live in, and the checkout; none within another or in /usr.

    They are mounted where they are: the folders above are new in the pod, so it does not matter that the pod's user
    could not come through them on the machine (Python in the home folder of root, say).
    """
    folders = {CHECKOUT, Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_exec_prefix)}
    python = Path(sys.executable)
    while python.is_symlink():  # the link in the bin folder of a virtual environment goes to an installation's
        python = python.parent / python.readlink()
        folders.add(Path(os.path.normpath(python.parent.parent)))
    kept: list[Path] = []
    for folder in sorted(folders):
        if not any(folder.is_relative_to(other) for other in (*kept, *map(Path, _SYSTEM))):
            kept.append(folder)
    return [str(folder) for folder in kept]


def _of_the_kernel() -> list[dict[str, Any]]:
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": _HARDENED},
        _memory("/dev", "nosuid", "strictatime", "mode=755", "size=64m"),
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
        },
        _memory("/dev/shm", *_HARDENED, "mode=1777", "size=64m"),
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": _HARDENED},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*_HARDENED, "ro"]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": [*_HARDENED, "ro"]},
    ]


def _memory(path: str, *options: str) -> dict[str, Any]:
    return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": list(options)}


def _bind(source: str) -> dict[str, Any]:
    return {"type": "bind", "source": source, "options": ["rbind", "ro", "rprivate"]}


def _is_link(path: str) -> bool:
    return Path(path).is_symlink()
