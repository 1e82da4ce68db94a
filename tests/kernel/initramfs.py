"""Initial file system of the virtual machine: a static busybox, modules, and a script that mounts the host's files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from .modules import load_order
from .packages import Kernel

PROBLEM = "machine: "
"""Prefix of the console line with the reason why the machine cannot start the command."""

_SCRIPT = """\
#!/bin/busybox sh
b=/bin/busybox
fail() { echo "@PROBLEM@$*"; $b poweroff -f; }
$b mount -t proc proc /proc; $b mount -t sysfs sysfs /sys; $b mount -t devtmpfs devtmpfs /dev || fail "no devtmpfs"
@MODULES@
share=trans=virtio,version=9p2000.L,msize=512000
$b mount -t 9p -o $share,ro,cache=loose files /files || fail "the files of the host cannot be mounted (9p over virtio)"
$b mount -t tmpfs -o size=80% tmpfs /memory && $b mkdir /memory/upper /memory/work
$b mount -t overlay -o lowerdir=/files,upperdir=/memory/upper,workdir=/memory/work overlay /root || fail "no overlay"
for i in proc sys dev results tmp; do $b mkdir -p /root/$i; done
$b mount -t 9p -o $share,access=any,cache=none results /root/results || fail "the folder of results cannot be mounted"
@KEEP@
$b mount -t tmpfs -o mode=1777 tmpfs /root/tmp
@RETURN@
for i in proc sys dev; do $b mount --move /$i /root/$i; done
cd /root/dev
$b ln -s /proc/self/fd fd; $b ln -s fd/0 stdin; $b ln -s fd/1 stdout; $b ln -s fd/2 stderr
$b mkdir -p pts shm mqueue
$b mount -t devpts -o mode=620,ptmxmode=666 devpts pts; $b mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs shm
$b mount -t mqueue mqueue mqueue
$b mount -t cgroup2 cgroup2 /root/sys/fs/cgroup; $b mount -t securityfs securityfs /root/sys/kernel/security
$b ifconfig lo 127.0.0.1 up
$b hostname machine
# chroot does not suffice: the kernel denies user namespaces in a chroot.
exec $b switch_root /root @PROGRAM@
"""


def script(modules: Sequence[str], kept: Sequence[str], program: Sequence[str]) -> str:
    """Return the script that loads ``modules`` and starts ``program`` on the host's files with an empty ``/tmp``.

    ``kept`` are directories in ``/tmp`` of the host that remain visible.
    """
    keep, back = [], []
    for number, path in enumerate(kept):
        place, inside = f"/keep{number}", shlex.quote(f"/root{path}")
        keep.append(f"$b mkdir {place}; $b mount --bind {inside} {place}")
        back.append(f"$b mkdir -p {inside}; $b mount --move {place} {inside}")
    text = _SCRIPT.replace("@PROBLEM@", PROBLEM)
    text = text.replace("@MODULES@", "\n".join(f"$b insmod /modules/{name}.ko || fail no {name}" for name in modules))
    text = text.replace("@KEEP@", "\n".join(keep)).replace("@RETURN@", "\n".join(back))
    return text.replace("@PROGRAM@", shlex.join(program))


def initramfs(kernel: Kernel, busybox: Path, kept: Sequence[str], program: Sequence[str]) -> bytes:
    """Return the initial file system for ``kernel``. Raises ``KernelError`` if a required module is missing."""
    modules = load_order(kernel)
    folders = ("bin", "dev", "files", "memory", "modules", "proc", "root", "sys")
    entries = [(name, 0o40755, b"") for name in folders]
    entries.append(("bin/busybox", 0o100755, busybox.read_bytes()))
    entries += [(f"modules/{name}.ko", 0o100644, content) for name, content in modules]
    entries.append(("init", 0o100755, script([name for name, _ in modules], kept, program).encode()))
    return archive(entries)


def archive(entries: Sequence[tuple[str, int, bytes]]) -> bytes:
    """Return names, modes and contents as an archive of root's files (``cpio``, format ``newc``)."""
    parts = []
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        raw = name.encode() + b"\0"
        # inode, mode, user, group, links, time, size, device twice, its own device twice, length of the name, sum
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
        parts += [head, b"\0" * (-len(head) % 4), content, b"\0" * (-len(content) % 4)]
    return b"".join(parts)
