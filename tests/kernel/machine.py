"""Virtual machine with another Linux kernel and the host's files, in which commands run.

Writes go to memory and are lost with the machine, except for files in ``/results``. The only network is loopback.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.kit.outcomes import Run

from .initramfs import PROBLEM, initramfs
from .packages import CHECKOUT, Kernel, KernelError, find_kernel

USER = 9999
"""Unprivileged user: the one of Flink's images, without an entry in ``/etc/passwd``."""

_QEMU = "qemu-system-x86_64"
_TAIL = 3_000  # characters of the console that a message quotes
_SHARE = "local,security_model=none,multidevs=remap"


class MachineError(Exception):
    """Machine that ended without a result. The message quotes its console."""


@dataclass(frozen=True)
class Setting:
    """User of the command, and whether unprivileged users can create user namespaces."""

    uid: int = 0
    user_namespaces: bool = True

    @property
    def name(self) -> str:
        return f"{'user' if self.uid else 'root'}-{'namespaces' if self.user_namespaces else 'no-namespaces'}"


def run(
    *command: str,
    kernel: Kernel | None = None,
    setting: Setting | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 600.0,
    show: bool = False,
) -> Run:
    """Run ``command`` in a new machine, in the checkout.

    ``python`` is the interpreter of the caller. ``show`` prints the output instead of returning it.

    Raises:
        subprocess.TimeoutExpired: The machine was terminated after ``timeout`` seconds. It has the output so far.
        MachineError: The machine ended before the command did.
        KernelError: The kernel does not exist or has no driver for the host's files.
    """
    kernel = kernel or find_kernel(os.environ.get("KERNEL", ""))
    setting = setting or Setting()
    folder = Path(tempfile.mkdtemp(prefix="kernel-"))
    results = folder / "results"
    try:
        results.mkdir()
        results.chmod(0o1777)
        _write_order(results, command, setting, environment or {})
        program = (os.path.realpath(sys.executable), "-I", "-S", str(Path(__file__).with_name("first.py")))
        kept = _outermost(path for path in _folders() if path.is_relative_to("/tmp"))
        (folder / "initramfs").write_bytes(initramfs(kernel, Path(shutil.which("busybox") or ""), kept, program))
        said = folder / "output"
        with said.open("wb") as file:
            ended = subprocess.run(
                _machine(kernel, folder),
                stdin=subprocess.DEVNULL,
                stdout=None if show else file,
                stderr=subprocess.PIPE,
                timeout=timeout,
                check=False,
                preexec_fn=_end_with_parent,
            )
        output = said.read_text(errors="replace")
        left = {path.name: path.read_bytes() for path in results.iterdir() if path.is_file()}
        if "exit_code" not in left:
            console = (folder / "console").read_text(errors="replace") if (folder / "console").exists() else ""
            raise MachineError(_why(kernel, console, left, output[-_TAIL:] + ended.stderr.decode(errors="replace")))
        return Run(int(left["exit_code"]), output, left)
    except subprocess.TimeoutExpired as late:
        late.output = said.read_bytes()
        raise
    finally:
        shutil.rmtree(folder)


def _write_order(results: Path, command: tuple[str, ...], setting: Setting, environment: Mapping[str, str]) -> None:
    order = {
        "command": command,
        "cwd": str(CHECKOUT),
        "uid": setting.uid,
        "user_namespaces": setting.user_namespaces,
        "passable": _passable(),
        "environment": {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/tmp/home",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONUNBUFFERED": "1",
            "TESTS_SLOWNESS": "10" if _accelerator() == "tcg" else "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
            **environment,
        },
    }
    (results / "machine.json").write_text(json.dumps(order))


def _accelerator() -> str:
    """Return qemu's accelerator: ``tcg`` emulates the CPU on any host, ``kvm`` needs ``/dev/kvm``."""
    return os.environ.get("KERNEL_ACCEL", "tcg")


def _machine(kernel: Kernel, folder: Path) -> list[str]:
    return [
        *(_QEMU, "-accel", _accelerator(), "-cpu", "max", "-smp", str(os.cpu_count() or 1)),
        *("-m", os.environ.get("KERNEL_MEMORY", "4096"), "-display", "none", "-nodefaults", "-no-reboot"),
        *("-kernel", str(kernel.image), "-initrd", str(folder / "initramfs")),
        *("-append", "console=ttyS0 8250.nr_uarts=4 quiet panic=-1 rdinit=/init"),
        # The first serial port has the console of the kernel, the second one the output of the command.
        *("-serial", f"file:{folder / 'console'}", "-serial", "stdio"),
        *("-fsdev", f"{_SHARE},id=files,path=/,readonly=on", "-device", "virtio-9p-pci,fsdev=files,mount_tag=files"),
        *("-fsdev", f"{_SHARE},id=results,path={folder / 'results'}"),
        *("-device", "virtio-9p-pci,fsdev=results,mount_tag=results"),
    ]


def _why(kernel: Kernel, console: str, left: Mapping[str, bytes], said: str) -> str:
    if "problem" in left:
        return f"the machine with {kernel.name} could not start the command: {left['problem'].decode()}"
    told = [line.partition(PROBLEM)[2].strip() for line in console.splitlines() if PROBLEM in line]
    if told:
        return f"the machine with {kernel.name} did not get as far as the command: {told[0]}"
    return f"the machine with {kernel.name} ended without a result: {said.strip()} {console.strip()[-_TAIL:]}"


def _folders() -> list[Path]:
    """Return the directories of Python, its packages and the checkout, with links resolved."""
    python = Path(sys.executable)
    named = (CHECKOUT, Path(sys.prefix), Path(sys.base_prefix), python.parent, python.resolve().parent)
    return sorted({path.resolve() for path in named})


def _outermost(folders: Iterable[Path]) -> list[str]:
    kept: list[Path] = []
    for folder in sorted(folders):
        if not any(folder.is_relative_to(other) for other in kept):
            kept.append(folder)
    return [str(folder) for folder in kept]


def _passable() -> list[str]:
    """Return these directories and all above them: a user needs access to each."""
    return sorted({str(parent) for path in _folders() for parent in (path, *path.parents)})


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@cache
def problem() -> str:
    """:func:`find_problem`, asked once in a process."""
    return find_problem()


def find_problem() -> str:
    """Return the reason why this host cannot start a machine, with the fix. Return "" if it can."""
    if platform.machine() != "x86_64":
        return f"the virtual machine emulates x86-64 and cannot run the programs of {platform.machine()}"
    if shutil.which(_QEMU) is None:
        return f"{_QEMU} is not on the PATH (on Debian and Ubuntu: apt install qemu-system-x86)"
    busybox = shutil.which("busybox")
    if busybox is None:
        return "busybox is not on the PATH (on Debian and Ubuntu: apt install busybox-static)"
    with Path(busybox).open("rb") as file:
        if b"/ld-linux" in file.read(2048):
            return f"{busybox} is not linked statically (on Debian and Ubuntu: apt install busybox-static)"
    try:
        find_kernel(os.environ.get("KERNEL", ""))
    except KernelError as error:
        return str(error)
    return ""
