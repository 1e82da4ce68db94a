"""Which system calls a command may make: a seccomp filter that denies what no script needs and attacks do.

The filter allows by default, so that new programs go on working, and denies:

* every socket (``offline``), or all but those of IPv4 and IPv6 (``inet``);
* what reaches other processes: tracing, their memory, descriptors, limits and priorities. Landlock covers signals;
* namespaces, mounts, and what a kernel offers to administrators;
* interfaces with a history of privilege escalation: io_uring, bpf, perf events, userfaultfd, keyrings;
* channels between commands that no file permission covers: System V IPC, POSIX message queues;
* memory that no limit sees (memfd), and change notification, which tells the names of files that may not be read;
* disk that is taken at once, before anybody can look (fallocate), also past the limit of a file's size.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket

import pyseccomp as seccomp

__all__ = ["INET", "OFFLINE", "build_filter", "filter_program"]

OFFLINE = "offline"
INET = "inet"

_DENIED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise"),
    *("keyctl", "add_key", "request_key"),
    *(
        "unshare",
        "setns",
        "chroot",
        "pivot_root",
        "mount",
        "umount2",
        "umount",
        "move_mount",
        "open_tree",
        "open_tree_attr",
    ),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "name_to_handle_at", "open_by_handle_at"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "perf_event_open", "userfaultfd"),
    *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "ipc", "mq_open", "mq_unlink"),
    *("inotify_add_watch", "fanotify_init", "fanotify_mark"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module"),
    *("swapon", "swapoff", "reboot", "syslog", "acct", "quotactl", "quotactl_fd", "vhangup", "lookup_dcookie"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "nfsservctl", "uselib", "_sysctl", "sysfs", "ustat", "vm86", "vm86old", "personality"),
    *("move_pages", "migrate_pages", "mbind", "set_mempolicy", "get_mempolicy"),
)
# Programs do without these when the kernel does not have them.
_MISSING = ("clone3", "memfd_create", "memfd_secret")
# As if the file system had none of it. Extended attributes are metadata, which Landlock leaves open. fallocate takes a
# whole disk in one call, past RLIMIT_FSIZE where the file keeps its size; posix_fallocate goes on by writing.
_UNSUPPORTED = (
    "fallocate",
    *("setxattrat", "removexattrat"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
)
# May be used on the calling process only, for which the number of the process is 0.
_OWN_ONLY = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
# CLONE_NEWNS, …CGROUP, …UTS, …IPC, …USER, …PID, …NET; CLONE_NEWTIME is known to clone3 only.
_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
# Numbers that all architectures share, for a libseccomp that is older than the call.
_NUMBERS = {
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429},
    **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438},
    **{"process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447},
    **{"setxattrat": 463, "removexattrat": 466, "open_tree_attr": 467},
}
_PR_SET_DUMPABLE = 4
_TYPE_MASK = 0xF


def build_filter(mode: str) -> seccomp.SyscallFilter:
    """The filter of ``mode``, :data:`OFFLINE` or :data:`INET`. Its ``load()`` applies it to the calling process."""
    found = seccomp.SyscallFilter(seccomp.ALLOW)
    # Calls of another architecture (i386, x32) go by other numbers and would pass the rules below.
    found.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    _deny(found, errno.EPERM, *_DENIED)
    _deny(found, errno.ENOSYS, *_MISSING)
    _deny(found, errno.EOPNOTSUPP, *_UNSUPPORTED)
    for flag in _NAMESPACES:
        found.add_rule(seccomp.ERRNO(errno.EPERM), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    for name in _OWN_ONLY:
        found.add_rule(seccomp.ERRNO(errno.EPERM), name, seccomp.Arg(0, seccomp.NE, 0))
    _own_priority_only(found)
    # Change notification by another name; and leases, by which who reads a file can keep others from opening it.
    for command in (fcntl.F_NOTIFY, fcntl.F_SETLEASE):
        found.add_rule(seccomp.ERRNO(errno.EPERM), "fcntl", seccomp.Arg(1, seccomp.EQ, command))
    # Who cannot be looked at cannot be counted: unlinked files are found through /proc.
    found.add_rule(seccomp.ERRNO(errno.EPERM), "prctl", seccomp.Arg(0, seccomp.EQ, _PR_SET_DUMPABLE))
    _sockets(found, mode)
    return found


def filter_program(mode: str) -> bytes:
    """The filter as a program for the kernel."""
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w+b") as file:
        build_filter(mode).export_bpf(file)
        return os.pread(descriptor, 1 << 20, 0)


def _deny(found: seccomp.SyscallFilter, error: int, *names: str) -> None:
    for name in names:
        number = _number(name)
        if number < 0:
            number = _NUMBERS.get(name, -1)
        if number >= 0:  # else this architecture has no such call
            found.add_rule(seccomp.ERRNO(error), number)


def _number(name: str) -> int:
    try:
        return int(seccomp.resolve_syscall(seccomp.Arch.NATIVE, name))
    except (OSError, ValueError):
        return -1


def _own_priority_only(found: seccomp.SyscallFilter) -> None:
    """``setpriority`` and ``ioprio_set`` for the calling process: "which" says a process, "who" is 0."""
    for name, process in (("setpriority", os.PRIO_PROCESS), ("ioprio_set", 1)):
        found.add_rule(seccomp.ERRNO(errno.EPERM), name, seccomp.Arg(0, seccomp.NE, process))
        found.add_rule(seccomp.ERRNO(errno.EPERM), name, seccomp.Arg(1, seccomp.NE, 0))


def _sockets(found: seccomp.SyscallFilter, mode: str) -> None:
    refused = seccomp.ERRNO(errno.EACCES)
    if mode == OFFLINE:
        for name in ("socket", "connect", "bind", "listen", "accept", "accept4"):
            found.add_rule(refused, name)
        # What waits in a pair is memory of no process; the launcher counts pairs at the kernel's default.
        larger = (seccomp.Arg(1, seccomp.EQ, socket.SOL_SOCKET), seccomp.Arg(2, seccomp.EQ, socket.SO_SNDBUF))
        found.add_rule(seccomp.ERRNO(errno.ENOBUFS), "setsockopt", *larger)
    else:
        # One rule compares an argument once, so "neither IPv4 nor IPv6" is written as what lies around them.
        found.add_rule(refused, "socket", seccomp.Arg(0, seccomp.LT, socket.AF_INET))
        for family in range(socket.AF_INET + 1, socket.AF_INET6):
            found.add_rule(refused, "socket", seccomp.Arg(0, seccomp.EQ, family))
        found.add_rule(refused, "socket", seccomp.Arg(0, seccomp.GT, socket.AF_INET6))
    # Pairs connect a process with its children. One of datagrams could send to any socket that has a name.
    found.add_rule(refused, "socketpair", seccomp.Arg(0, seccomp.NE, socket.AF_UNIX))
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        found.add_rule(refused, "socketpair", seccomp.Arg(1, seccomp.MASKED_EQ, _TYPE_MASK, kind))
