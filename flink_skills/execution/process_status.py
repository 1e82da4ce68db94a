"""What the kernel says of this process."""

from __future__ import annotations

from pathlib import Path

__all__ = ["own_status"]


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
