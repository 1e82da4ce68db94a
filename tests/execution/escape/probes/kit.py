"""How attempts are declared, and how a command runs them.

An attempt is a function of a :class:`Target`. It returns evidence that it got through, or nothing, or it raises the
``OSError`` that stopped it. Any other error is a fault of the attempt itself. Attempts run in a process of their own,
so that a filter that kills is seen as one that stops.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["ATTEMPTS", "UPPER_BITS", "Attempt", "Target", "attempt", "filter_and_listen", "run_all", "syscall"]

_WITHIN_SECONDS = 15

UPPER_BITS = 1 << 32
"""Bits of a register that the kernel ignores in an ``int`` argument, and a filter of system calls sees."""


@dataclass
class Target:
    """What there is to attack, as seen from outside; paths are absolute."""

    outside: str
    canary: str
    canary_text: str
    token: str
    home: str
    files: dict[str, str]
    new: dict[str, str]
    work: str
    out: str
    skill: str
    workspace: str
    other_work: str
    other_file: str
    other_text: str
    worker: int
    worker_group: int
    worker_fd: int
    secret_name: str
    secret: str
    memory: int
    memory_text: str
    writable_memory: int
    victims: dict[str, int]
    ports: dict[str, int]
    paths: dict[str, str]
    address: str
    ipc_key: int
    mark: str
    setuid_program: str


@dataclass(frozen=True)
class Attempt:
    """One attempt of a row.

    ``stopped`` are the letters of the levels that stop it: N(AMESPACE), L(ANDLOCK), P(ARTIAL), H(YGIENE). ``needs``
    are the facts of the machine without which it cannot succeed, whatever isolates. ``proof`` says who judges:
    ``inside``, or what is looked at from outside afterwards.
    """

    row: int
    name: str
    run: Callable[[Target], object]
    stopped: str
    needs: tuple[str, ...] = ()
    proof: str = "inside"
    of_worker: bool = False


ATTEMPTS: dict[str, Attempt] = {}


def attempt(
    row: int,
    stopped: str,
    *,
    needs: tuple[str, ...] = (),
    proof: str = "inside",
    of_worker: bool = False,
) -> Callable[[Callable[[Target], object]], Callable[[Target], object]]:
    """Declare an attempt of ``row``; ``of_worker`` says that it needs the worker to be of the command's user."""

    def declare(run: Callable[[Target], object]) -> Callable[[Target], object]:
        name = run.__name__
        if name in ATTEMPTS:
            raise ValueError(f"two attempts are named {name}")
        ATTEMPTS[name] = Attempt(row, name, run, stopped, needs, proof, of_worker)
        return run

    return declare


@dataclass
class _Verdict:
    escaped: bool = False
    detail: str = ""
    broken: bool = False
    fields: tuple[str, ...] = field(default=("escaped", "detail", "broken"), repr=False)

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.fields}


def run_all(target: Target, names: list[str]) -> dict[str, dict[str, object]]:
    """Run the attempts ``names``, one after the other; what became of each."""
    return {name: _run_apart(ATTEMPTS[name], target).to_json() for name in names}


def _run_apart(one: Attempt, target: Target) -> _Verdict:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_WITHIN_SECONDS)
        os.write(writer, json.dumps(_run_here(one, target).to_json()).encode())
        os._exit(0)
    os.close(writer)
    said = b""
    while chunk := os.read(reader, 65_536):
        said += chunk
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if said:
        given = json.loads(said)
        return _Verdict(given["escaped"], given["detail"], given["broken"])
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGALRM:
        return _Verdict(broken=True, detail=f"did not end within {_WITHIN_SECONDS} s")
    return _Verdict(detail=f"killed by signal {number}", broken=number == 0)


def _run_here(one: Attempt, target: Target) -> _Verdict:
    try:
        evidence = one.run(target)
    except OSError as error:
        return _Verdict(detail=f"{type(error).__name__}: {error}")
    except Exception as error:
        return _Verdict(broken=True, detail=f"{type(error).__name__}: {error}")
    return _Verdict(bool(evidence), str(evidence)[:300] if evidence else "nothing came of it")


# x86-64 and arm64 (the generic table).
_NUMBERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "shmget": (29, 194),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "memfd_create": (319, 279),
    "landlock_create_ruleset": (444, 444),
    "vmsplice": (278, 75),
    "io_setup": (206, 0),
    "inotify_init1": (294, 26),
    "file_setattr": (469, 469),
    "close_range": (436, 436),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "prctl": (157, 167),
    "mmap": (9, 222),
    "capget": (125, 90),
    "mknodat": (259, 33),
    "clone": (56, 220),
    "gettid": (186, 178),
    "openat": (257, 56),
    "openat2": (437, 437),
    "seccomp": (317, 277),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "tgkill": (234, 131),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def syscall(name: str, *arguments: object) -> int:
    """Call the kernel past the library; raises the ``OSError`` of what it says. Whole numbers, bytes, ctypes."""
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = int(_libc.syscall(ctypes.c_long(_NUMBERS[name][column]), *words))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def filter_and_listen(number: int) -> int:
    """Have the calls ``number`` of this process wait for an answer, and return the descriptor that receives them."""
    load, jump, give = 0x20, 0x15, 0x06
    program = b"".join(
        struct.pack("=HBBI", code, if_true, if_false, word)
        for code, if_true, if_false, word in (
            (load, 0, 0, 0),  # the number of the call
            (jump, 0, 1, number & 0xFFFF_FFFF),
            (give, 0, 0, 0x7FC0_0000),  # SECCOMP_RET_USER_NOTIF
            (give, 0, 0, 0x7FFF_0000),  # SECCOMP_RET_ALLOW
        )
    )
    syscall("prctl", 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    return syscall("seccomp", 1, 8, ctypes.byref(_Filter(len(program) // 8, program)))
