"""``python -m tests.kernel.delegated [--user UID] [--marked] COMMAND…``: run a command in a delegated cgroup v2.

Needs root, a mounted cgroup v2 and its controllers. The cgroup is the root of a namespace, as in a container, or with
``--marked`` one that carries systemd's mark of ``Delegate=yes``. It has another process, as Flink's containers do.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
from pathlib import Path

from .first import without_rights

_ROOT = Path("/sys/fs/cgroup")
_NEW_CGROUP, _NEW_MOUNTS = 0x02000000, 0x00020000
_PRIVATE = 1 << 18 | 1 << 14


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.delegated")
    parser.add_argument("--user", type=int, default=0)
    parser.add_argument("--marked", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    folder = _ROOT / "pod"
    folder.mkdir()
    (_ROOT / "cgroup.subtree_control").write_text("+memory +pids")
    (folder / "cgroup.procs").write_text("0")
    for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control"):
        os.chown(path, options.user, options.user)
    if options.marked:
        os.setxattr(folder, "user.delegate", b"1")
    else:
        _be_in_a_container()
    other = subprocess.Popen(["sleep", "infinity"])
    try:
        return subprocess.run(
            options.command, check=False, preexec_fn=lambda: without_rights(options.user) if options.user else None
        ).returncode
    finally:
        other.kill()
        other.wait()


def _be_in_a_container() -> None:
    """Make the cgroup of this process the root of a namespace, and mount what is visible in that."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), what)

    check(libc.unshare(_NEW_CGROUP | _NEW_MOUNTS), "unshare")
    check(libc.mount(None, b"/", None, _PRIVATE, None), "mount")
    check(libc.umount2(os.fsencode(_ROOT), 2), "umount")
    check(libc.mount(b"cgroup2", os.fsencode(_ROOT), b"cgroup2", 0, None), "mount cgroup2")


if __name__ == "__main__":
    sys.exit(main())
