"""Makes the test image without an engine or a registry: ``python -m tests.k8s.image OUT.tar [--work FOLDER]``.

What the published image gets by ``deploy/image/install.sh`` on Flink's own image, this one gets by the same script in a
chroot: a Debian root with Java (debootstrap), and Flink from the ``apache-flink-libraries`` package. The archive holds
``localhost/flink-skills:test`` and ``:test-2``, which differ in the skills they bring. Needs root, debootstrap, and the
package registries; what was made once is kept in the work folder. The sizes are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.k8s.image.archive import Layer, snapshot, write_archive, write_layer
from tests.k8s.image.content import job_layer
from tests.k8s.image.root import CHECKOUT, Chroot, add_flink, make_root

REPOSITORY = "localhost/flink-skills"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main() -> int:
    """Build; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="the OCI archive to write")
    parser.add_argument("--work", type=Path, default=CHECKOUT / "build" / "test-image", help="kept between runs")
    parser.add_argument("--flink", default="2.2.1", help="the Flink version; a constraints file has to pin it")
    parser.add_argument("--wheel", type=Path, help="a wheel of flink_skills; built from the checkout without it")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("this needs root, for debootstrap and chroot")
    if shutil.which("debootstrap") is None:
        parser.error("debootstrap is missing (on Debian and Ubuntu: apt install debootstrap)")
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    layers = _layers(work, options.flink, options.wheel or _wheel(work))
    images = {}
    for tag, version in (("test", 1), ("test-2", 2)):
        own = job_layer(work, version)
        images[f"{REPOSITORY}:{tag}"] = ([*layers, own], _config())
    write_archive(options.archive, images, _ARCHITECTURES.get(platform.machine(), platform.machine()))
    sizes = [{"layer": of.title, "bytes": of.unpacked, "compressed": of.size} for of in (*layers, own)]
    print(json.dumps({"flink": options.flink, "layers": sizes, "archive": options.archive.stat().st_size}, indent=2))
    return 0


def _wheel(work: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=work) as folder:
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*pip, "-w", folder, str(CHECKOUT)], check=True)
        built = next(Path(folder).glob("*.whl"))
        return Path(shutil.copy(built, work / built.name))


def _layers(work: Path, flink: str, wheel: Path) -> list[Layer]:
    """The base, and a layer for each step of the install script."""
    base = make_root(work)
    root = work / "image"
    if root.exists():
        shutil.rmtree(root)
    subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
    add_flink(root, work, flink)
    chroot = Chroot(root)
    layers = [write_layer("Debian, Java and Flink (stands for Flink's image)", root, {}, work / "base.tar.gz")]
    constraints = [name for path in sorted(CHECKOUT.glob("constraints*.txt")) for name in ("--constraints", path.name)]
    steps: dict[str, list[str]] = {
        "packages": [],
        "venv": ["--wheel", wheel.name, *constraints],
        "finish": [],
    }
    for step, arguments in steps.items():
        if step == "venv":
            # The Dockerfile does this in a stage whose tools do not ship: what is before the snapshot is in no layer.
            chroot.install("packages", "python3-venv")
        before = snapshot(root)
        chroot.install(step, *arguments, files=[wheel, *CHECKOUT.glob("constraints*.txt")] if step == "venv" else [])
        layers.append(write_layer(f"install.sh {step}", root, before, work / f"{step}.tar.gz"))
    chroot.install("check", user=9999)
    return layers


def _config() -> dict[str, object]:
    return {
        "User": "9999:9999",
        "WorkingDir": "/opt/flink",
        "Entrypoint": ["/docker-entrypoint.sh"],
        "Cmd": ["help"],
        "Env": [f"{name}={value}" for name, value in Chroot.environment().items()],
    }


if __name__ == "__main__":
    sys.exit(main())
