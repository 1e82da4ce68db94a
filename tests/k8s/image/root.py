"""A root file system that stands for Flink's image, and commands in it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
INSTALL = CHECKOUT / "deploy" / "image" / "install.sh"
_SUITE = "bookworm"
_MIRROR = "http://deb.debian.org/debian"
# How this machine reaches the package registries.
_PASSED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "http_proxy", "https_proxy", "no_proxy")
# The part of Flink's entry point that every command of a pod needs: Flink's class path.
_ENTRY = """#!/bin/bash
if [ "$1" = help ]; then echo 'give a command, such as kubernetes-jobmanager.sh'; exit 0; fi
export _FLINK_HOME_DETERMINED=true
. "$FLINK_HOME/bin/config.sh"
FLINK_CLASSPATH=$(manglePathList "$(constructFlinkClassPath):$INTERNAL_HADOOP_CLASSPATHS")
export FLINK_CLASSPATH
exec "$@"
"""


def make_root(work: Path) -> Path:
    """Debian with a Java 17, in the work folder; made once."""
    root = work / "debian"
    if (work / "debian.made").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    included = "openjdk-17-jre-headless,ca-certificates"
    command = ["debootstrap", "--variant=minbase", f"--include={included}", _SUITE, str(root), _mirror()]
    with (work / "debootstrap.log").open("w") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    for pattern in ("var/cache/apt/archives/*.deb", "var/lib/apt/lists/*", "usr/share/doc/*", "usr/share/locale/*"):
        for path in root.glob(pattern):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    with (root / "etc/passwd").open("a") as users, (root / "etc/group").open("a") as groups:
        users.write("flink:x:9999:9999::/opt/flink:/bin/bash\n")
        groups.write("flink:x:9999:\n")
    (work / "debian.made").touch()
    return root


def _mirror() -> str:
    """The mirror that this machine uses, if it is a Debian of the same release."""
    for path in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        if path.exists() and _SUITE in path.read_text():
            found = re.search(r"^(?:URIs:|deb(?: \[.*?\])?) +(\S+)", path.read_text(), re.MULTILINE)
            if found:
                return found[1]
    return _MIRROR


def add_flink(root: Path, work: Path, version: str) -> None:
    """The distribution that the packages of PyFlink carry, as the image's FLINK_HOME, owned by Flink's user."""
    unpacked = work / f"flink-{version}"
    if not unpacked.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--disable-pip-version-check"]
        with tempfile.TemporaryDirectory(dir=work) as folder:
            packages = [f"{name}=={version}" for name in ("apache-flink-libraries", "apache-flink")]
            subprocess.run([*pip, "--target", folder, *packages], check=True)
            shutil.move(Path(folder) / "pyflink", unpacked)
    home = root / "opt/flink"
    home.mkdir(parents=True)
    for name in ("bin", "conf", "lib", "licenses", "log", "opt", "plugins"):
        shutil.copytree(unpacked / name, home / name, symlinks=True)
    (home / "usrlib").mkdir()
    for program in (home / "bin").iterdir():
        program.chmod(0o755)
    subprocess.run(["chown", "-R", "9999:9999", str(home)], check=True)
    entry = root / "docker-entrypoint.sh"
    entry.write_text(_ENTRY)
    entry.chmod(0o755)


class Chroot:
    """Runs steps of the install script in ``root``, in a mount namespace of its own that goes with them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @staticmethod
    def environment() -> dict[str, str]:
        """What Flink's image and the Dockerfile set."""
        java = f"/usr/lib/jvm/java-17-openjdk-{'arm64' if os.uname().machine == 'aarch64' else 'amd64'}"
        path = "/opt/flink-skills/venv/bin:/opt/flink/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "FLINK_HOME": "/opt/flink", "JAVA_HOME": java, "LANG": "C.UTF-8"}

    def install(self, *arguments: str, files: Sequence[Path] = (), user: int = 0) -> None:
        """Run ``install.sh ARGUMENTS`` with ``files`` in its working folder, as ``user``."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            for file in (INSTALL, *files):
                shutil.copy(file, folder)
            certificates = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
            shutil.copy(certificates, Path(folder) / "certificates.pem")
            shutil.copy("/etc/resolv.conf", Path(folder) / "resolv.conf")
            environment = {
                **self.environment(),
                **{name: os.environ[name] for name in _PASSED if name in os.environ},
                **({"PIP_CERT": "/run/install/certificates.pem"} if user == 0 else {}),
                "HOME": "/tmp",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            at = shlex.quote(str(self._root))
            script = [
                "set -e",
                f"mount --rbind /dev {at}/dev",
                f"mount -t proc proc {at}/proc",
                f"mount -t tmpfs tmpfs {at}/run",
                f"mount -t tmpfs tmpfs {at}/tmp",
                f"mkdir {at}/run/install",
                f"mount --bind {shlex.quote(folder)} {at}/run/install",
                f"[ ! -e {at}/etc/resolv.conf ] || mount --bind {shlex.quote(folder)}/resolv.conf {at}/etc/resolv.conf",
                f"exec chroot --userspec={user}:{user} {at} "
                + shlex.join(["bash", "-c", 'cd /run/install && exec bash ./install.sh "$@"', "-", *arguments]),
            ]
            subprocess.run(
                ["unshare", "--mount", "--propagation", "private", "bash", "-c", "\n".join(script)],
                check=True,
                env=environment,
            )
