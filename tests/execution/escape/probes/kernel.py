"""Rows 37 to 42 and 44: namespaces, privileges, rare system calls, devices, shared memory, the skill's own files."""

# Attempts are system calls: what a library does around them would be in the way.
from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import struct
import subprocess

from tests.execution.escape.probes.kit import Target, attempt, syscall

ALL = "NLPH"
_NEWNS, _NEWUSER, _NEWNET, _NEWPID = 0x20000, 0x10000000, 0x40000000, 0x20000000


def _own_namespaces(flags: int) -> None:
    """Get the rights of a user namespace if that is possible; what follows shows whether it was."""
    try:
        syscall("unshare", _NEWUSER | flags)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.ENOSPC):
            raise


@attempt(37, ALL, needs=("userns",))
def user_namespace(target: Target) -> object:
    return syscall("unshare", _NEWUSER) == 0


@attempt(37, ALL, needs=("userns",))
def user_namespace_of_a_child(target: Target) -> object:
    child = syscall("clone", _NEWUSER | 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


@attempt(37, ALL, needs=("userns", "clone3"))
def user_namespace_by_clone3(target: Target) -> object:
    arguments = struct.pack("=8Q", _NEWUSER, 0, 0, 0, 17, 0, 0, 0)
    child = syscall("clone3", arguments, len(arguments))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


@attempt(37, ALL, needs=("userns",))
def mount_in_a_namespace(target: Target) -> object:
    _own_namespaces(_NEWNS)
    syscall("mount", b"none", target.work.encode(), b"tmpfs", 0, 0)
    return True


@attempt(37, ALL, needs=("userns",))
def bind_mount_in_a_namespace(target: Target) -> object:
    _own_namespaces(_NEWNS)
    syscall("mount", target.outside.encode(), target.work.encode(), 0, 0x1000, 0)
    return os.path.exists(os.path.join(target.work, os.path.basename(target.canary)))


@attempt(37, ALL, needs=("userns",))
def open_a_file_system(target: Target) -> object:
    _own_namespaces(_NEWNS)
    return syscall("fsopen", b"tmpfs", 0)


@attempt(37, ALL, needs=("userns",))
def change_the_root(target: Target) -> object:
    _own_namespaces(0)
    return syscall("chroot", target.work.encode()) == 0


@attempt(37, ALL, needs=("userns",))
def pivot_the_root(target: Target) -> object:
    _own_namespaces(_NEWNS)
    syscall("mount", b"none", target.work.encode(), b"tmpfs", 0, 0)
    os.chdir(target.work)
    return syscall("pivot_root", b".", b".") == 0


@attempt(37, ALL, needs=("root",))
def enter_a_namespace(target: Target) -> object:
    return syscall("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0) == 0


@attempt(38, ALL, needs=("privileges",))
def programs_may_give_privileges(target: Target) -> object:
    return ctypes.CDLL(None).prctl(39, 0, 0, 0, 0) == 0  # PR_GET_NO_NEW_PRIVS


@attempt(38, ALL, needs=("root",))
def has_capabilities(target: Target) -> object:
    header = struct.pack("=Ii", 0x20080522, 0)
    sets = ctypes.create_string_buffer(24)
    syscall("capget", header, sets)
    return any(struct.unpack("=6I", sets.raw)[:2]) and sets.raw.hex()


@attempt(38, ALL, needs=("root",))
def is_root(target: Target) -> object:
    return 0 in os.getresuid() or 0 in os.getresgid() or 0 in os.getgroups()


@attempt(38, ALL, needs=("setuid",))
def becomes_root_by_a_program(target: Target) -> object:
    # The program lies in the workspace, where it can be run: what stops it is that it gives nothing.
    run = subprocess.run([target.setuid_program, "-u"], capture_output=True, check=True)
    return run.stdout.strip() == b"0"


@attempt(39, ALL, needs=("io_uring",))
def io_uring(target: Target) -> object:
    return syscall("io_uring_setup", 2, ctypes.create_string_buffer(120))


@attempt(39, ALL, needs=("bpf",))
def bpf(target: Target) -> object:
    attributes = struct.pack("=5I", 2, 4, 4, 1, 0).ljust(72, b"\0")  # an array of one
    return syscall("bpf", 0, attributes, len(attributes))


@attempt(39, ALL, needs=("perf",))
def perf(target: Target) -> object:
    # A software clock of the own process, without the kernel: what the usual setting leaves to all.
    attributes = struct.pack("=IIQQQQQ", 1, 112, 0, 0, 0, 0, 1 << 5 | 1 << 6).ljust(112, b"\0")
    return syscall("perf_event_open", attributes, 0, -1, -1, 0)


@attempt(39, ALL, needs=("userfaultfd",))
def userfaultfd(target: Target) -> object:
    return syscall("userfaultfd", 1)


@attempt(39, ALL, needs=("keyctl",))
def keyring(target: Target) -> object:
    return syscall("keyctl", 0, -3, 1)


@attempt(39, ALL, needs=("keyctl",))
def key(target: Target) -> object:
    return syscall("add_key", b"user", b"escape-" + target.mark.encode(), b"x", 1, -2)


@attempt(39, ALL)
def file_without_a_name(target: Target) -> object:
    return syscall("memfd_create", b"x", 0)


@attempt(39, ALL, needs=("vmsplice",))
def pages_in_a_pipe(target: Target) -> object:
    page = ctypes.create_string_buffer(4096)
    parts = (ctypes.c_size_t * 2)(ctypes.addressof(page), 4096)
    return syscall("vmsplice", os.pipe()[1], ctypes.byref(parts), 1, 0)


@attempt(39, ALL)
def a_larger_pipe(target: Target) -> object:
    return syscall("fcntl", os.pipe()[1], 1031, 1 << 18) > 1 << 16  # F_SETPIPE_SZ


@attempt(39, ALL, needs=("io_setup",))
def asynchronous_input(target: Target) -> object:
    return syscall("io_setup", 8, ctypes.byref(ctypes.c_void_p())) == 0


@attempt(39, ALL)
def an_instance_of_inotify(target: Target) -> object:
    return syscall("inotify_init1", 0) >= 0


@attempt(39, ALL, needs=("landlock",))
def rules_of_a_sandbox(target: Target) -> object:
    return syscall("landlock_create_ruleset", struct.pack("=Q", 1), 8, 0) >= 0


@attempt(39, ALL, needs=("futex-table",))
def a_table_of_futexes(target: Target) -> object:
    return syscall("prctl", 78, 1, 1 << 10, 0, 0) == 0


@attempt(39, ALL, needs=("/sys/kernel/mm/hugepages", "huge-pages"))
def huge_pages(target: Target) -> object:
    return syscall("mmap", 0, 2 << 20, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000, -1, 0)


@attempt(39, ALL, needs=("close_range",))
def descriptors_of_one_thread(target: Target) -> object:
    return syscall("close_range", 1000, 1000, 2) == 0  # CLOSE_RANGE_UNSHARE


@attempt(39, ALL, needs=("x86-64",))
def a_thread_with_descriptors_of_its_own(target: Target) -> object:
    # The thread returns to the function on its stack, and waits there until this process ends.
    libc = ctypes.CDLL(None)
    stack = (ctypes.c_void_p * 4096)()
    stack[4000] = ctypes.cast(libc.pause, ctypes.c_void_p)
    memory, folders, handlers, thread = 0x100, 0x200, 0x800, 0x10000
    return syscall("clone", memory | folders | handlers | thread, ctypes.addressof(stack) + 8 * 4000, 0, 0, 0) > 0


def _own_file(target: Target, name: str, flags: int = os.O_RDWR) -> int:
    return os.open(os.path.join(target.work, name), flags | os.O_CREAT, 0o600)


@attempt(39, ALL, needs=("file_setattr",))
def flags_of_a_file(target: Target) -> object:
    os.close(_own_file(target, "attributes"))
    path = os.path.join(target.work, "attributes").encode()
    return syscall("file_setattr", -100, path, struct.pack("=QIIII", 0x80, 0, 0, 0, 0), 24, 0) == 0


@attempt(39, ALL, needs=("file-flags",))
def flags_of_a_file_by_its_descriptor(target: Target) -> object:
    return syscall("ioctl", _own_file(target, "flags"), 0x40086602, ctypes.byref(ctypes.c_long(0x40))) == 0


@attempt(39, ALL, needs=("reserve",))
def disk_by_its_descriptor(target: Target) -> object:
    descriptor = _own_file(target, "reserved")
    syscall("ioctl", descriptor, 0x4030582A, struct.pack("@hhqqiI16x", 0, 0, 0, 32 << 20, 0, 0))
    return os.fstat(descriptor).st_blocks * 512 >= 32 << 20


_UPPER_HALF = 1 << 32
"""The kernel ignores this in arguments of 32 bits."""


@attempt(39, ALL)
def out_of_sight_by_a_larger_number(target: Target) -> object:
    return syscall("prctl", _UPPER_HALF | 4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE


@attempt(39, ALL)
def a_lease_by_a_larger_number(target: Target) -> object:
    os.close(_own_file(target, "leased"))
    return syscall("fcntl", _own_file(target, "leased", os.O_RDONLY), _UPPER_HALF | 1024, 0) == 0  # F_SETLEASE


@attempt(39, ALL)
def notice_of_changes_by_a_larger_number(target: Target) -> object:
    return syscall("fcntl", os.open(target.work, os.O_RDONLY), _UPPER_HALF | 1026, 4) == 0  # F_NOTIFY


def _machine_code(code: bytes) -> int:
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def call_i386(number: int, *words: int) -> int:
    """A system call of 32-bit programs. ``int 0x80`` takes its arguments from ebx, ecx, edx."""
    first, second, third = (*words, 0, 0, 0)[:3]
    return _machine_code(
        b"\x53\xb8%s\xbb%s\xb9%s\xba%s\xcd\x80\x5b\xc3"
        % tuple(struct.pack("=I", w) for w in (number, first, second, third))
    )


def call_x32(number: int, *words: int) -> int:
    """A system call of the x32 kind."""
    first, second, third = (*words, 0, 0, 0)[:3]
    numbers = tuple(struct.pack("=I", w) for w in (0x40000000 | number, first, second, third))
    return _machine_code(b"\xb8%s\xbf%s\xbe%s\xba%s\x0f\x05\xc3" % numbers)


def _low(content: bytes) -> int:
    """Return an address of ``content`` that 32-bit programs can have."""
    address = 0x10000000
    anonymous, fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x100000  # MAP_FIXED_NOREPLACE
    syscall("mmap", address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, anonymous | fixed, -1, 0)
    ctypes.memmove(address, content + b"\0", len(content) + 1)
    return address


@attempt(40, ALL, needs=("i386",))
def socket_of_another_architecture(target: Target) -> object:
    return call_i386(359, 2, 1, 0) >= 0


@attempt(40, ALL, needs=("i386",))
def trace_by_another_architecture(target: Target) -> object:
    return call_i386(26, 0) == 0


@attempt(40, ALL, needs=("i386",))
def signal_by_another_architecture(target: Target) -> object:
    return call_i386(37, os.getppid(), 0) == 0


@attempt(40, ALL, needs=("i386",))
def truncate_by_another_architecture(target: Target) -> object:
    path = os.path.join(target.work, "cut")
    with open(path, "w") as file:
        file.write("text")
    return call_i386(5, _low(path.encode()), os.O_TRUNC) >= 0 and os.path.getsize(path) == 0


@attempt(40, ALL, needs=("i386", "userns"))
def user_namespace_by_another_architecture(target: Target) -> object:
    return call_i386(310, _NEWUSER) == 0


@attempt(40, ALL, needs=("i386", "io_uring"))
def io_uring_by_another_architecture(target: Target) -> object:
    return call_i386(425, 2, _low(bytes(120))) >= 0


@attempt(40, ALL, needs=("x32",))
def socket_by_x32(target: Target) -> object:
    return call_x32(41, 2, 1, 0) >= 0


@attempt(40, ALL, needs=("x32",))
def trace_by_x32(target: Target) -> object:
    return call_x32(521, 0) == 0


@attempt(41, ALL, needs=("shmget",), proof="ipc:shm")
def shared_memory(target: Target) -> object:
    return syscall("shmget", target.ipc_key, 4096, 0o1666) >= 0


@attempt(41, ALL, needs=("semget",), proof="ipc:sem")
def semaphores(target: Target) -> object:
    return syscall("semget", target.ipc_key, 1, 0o1666) >= 0


@attempt(41, ALL, needs=("msgget",), proof="ipc:msg")
def messages(target: Target) -> object:
    return syscall("msgget", target.ipc_key, 0o1666) >= 0


@attempt(41, ALL, needs=("mq_open",), proof="ipc:mq")
def message_queue(target: Target) -> object:
    return syscall("mq_open", b"escape-" + target.mark.encode(), os.O_CREAT | os.O_RDWR, 0o666, 0) >= 0


_DISKS = ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/kvm", "/dev/mem")


@attempt(42, ALL, needs=("root",))
def open_a_disk(target: Target) -> object:
    opened = []
    for path in _DISKS:
        try:
            opened.append((path, os.open(path, os.O_RDONLY)))
        except OSError:
            continue
    return opened


@attempt(42, "NLP", needs=("/dev/ptmx",))
def open_a_terminal_device(target: Target) -> object:
    return os.fstat(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)).st_rdev


@attempt(42, ALL, needs=("root",))
def make_a_device(target: Target) -> object:
    os.mknod(os.path.join(target.work, "device"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return True


def _opens_to_write(paths: list[str]) -> object:
    opened = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY))
            opened.append(path)
        except OSError:
            continue
    return opened


@attempt(42, ALL, needs=("root",))
def open_settings_of_the_kernel(target: Target) -> object:
    names = ("kernel/core_pattern", "kernel/modprobe", "kernel/hostname", "vm/drop_caches")
    return _opens_to_write([*(f"/proc/sys/{name}" for name in names), "/proc/sysrq-trigger"])


@attempt(42, ALL, needs=("root", "/sys/fs/cgroup/cgroup.procs"))
def open_control_groups(target: Target) -> object:
    return _opens_to_write(["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/cgroup.subtree_control"])


def _skill_file(target: Target) -> str:
    return os.path.join(target.skill, "scripts", "run.sh")


@attempt(44, "NLP", of_worker=True)
def change_a_script(target: Target) -> object:
    os.chmod(_skill_file(target), 0o700)
    with open(_skill_file(target), "a") as file:
        return file.write("echo planted\n")


@attempt(44, "NLP", of_worker=True)
def replace_a_script(target: Target) -> object:
    os.chmod(os.path.dirname(_skill_file(target)), 0o700)
    os.unlink(_skill_file(target))
    with open(_skill_file(target), "w") as file:
        return file.write("echo planted\n")


@attempt(44, "NLP", of_worker=True)
def add_a_hook(target: Target) -> object:
    os.chmod(target.skill, 0o700)
    os.makedirs(os.path.join(target.skill, ".git", "hooks"))
    with open(os.path.join(target.skill, ".git", "hooks", "post-checkout"), "w") as file:
        return file.write("echo planted\n")


@attempt(44, "NLP", of_worker=True)
def write_through_a_hard_link_to_a_script(target: Target) -> object:
    link = os.path.join(target.work, "script")
    os.link(_skill_file(target), link)
    os.chmod(link, 0o700)
    with open(link, "a") as file:
        return file.write("echo planted\n")


@attempt(44, "NLP", of_worker=True)
def move_the_skill_away(target: Target) -> object:
    folder = os.path.dirname(target.skill)
    os.chmod(folder, 0o700)
    os.rename(target.skill, os.path.join(folder, "moved"))
    os.mkdir(target.skill)
    return True
