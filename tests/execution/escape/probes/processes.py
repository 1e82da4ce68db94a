"""Rows 12 to 17 and 26: the worker, its launcher, and other processes of the user."""

# Attempts are system calls: what a library does around them would be in the way.
from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import stat
import struct
from collections.abc import Callable

from tests.execution.escape.probes.kit import UPPER_BITS, Target, attempt, filter_and_listen, syscall

_F_SETSIG, _F_SETOWN_EX = 10, 15
_F_OWNER_PID = 1
_FIOSETOWN, _SIOCSPGRP, _FIOASYNC = 0x8901, 0x8902, 0x5452
_SIGINFO_BYTES = 128
_SI_QUEUE = -1

LAUNCHER = os.getppid()
"""What started the command: attempts run in children of the command."""

# Taken before anything here opens one; the first three are the command's own.
_OPEN_AT_START: list[int] = []


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


_OPEN_AT_START += [number for number in range(3, 1024) if _is_open(number)]


def _environ_of(pid: object) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


@attempt(12, "NLP", of_worker=True)
def read_the_environment_of_the_worker(target: Target) -> object:
    return target.secret.encode() in _environ_of(target.worker)


@attempt(12, "NLP", of_worker=True)
def read_the_environment_of_everybody(target: Target) -> object:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if target.secret.encode() in _environ_of(name):
                    found.append(name)
            except OSError:
                continue
    return found


@attempt(12, "NLPH")
def read_the_secret_in_the_environment_of_the_launcher(target: Target) -> object:
    return target.secret.encode() in _environ_of(LAUNCHER)


@attempt(13, "NLPH")
def find_the_secret_in_the_own_environment(target: Target) -> object:
    if os.environ.get("ESCAPE_ALLOWED") != "yes":
        raise RuntimeError("a variable that was given is missing")
    return [name for name, value in os.environ.items() if target.secret in value or name == target.secret_name]


@attempt(14, "NLP", needs=("ptrace",), of_worker=True)
def read_the_memory_of_the_worker(target: Target) -> object:
    with open(f"/proc/{target.worker}/mem", "rb", buffering=0) as file:
        file.seek(target.memory)
        return file.read(len(target.memory_text)) == target.memory_text.encode()


@attempt(14, "NLP", needs=("ptrace",), of_worker=True, proof="memory")
def write_the_memory_of_the_worker(target: Target) -> object:
    with open(f"/proc/{target.worker}/mem", "r+b", buffering=0) as file:
        file.seek(target.writable_memory)
        return file.write(b"planted")


@attempt(14, "NLP", needs=("ptrace",), of_worker=True)
def open_the_memory_of_another_process(target: Target) -> object:
    # The command is the parent. All other processes hold the namespaces or are outside.
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        if int(name) not in (os.getpid(), os.getppid()):
            try:
                os.close(os.open(f"/proc/{name}/mem", os.O_RDWR))
                found.append(name)
            except OSError:
                continue
    return found


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


