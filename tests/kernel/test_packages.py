"""Kernels in packages, directories and files, and the messages about what is missing."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .initramfs import archive, script
from .modules import load_order
from .packages import Kernel, KernelError, find_kernel
from .rpm import rpm_package

RELEASE = "5.14.0-9.el9"


def tree(root: Path, *, image: str = f"boot/vmlinuz-{RELEASE}", modules: str = f"lib/modules/{RELEASE}") -> Path:
    for path in (image, f"{modules}/modules.builtin"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
    return root


def driver(*depends: str) -> bytes:
    return f"\x7fELF\0license=GPL\0depends={','.join(depends)}\0retpoline=Y\0".encode()


def module(folder: Path, path: str, *depends: str) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    content = driver(*depends)
    if file.suffix == ".xz":
        content = lzma.compress(content)
    elif file.suffix == ".gz":
        content = gzip.compress(content)
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("image", "modules"),
    [
        (f"boot/vmlinuz-{RELEASE}", f"lib/modules/{RELEASE}"),
        (f"boot/vmlinuz-{RELEASE}", f"usr/lib/modules/{RELEASE}"),
        (f"lib/modules/{RELEASE}/vmlinuz", f"lib/modules/{RELEASE}"),
    ],
)
def test_a_folder_as_distributions_fill_it(image: str, modules: str, tmp_path: Path) -> None:
    found = find_kernel(str(tree(tmp_path, image=image, modules=modules)))
    assert found == Kernel(tmp_path / image, (tmp_path / modules,))
    assert found.name == RELEASE


def test_the_image_of_an_installed_kernel_has_its_modules(tmp_path: Path) -> None:
    tree(tmp_path)
    found = find_kernel(str(tmp_path / f"boot/vmlinuz-{RELEASE}"))
    assert found.modules == (tmp_path / f"lib/modules/{RELEASE}",)


def test_an_image_alone_has_all_built_in(tmp_path: Path) -> None:
    (tmp_path / "bzImage").write_text("")
    found = find_kernel(str(tmp_path / "bzImage"))
    assert (found.modules, load_order(found)) == ((), [])


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not here")
def test_packages_are_unpacked_once_and_put_together(tmp_path: Path) -> None:
    """Ubuntu has the image in one package and the modules in another."""
    for name, path in (("image", f"boot/vmlinuz-{RELEASE}"), ("modules", f"lib/modules/{RELEASE}/modules.builtin")):
        root = tmp_path / name
        for file in (root / path, root / "DEBIAN/control"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: c\n")
        subprocess.run(
            ["dpkg-deb", "--build", "--root-owner-group", root, f"{root}.deb"], check=True, capture_output=True
        )
    given = f"{tmp_path}/image.deb{os.pathsep}{tmp_path}/modules.deb"
    unpacked = tmp_path / "unpacked"
    found = find_kernel(given, unpacked=unpacked)
    assert found.image.name == f"vmlinuz-{RELEASE}"
    assert [path.name for path in found.modules] == [RELEASE]
    before = sorted(path.name for path in unpacked.iterdir())
    assert find_kernel(given, unpacked=unpacked) == found
    assert sorted(path.name for path in unpacked.iterdir()) == before
    assert len(before) == 2


@pytest.mark.parametrize("programs", [("bsdtar",), ("rpm2cpio", "cpio")], ids="-".join)
def test_rpm_packages_are_unpacked(programs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fedora and RHEL have the image and the list of built-in modules in one package, and the modules in another."""
    available = tmp_path / "bin"
    available.mkdir()
    for name in ("sh", *programs):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not on the PATH")
        (available / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(available))
    folder = f"lib/modules/{RELEASE}"
    built_in = b"kernel/drivers/virtio/virtio_pci.ko\nkernel/net/9p/9pnet_virtio.ko\n"
    core = {f"{folder}/vmlinuz": b"the image", f"{folder}/modules.builtin": built_in}
    drivers = {
        f"{folder}/kernel/fs/9p/9p.ko.xz": lzma.compress(driver("netfs")),
        f"{folder}/kernel/fs/netfs/netfs.ko.xz": lzma.compress(driver()),
        f"{folder}/kernel/fs/overlayfs/overlay.ko.xz": lzma.compress(driver()),
    }
    for name, files in (("kernel-core", core), ("kernel-modules", drivers)):
        (tmp_path / f"{name}.rpm").write_bytes(rpm_package(name, files))
    given = f"{tmp_path}/kernel-core.rpm{os.pathsep}{tmp_path}/kernel-modules.rpm"
    kernel = find_kernel(given, unpacked=tmp_path / "unpacked")
    assert kernel.image.read_bytes() == b"the image"
    assert kernel.name == RELEASE
    assert [name for name, _ in load_order(kernel)] == ["netfs", "9p", "overlay"]
    assert all(content.startswith(b"\x7fELF") for _, content in load_order(kernel))


