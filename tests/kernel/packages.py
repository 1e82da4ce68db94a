"""Kernel of the variable ``KERNEL``: packages, unpacked directories or an image, separated by ``:``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DOWNLOADED = CHECKOUT / ".kernel"
"""Directory of the default kernel, which ``make kernel`` downloads."""

_UNPACKED = CHECKOUT / "build/kernel/unpacked"
# Debian and Ubuntu store the image in /boot, Fedora and RHEL beside the modules.
_IMAGES = ("boot/vmlinuz*", "lib/modules/*/vmlinuz", "usr/lib/modules/*/vmlinuz", "vmlinuz*", "bzImage")
_MODULES = ("lib/modules/*", "usr/lib/modules/*")


class KernelError(Exception):
    """Kernel that cannot be started. The message is one sentence with the fix."""


@dataclass(frozen=True)
class Kernel:
    """Boot image, and the directories of its modules. No directories if all drivers are built in."""

    image: Path
    modules: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """Release in the names of its files."""
        if self.modules:
            return self.modules[0].name
        return self.image.name.removeprefix("vmlinuz-")


def find_kernel(given: str = "", *, downloaded: Path = DOWNLOADED, unpacked: Path = _UNPACKED) -> Kernel:
    """Return the kernel of ``given``, the value of ``KERNEL``. If it is empty, return the downloaded one.

    Raises :class:`KernelError` if there is not exactly one.
    """
    parts = [Path(part) for part in given.split(os.pathsep) if part]
    if not parts:
        parts = sorted(downloaded.glob("*.deb"), key=lambda path: path.stat().st_mtime)[-1:]
    if not parts:
        raise KernelError("there is no kernel: name one with KERNEL=FILE, or run 'make kernel' for Debian's")
    for part in parts:
        if not part.exists():
            raise KernelError(f"KERNEL: {part} does not exist")
    images = [path for path in parts if path.is_file() and path.suffix not in (".deb", ".rpm")]
    roots = [_unpack(path.resolve(), unpacked) for path in parts if path not in images]
    # The image of an installed kernel has its modules in the folder that is called like it.
    for path in images:
        beside = path.resolve().parent.parent / "lib/modules" / path.name.removeprefix("vmlinuz-")
        if beside.is_dir():
            return Kernel(path.resolve(), (beside,))
    images += _found(roots, _IMAGES)
    if len(images) != 1:
        what = f"{len(images)} kernels ({', '.join(map(str, images))})" if images else "no kernel"
        raise KernelError(f"KERNEL={given or parts[0]} has {what}: name the file of one, as /boot/vmlinuz-RELEASE")
    return Kernel(images[0], tuple(path for path in _found(roots, _MODULES) if path.is_dir()))


def _found(roots: Sequence[Path], patterns: Sequence[str]) -> list[Path]:
    found = {path.resolve(): path for root in roots for pattern in patterns for path in sorted(root.glob(pattern))}
    return list(found)


def _unpack(package: Path, unpacked: Path) -> Path:
    """Return the directory with the files of ``package``, which may be a directory itself."""
    if package.is_dir():
        return package
    about = package.stat()
    mark = hashlib.sha256(f"{package} {about.st_size} {about.st_mtime_ns}".encode()).hexdigest()[:12]
    folder = unpacked / f"{package.stem}-{mark}"
    if folder.is_dir():
        return folder
    unpacked.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=unpacked))
    try:
        done = subprocess.run(_unpacker(package, part), cwd=part, capture_output=True, check=False)
        if done.returncode != 0:
            raise KernelError(f"{package} cannot be unpacked: {done.stderr.decode(errors='replace').strip()}")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _unpacker(package: Path, folder: Path) -> list[str]:
    if package.suffix == ".deb":
        if shutil.which("dpkg-deb"):
            return ["dpkg-deb", "-x", str(package), str(folder)]
        raise KernelError(
            f"dpkg-deb is not on the PATH, so {package} cannot be unpacked: unpack it and name the folder"
        )
    if shutil.which("bsdtar"):
        return ["bsdtar", "-xf", str(package), "-C", str(folder)]
    if shutil.which("rpm2cpio") and shutil.which("cpio"):
        return ["sh", "-c", 'rpm2cpio "$0" | cpio -idm --quiet', str(package)]
    raise KernelError(
        f"neither bsdtar nor rpm2cpio and cpio are on the PATH, so {package} cannot be unpacked "
        "(on Debian and Ubuntu: apt install libarchive-tools)"
    )