@attempt(14, "NLPH", needs=("ptrace", "process_vm_readv"), of_worker=True)
def copy_the_memory_of_the_worker(target: Target) -> object:
    size = len(target.memory_text)
    buffer = ctypes.create_string_buffer(size)
    local = _Iovec(ctypes.addressof(buffer), size)
    remote = _Iovec(target.memory, size)
    syscall("process_vm_readv", target.worker, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return buffer.raw == target.memory_text.encode()


@attempt(15, "NLPH", needs=("ptrace",), of_worker=True)
def seize_the_worker(target: Target) -> object:
    syscall("ptrace", 0x4206, target.worker, 0, 0)  # PTRACE_SEIZE; ending this process detaches
    return True


@attempt(15, "NLPH", needs=("ptrace", "pidfd_getfd"), of_worker=True)
def take_a_descriptor_of_the_worker(target: Target) -> object:
    pidfd = syscall("pidfd_open", target.worker, 0)
    return os.pread(syscall("pidfd_getfd", pidfd, target.worker_fd, 0), 100, 0)


@attempt(15, "NLPH", needs=("ptrace",))
def trace_the_launcher(target: Target) -> object:
    syscall("ptrace", 0x4206, LAUNCHER, 0, 0)
    return True


@attempt(15, "NLPH", needs=("kcmp", "ptrace"), of_worker=True)
def compare_with_the_worker(target: Target) -> object:
    return syscall("kcmp", os.getpid(), target.worker, 0, 0, 0) >= 0


@attempt(16, "NL", of_worker=True)
def see_whether_the_worker_lives(target: Target) -> object:
    os.kill(target.worker, 0)
    return True


@attempt(16, "NL", of_worker=True)
def signal_the_group_of_the_worker(target: Target) -> object:
    os.kill(-target.worker_group, signal.SIGCONT)
    return True


@attempt(16, "NL", proof="ended:term")
def terminate_a_process_of_the_same_user(target: Target) -> object:
    os.kill(target.victims["term"], signal.SIGTERM)
    return True


@attempt(16, "NL", proof="ended:quit")
def end_a_group_of_the_same_user(target: Target) -> object:
    os.kill(-target.victims["quit"], signal.SIGQUIT)
    return True


@attempt(16, "NL", proof="ended:io")
def have_the_kernel_signal_another_process(target: Target) -> object:
    # Whoever owns a pipe is told of what comes in, by a signal of choice.
    reader, writer = os.pipe()
    fcntl.fcntl(reader, _F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(reader, fcntl.F_SETOWN, target.victims["io"])
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    return os.write(writer, b"x")


@attempt(16, "NL", proof="ended:io-group")
def have_the_kernel_signal_a_group(target: Target) -> object:
    reader, writer = os.pipe()
    fcntl.fcntl(reader, _F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(reader, fcntl.F_SETOWN, -target.victims["io-group"])
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    return os.write(writer, b"x")


@attempt(16, "NL", proof="ended:io-extended")
def have_the_kernel_signal_an_owner_by_kind(target: Target) -> object:
    reader, writer = os.pipe()
    fcntl.fcntl(reader, _F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(reader, _F_SETOWN_EX, struct.pack("=ii", _F_OWNER_PID, target.victims["io-extended"]))
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    return os.write(writer, b"x")


@attempt(16, "NL", proof="ended:io-upper")
def have_the_kernel_signal_with_upper_bits(target: Target) -> object:
    reader, writer = os.pipe()
    fcntl.fcntl(reader, _F_SETSIG, signal.SIGTERM)
    syscall("fcntl", reader, fcntl.F_SETOWN | UPPER_BITS, target.victims["io-upper"])
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    return os.write(writer, b"x")


def _signal_the_owner_of_a_socket(request: int, process: int) -> int:
    ours, theirs = socket.socketpair()
    fcntl.ioctl(ours, request, struct.pack("=i", process))
    fcntl.ioctl(ours, _FIOASYNC, struct.pack("=i", 1))
    return theirs.send(b"x")


@attempt(16, "NL", proof="ended:socket")
def have_a_socket_signal_another_process(target: Target) -> object:
    return _signal_the_owner_of_a_socket(_FIOSETOWN, target.victims["socket"])


@attempt(16, "NL", proof="ended:socket-group")
def have_a_socket_signal_by_its_other_name(target: Target) -> object:
    return _signal_the_owner_of_a_socket(_SIOCSPGRP, target.victims["socket-group"])


@attempt(16, "NL", proof="ended:thread")
def terminate_by_the_number_of_a_thread(target: Target) -> object:
    return syscall("tkill", target.victims["thread"], signal.SIGTERM) == 0


@attempt(16, "NL", proof="ended:descriptor")
def terminate_by_descriptor(target: Target) -> object:
    process = syscall("pidfd_open", target.victims["descriptor"], 0)
    return syscall("pidfd_send_signal", process, signal.SIGTERM, 0, 0) == 0


def _queued(number: int) -> bytes:
    return struct.pack("=iii", number, 0, _SI_QUEUE).ljust(_SIGINFO_BYTES, b"\0")


@attempt(16, "NL", proof="ended:queue")
def queue_a_signal(target: Target) -> object:
    return syscall("rt_sigqueueinfo", target.victims["queue"], signal.SIGTERM, _queued(signal.SIGTERM)) == 0


@attempt(16, "NL", proof="ended:queue-thread")
def queue_a_signal_for_a_thread(target: Target) -> object:
    victim = target.victims["queue-thread"]
    return syscall("rt_tgsigqueueinfo", victim, victim, signal.SIGTERM, _queued(signal.SIGTERM)) == 0


@attempt(16, "NL", proof="ended:upper")
def terminate_with_upper_bits(target: Target) -> object:
    return syscall("kill", target.victims["upper"] | UPPER_BITS, signal.SIGTERM) == 0


@attempt(16, "NL", needs=("listener",), proof="ended:answer")
def answer_the_own_calls(target: Target) -> object:
    # The process that receives a call can let the kernel execute it.
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        try:
            listener = filter_and_listen({"x86_64": 62, "aarch64": 129}[os.uname().machine])
            socket.send_fds(theirs, [b"x"], [listener])
            os.kill(target.victims["answer"], signal.SIGTERM)
        finally:
            os._exit(0)
    theirs.close()
    received = socket.recv_fds(ours, 1, 1)[1]
    if not received:
        return False
    call = bytearray(80)
    fcntl.ioctl(received[0], 0xC0502100, call)  # receive
    fcntl.ioctl(received[0], 0xC0182101, bytearray(call[:8] + struct.pack("=qiI", 0, 0, 1)))  # let it through
    os.wait()
    return True


@attempt(16, "NL", of_worker=True)
def see_whether_the_launcher_lives(target: Target) -> object:
    # In a process namespace of its own the first process is nobody else's.
    if LAUNCHER <= 1:
        return False
    os.kill(LAUNCHER, 0)
    return True


@attempt(16, "NL", of_worker=True)
def signal_a_thread_of_the_worker(target: Target) -> object:
    syscall("tgkill", target.worker, target.worker, signal.SIGCONT)
    return True


@attempt(16, "NL", of_worker=True)
def signal_by_descriptor(target: Target) -> object:
    syscall("pidfd_send_signal", syscall("pidfd_open", target.worker, 0), signal.SIGCONT, 0, 0)
    return True


@attempt(17, "NLP", proof="made")
def ask_a_virtual_machine_to_listen(target: Target) -> object:
    with open(target.new["ask_a_virtual_machine_to_listen"], "w"):
        return True


@attempt(17, "NLPH", proof="heard:java")
def attach_to_a_virtual_machine(target: Target) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(target.paths["java"])
        return client.send(b"attach")


def _holds(target: Target) -> Callable[[int], bool]:
    def look(descriptor: int) -> bool:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        return target.canary_text.encode() in os.pread(descriptor, 4096, 0)

    return look


@attempt(26, "NLPH")
def read_an_inherited_descriptor(target: Target) -> object:
    return [number for number in _OPEN_AT_START if _holds(target)(number)]


@attempt(26, "NLPH")
def find_any_inherited_descriptor(target: Target) -> object:
    return _OPEN_AT_START


@attempt(34, "NLPH", of_worker=True)
def lower_the_limits_of_the_worker(target: Target) -> object:
    soft, hard = resource.prlimit(target.worker, resource.RLIMIT_CORE)
    resource.prlimit(target.worker, resource.RLIMIT_CORE, (0, hard))
    return f"from {soft}"


@attempt(34, "NLPH", of_worker=True)
def lower_the_priority_of_the_worker(target: Target) -> object:
    os.setpriority(os.PRIO_PROCESS, target.worker, os.getpriority(os.PRIO_PROCESS, target.worker))
    return True


@attempt(34, "NLPH", of_worker=True)
def bind_the_worker_to_a_processor(target: Target) -> object:
    os.sched_setaffinity(target.worker, os.sched_getaffinity(target.worker))
    return True


@attempt(34, "NLP", of_worker=True)
def offer_the_worker_to_the_memory_killer(target: Target) -> object:
    path = f"/proc/{target.worker}/oom_score_adj"
    with open(path) as file:
        score = file.read()
    with open(path, "w") as file:
        return file.write(score)


@attempt(34, "NLP", of_worker=True)
def spare_itself_from_the_memory_killer(target: Target) -> object:
    for score in ("1000", "999"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(score)
    return score


@attempt(34, "NLPH", needs=("root",))
def raise_the_own_priority(target: Target) -> object:
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    return True