@pytest.mark.skipif(shutil.which("bsdtar") is None, reason="bsdtar is not on the PATH")
def test_a_truncated_rpm_package_is_rejected(tmp_path: Path) -> None:
    package = tmp_path / "kernel.rpm"
    package.write_bytes(rpm_package("kernel", {f"boot/vmlinuz-{RELEASE}": os.urandom(50_000)})[:20_000])
    with pytest.raises(KernelError, match=r"kernel\.rpm cannot be unpacked: "):
        find_kernel(str(package), unpacked=tmp_path / "unpacked")
    assert list((tmp_path / "unpacked").iterdir()) == []


def test_the_newest_that_was_downloaded_is_the_default(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="there is no kernel: name one with KERNEL=FILE, or run 'make kernel'"):
        find_kernel(downloaded=tmp_path)
    (tmp_path / "old.deb").write_text("no package")
    os.utime(tmp_path / "old.deb", (1, 1))
    (tmp_path / "new.deb").write_text("no package")
    with pytest.raises(KernelError, match=r"new\.deb cannot be unpacked|dpkg-deb is not on the PATH"):
        find_kernel(downloaded=tmp_path, unpacked=tmp_path / "unpacked")


def test_what_is_no_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelError, match=f"KERNEL: {tmp_path}/none does not exist"):
        find_kernel(f"{tmp_path}/none")
    with pytest.raises(KernelError, match="has no kernel"):
        find_kernel(str(tmp_path))
    tree(tree(tmp_path), image="boot/vmlinuz-6.1.0")
    with pytest.raises(KernelError, match=r"has 2 kernels .*vmlinuz-5.*name the file of one"):
        find_kernel(str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    for name, sentence in (("a.deb", "dpkg-deb is not on the PATH"), ("a.rpm", "neither bsdtar nor rpm2cpio and cpio")):
        (tmp_path / name).write_text("")
        with pytest.raises(KernelError, match=sentence):
            find_kernel(str(tmp_path / name), unpacked=tmp_path / "unpacked")


def test_modules_are_loaded_after_those_that_they_need(tmp_path: Path) -> None:
    folder = tree(tmp_path) / f"lib/modules/{RELEASE}"
    (folder / "modules.builtin").write_text("kernel/drivers/virtio/virtio.ko\nkernel/drivers/virtio/virtio-pci.ko\n")
    module(folder, "kernel/fs/9p/9p.ko", "9pnet", "netfs")
    module(folder, "kernel/fs/netfs/netfs.ko.gz")
    module(folder, "kernel/net/9p/9pnet.ko.xz")
    module(folder, "kernel/net/9p/9pnet_virtio.ko", "virtio", "9pnet")
    module(folder, "kernel/fs/overlayfs/overlay.ko")
    order = load_order(find_kernel(str(tmp_path)))
    assert [name for name, _ in order] == ["9pnet", "9pnet_virtio", "netfs", "9p", "overlay"]
    assert all(content.startswith(b"\x7fELF") for _, content in order)


def test_a_module_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    folder = tree(tmp_path) / f"lib/modules/{RELEASE}"
    (folder / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    with pytest.raises(KernelError) as raised:
        load_order(find_kernel(str(tmp_path)))
    assert str(raised.value) == (
        f"the kernel {RELEASE} has no module 9pnet_virtio, neither built in nor in {folder} (built by "
        "CONFIG_NET_9P_VIRTIO): name the package with it too (KERNEL=IMAGE:MODULES), or take a kernel that has it"
    )


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not here")
def test_the_archive_is_one(tmp_path: Path) -> None:
    made = archive([("bin", 0o40755, b""), ("bin/odd", 0o100755, b"abc"), ("init", 0o100644, b"")])
    listed = subprocess.run(["cpio", "-itv", "--quiet"], input=made, capture_output=True, check=True)
    lines = [line.split() for line in listed.stdout.decode().splitlines()]
    assert [(line[0], line[4], line[-1]) for line in lines] == [
        ("drwxr-xr-x", "0", "bin"),
        ("-rwxr-xr-x", "3", "bin/odd"),
        ("-rw-r--r--", "0", "init"),
    ]


def test_folders_in_tmp_are_kept_and_names_are_quoted() -> None:
    text = script(["overlay"], ["/tmp/a b"], ["/usr/bin/python3", "it's"])
    keep, memory = text.index("mount --bind '/root/tmp/a b' /keep0"), text.index("tmpfs /root/tmp")
    assert keep < memory < text.index("mount --move /keep0 '/root/tmp/a b'")
    assert text.endswith("exec $b switch_root /root /usr/bin/python3 'it'\"'\"'s'\n")
