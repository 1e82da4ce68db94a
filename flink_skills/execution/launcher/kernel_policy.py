"""Rules for the kernel: the seccomp filter and the Landlock rights for commands.

Only the process that :func:`~flink_skills.execution.launcher.zygote.serve` forks imports this module: the
libraries are slow, and their modules would be part of every fork. The filter denies calls that no script needs and
attacks use.

The filter allows by default, so that new programs go on working, and denies:

* every socket (``offline``), or all but those of IPv4 and IPv6 (``inet``);
* what reaches other processes: tracing, their memory, descriptors, limits and priorities. Landlock covers signals;
* namespaces, mounts, and what a kernel offers to administrators;
* interfaces with a history of privilege escalation: io_uring, bpf, perf events, userfaultfd, keyrings, line
  disciplines of terminals;
* channels between commands that no file permission covers: System V IPC, POSIX message queues;
* memory that no limit sees (memfd, vmsplice, large pipes, huge pages, tables of futexes, rules of Landlock);
* change notification, which tells the names of files that may not be read;
* what users or the whole machine have a fixed number of (instances of inotify, contexts of asynchronous I/O);
* descriptors of one thread alone, which no look at its process shows;
* disk that is taken in one call (fallocate), also past the file size limit.

Two more parts close what Landlock cannot restrict before Linux 6.12. With ``signals`` the supervisor answers the calls
that signal processes, and the kernel signals no process for a command (``F_SETOWN``). With ``truncation`` (before 6.2)
no call truncates a file without the right to write it. The name of a filter is a mode and its parts:
``offline+signals+truncation``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterable

import pyseccomp as seccomp
from landlockpy import AccessFS, Scope, abi_version
from landlockpy.flags import fs_for_abi, scope_for_abi

from flink_skills.execution.launcher.protocol import PARTS, SIGNALS, TRUNCATION, Rights

_OFFLINE = "offline"
_SIGNAL_CALLS = ("kill", "tkill", "tgkill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo")

_DENIED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise"),
    *("keyctl", "add_key", "request_key"),
    *("unshare", "setns", "chroot", "pivot_root", "mount", "umount2", "umount"),
    *("move_mount", "open_tree", "open_tree_attr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "name_to_handle_at", "open_by_handle_at"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "perf_event_open", "userfaultfd"),
    *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "ipc", "mq_open", "mq_unlink"),
    *("inotify_add_watch", "fanotify_init", "fanotify_mark"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module"),
    *("swapon", "swapoff", "reboot", "syslog", "acct", "quotactl", "quotactl_fd", "vhangup", "lookup_dcookie"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "nfsservctl", "uselib", "_sysctl", "sysfs", "ustat", "vm86", "vm86old", "personality"),
    *("move_pages", "migrate_pages", "mbind", "set_mempolicy", "get_mempolicy", "set_mempolicy_home_node"),
    *("process_mrelease", "lsm_set_self_attr", "listns"),
)
# Programs do without these when the kernel does not have them.
_MISSING = (
    *("clone3", "memfd_create", "memfd_secret", "vmsplice", "landlock_create_ruleset"),
    *("inotify_init", "inotify_init1", "io_setup"),
)
# As if the file system had none of it. Extended attributes are metadata, which Landlock leaves open. fallocate takes a
# whole disk in one call, past RLIMIT_FSIZE where the file keeps its size; posix_fallocate goes on by writing.
_UNSUPPORTED = (
    "fallocate",
    *("setxattrat", "removexattrat", "file_getattr", "file_setattr"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
)
# May be used on the calling process only, for which the number of the process is 0.
_OWN_ONLY = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
# CLONE_NEWNS, …CGROUP, …UTS, …IPC, …USER, …PID, …NET; CLONE_NEWTIME is known to clone3 only.
_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
# Numbers that all architectures share, for a libseccomp that is older than the call.
_NUMBERS = {
    **{"pidfd_send_signal": 424, "openat2": 437},
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429},
    **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438},
    **{"process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447},
    **{"setxattrat": 463, "removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469},
    **{"landlock_create_ruleset": 444, "process_mrelease": 448, "set_mempolicy_home_node": 450},
    **{"lsm_set_self_attr": 460, "listns": 470},
}
_CLOSE_RANGE = 436
_PR_SET_DUMPABLE = 4
_PR_FUTEX_HASH = 78
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 65_536
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_CLOSE_RANGE_UNSHARE = 2
_MAP_HUGETLB = 0x40000
# FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR; FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE, which act as fallocate.
_UNSUPPORTED_IOCTLS = (0x40086602, 0x401C5820, 0x40305828, 0x4030582A, 0x40305839)
_TIOCSETD = 0x5423
_TYPE_MASK = 0xF
_F_SETOWN, _F_SETOWN_EX = 8, 15
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
_NEW_LISTENER = 8
_INT = 0xFFFF_FFFF

_READ = AccessFS.EXECUTE | AccessFS.READ_FILE | AccessFS.READ_DIR
_MAKE = AccessFS.MAKE_DIR | AccessFS.MAKE_REG | AccessFS.MAKE_SOCK | AccessFS.MAKE_FIFO | AccessFS.MAKE_SYM
# The rights that can enlarge a workspace. The limits of a process do not count folders, links and names, nor what is
# written into the holes of a file through a mapping.
_GROWTH = AccessFS.WRITE_FILE | _MAKE | AccessFS.REFER
# All rights except those for devices, which need root anyway. RESOLVE_UNIX is never granted, and IOCTL_DEV only for a
# terminal.
_WRITE = _READ | _GROWTH | AccessFS.REMOVE_DIR | AccessFS.REMOVE_FILE | AccessFS.TRUNCATE
# The kernel accepts only these for a rule on a file that is not a folder.
_OF_FILES = AccessFS.EXECUTE | AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE
_DEVICE = AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE
# Every domain denies this right unless it grants it. Before Linux 5.19 the kernel always denies it.
_DOMAIN = AccessFS.REFER
# A device that only root can make.
_DOMAIN_BEFORE = AccessFS.MAKE_BLOCK
_SCOPES = Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL


def filter_program(name: str) -> bytes:
    """Return the filter ``name`` as a program for the kernel. A name is ``offline`` or ``inet`` and the parts."""
    mode, *parts = name.split(PARTS)
    rules = _Rules()
    rules.deny_calls()
    rules.deny_uncounted()
    rules.deny_sockets(mode)
    if SIGNALS in parts:
        rules.mediate_signals()
    if TRUNCATION in parts:
        rules.deny_truncation()
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w+b") as file:
        rules.filter.export_bpf(file)
        return os.pread(descriptor, 1 << 20, 0)


def signal_call_numbers() -> dict[str, int]:
    """Return the numbers of the calls that signal processes, by name."""
    return {name: number for name in _SIGNAL_CALLS if (number := _number(name)) >= 0}


def _number(name: str) -> int:
    try:
        found = int(seccomp.resolve_syscall(seccomp.Arch.NATIVE, name))
    except (OSError, ValueError):
        found = -1
    return found if found >= 0 else _NUMBERS.get(name, -1)


def _int(argument: int, value: int) -> seccomp.Arg:
    """Compare an ``int`` argument. The kernel ignores the upper half of its register, and a program can fill it."""
    return seccomp.Arg(argument, seccomp.MASKED_EQ, _INT, value)


def _has(argument: int, flag: int, mask: int = 0) -> seccomp.Arg:
    """Compare the bits ``mask`` of an argument, by default those of ``flag``, with ``flag``."""
    return seccomp.Arg(argument, seccomp.MASKED_EQ, mask or flag, flag)


def _not(argument: int, value: int) -> seccomp.Arg:
    return seccomp.Arg(argument, seccomp.NE, value)


class _Rules:
    def __init__(self) -> None:
        self.filter = seccomp.SyscallFilter(seccomp.ALLOW)
        # Calls of another architecture (i386, x32) have other numbers and would pass the rules.
        self.filter.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)

    def _deny(self, error: int, call: str | int, *arguments: seccomp.Arg) -> None:
        self.filter.add_rule(seccomp.ERRNO(error), call, *arguments)

    def _deny_all(self, error: int, names: Iterable[str]) -> None:
        for name in names:
            number = _number(name)
            if number >= 0:  # else this architecture has no such call
                self._deny(error, number)

    def deny_calls(self) -> None:
        self._deny_all(errno.EPERM, _DENIED)
        self._deny_all(errno.ENOSYS, _MISSING)
        self._deny_all(errno.EOPNOTSUPP, _UNSUPPORTED)
        for flag in _NAMESPACES:
            self._deny(errno.EPERM, "clone", _has(0, flag))
        for name in _OWN_ONLY:
            self._deny(errno.EPERM, name, _not(0, 0))
        # Only for the calling process: the first argument is the kind, the second is 0.
        for name, process in (("setpriority", os.PRIO_PROCESS), ("ioprio_set", 1)):
            self._deny(errno.EPERM, name, _not(0, process))
            self._deny(errno.EPERM, name, _not(1, 0))
        # Change notification by another name; and leases, with which a reader of a file can delay others.
        for command in (fcntl.F_NOTIFY, fcntl.F_SETLEASE):
            self._deny(errno.EPERM, "fcntl", _int(1, command))
        # Another line discipline is a driver of the kernel, which it may load for this.
        self._deny(errno.EPERM, "ioctl", _int(1, _TIOCSETD))
        # The descriptors of a process that is not dumpable are hidden, and with them unlinked files.
        self._deny(errno.EPERM, "prctl", _int(0, _PR_SET_DUMPABLE))

    def deny_uncounted(self) -> None:
        """Deny forms of calls by which processes hold memory, disk or descriptors that cannot be counted."""
        self._deny(errno.EPERM, "fcntl", _int(1, _F_SETPIPE_SZ), seccomp.Arg(2, seccomp.GT, _PIPE_BYTES))
        self._deny(errno.EINVAL, "prctl", _int(0, _PR_FUTEX_HASH))
        self._deny(errno.ENOMEM, "mmap", _has(3, _MAP_HUGETLB))
        self._deny(errno.EPERM, "clone", _has(0, _CLONE_THREAD, _CLONE_THREAD | _CLONE_FILES))
        self._deny(errno.ENOSYS, _CLOSE_RANGE, _has(2, _CLOSE_RANGE_UNSHARE))
        for request in _UNSUPPORTED_IOCTLS:
            self._deny(errno.EOPNOTSUPP, "ioctl", _int(1, request))

    def deny_sockets(self, mode: str) -> None:
        if mode == _OFFLINE:
            for name in ("socket", "connect", "bind", "listen", "accept", "accept4"):
                self._deny(errno.EACCES, name)
            # Data in a pair is memory of no process; the launcher counts pairs at the kernel's default size.
            self._deny(errno.ENOBUFS, "setsockopt", _int(1, socket.SOL_SOCKET), _int(2, socket.SO_SNDBUF))
        else:
            # One rule compares an argument once, so "neither IPv4 nor IPv6" is written as the numbers around these.
            self._deny(errno.EACCES, "socket", seccomp.Arg(0, seccomp.LT, socket.AF_INET))
            for family in range(socket.AF_INET + 1, socket.AF_INET6):
                self._deny(errno.EACCES, "socket", seccomp.Arg(0, seccomp.EQ, family))
            self._deny(errno.EACCES, "socket", seccomp.Arg(0, seccomp.GT, socket.AF_INET6))
        # Pairs connect a process with its children. A pair of datagrams could send to any socket with a name.
        self._deny(errno.EACCES, "socketpair", _not(0, socket.AF_UNIX))
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
            self._deny(errno.EACCES, "socketpair", _has(1, kind, _TYPE_MASK))

    def mediate_signals(self) -> None:
        for name, number in signal_call_numbers().items():
            # The group of the caller has processes of the command only: its session began with the command.
            self.filter.add_rule(seccomp.NOTIFY, number, *((_not(0, 0),) if name == "kill" else ()))
        # A second listener could answer instead of the supervisor when that has ended.
        self._deny(errno.EBUSY, "seccomp", _has(1, _NEW_LISTENER))
        # The kernel signals the owner of a descriptor when input arrives.
        for command in (_F_SETOWN, _F_SETOWN_EX):
            self._deny(errno.EPERM, "fcntl", _int(1, command))
        for request in (_FIOSETOWN, _SIOCSPGRP):
            self._deny(errno.EPERM, "ioctl", _int(1, request))

    def deny_truncation(self) -> None:
        self._deny_all(errno.EACCES, ("truncate", "truncate64"))
        self._deny_all(errno.ENOSYS, ("openat2",))  # its flags are in memory
        # Landlock requires the right to write if a file is opened to write. Mode 3 opens it to neither read nor write.
        mask = os.O_TRUNC | os.O_ACCMODE
        for name, flags in (("open", 1), ("openat", 2)):
            if _number(name) >= 0:
                for access in (os.O_RDONLY, os.O_ACCMODE):
                    self._deny(errno.EACCES, name, _has(flags, os.O_TRUNC | access, mask))


def kernel_rights() -> Rights | None:
    """Return the rights that the kernel supports. Return None if it has no Landlock."""
    abi = abi_version()
    if abi == 0:
        return None
    every = fs_for_abi(abi)
    return Rights(
        every=int(every),
        read=int(_READ & every),
        write=int(_WRITE & every),
        growth=int(_GROWTH & every),
        of_files=int(_OF_FILES & every),
        device=int(_DEVICE & every),
        # A process that opens its terminal by name can do no more with it than with its standard input.
        terminal=int((_DEVICE | AccessFS.IOCTL_DEV) & every),
        write_file=int(AccessFS.WRITE_FILE),
        domain=int((_DOMAIN & every) or _DOMAIN_BEFORE),
        scopes=int(_SCOPES & scope_for_abi(abi)),
    )
