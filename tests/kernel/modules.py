"""Modules of a kernel that the virtual machine requires, in load order."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
from pathlib import Path

from .packages import Kernel, KernelError

NEEDED = {
    "virtio_pci": "CONFIG_VIRTIO_PCI",
    "9pnet_virtio": "CONFIG_NET_9P_VIRTIO",
    "9p": "CONFIG_9P_FS",
    "overlay": "CONFIG_OVERLAY_FS",
}
"""Modules that mount the host's files, and the settings of a kernel that build them."""

_DEPENDS = re.compile(rb"(?:\A|\0)depends=([\w,-]*)\0")
_FILE = re.compile(r"(.+)\.ko(\.(?:xz|gz|zst))?")


def load_order(kernel: Kernel) -> list[tuple[str, bytes]]:
    """Return names and contents of the modules to load, each after its dependencies. Omit built-in ones.

    Raises :class:`KernelError` if a required module is missing.
    """
    if not kernel.modules:
        return []
    built_in: set[str] = set()
    files: dict[str, Path] = {}
    for folder in kernel.modules:
        listed = folder / "modules.builtin"
        if listed.is_file():
            built_in |= {_name(Path(line)) for line in listed.read_text().splitlines()}
        files |= {_name(path): path for path in folder.rglob("*.ko*") if _FILE.fullmatch(path.name)}
    order: dict[str, bytes] = {}

    def add(name: str, why: str) -> None:
        if name in order or name in built_in:
            return
        if name not in files:
            raise KernelError(
                f"the kernel {kernel.name} has no module {name}, neither built in nor in {kernel.modules[0]} ({why}): "
                "name the package with it too (KERNEL=IMAGE:MODULES), or take a kernel that has it"
            )
        content = _content(files[name])
        depends = _DEPENDS.search(content)
        for other in depends[1].decode().split(",") if depends else []:
            if other:
                add(other.replace("-", "_"), f"{name} needs it")
        order[name] = content

    for name, setting in NEEDED.items():
        add(name, f"built by {setting}")
    return list(order.items())


def _name(path: Path) -> str:
    found = _FILE.fullmatch(path.name)
    return (found[1] if found else path.name).replace("-", "_")


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        if shutil.which("zstd") is None:
            raise KernelError(
                f"zstd is not on the PATH, so {path} cannot be read (on Debian and Ubuntu: apt install zstd)"
            )
        return subprocess.run(["zstd", "-dcq", str(path)], capture_output=True, check=True).stdout
    return data
