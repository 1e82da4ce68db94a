"""``pin.sh``, ``build.sh`` and ``install.sh``, with programs that stand for docker and for what needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hatch_version import RELEASE

IMAGE = Path(__file__).resolve().parents[2] / "deploy" / "image"
DIGEST = f"sha256:{'ab' * 32}"


class Scripts:
    """The scripts in a checkout of their own."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "deploy" / "image"
        self.home = folder / "flink"
        self.bin = folder / "bin"
        self.skills_home = folder / "flink-skills"
        shutil.copytree(IMAGE, self.image)
        for path in (self.bin, self.home / "lib", self.home / "opt", self.home / "conf"):
            path.mkdir(parents=True)
        shutil.copy(IMAGE.parents[1] / "hatch_version.py", folder)

    def program(self, name: str, script: str) -> None:
        """Put a program in front of the PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the folder."""
        return subprocess.run(
            ["bash", str(self.image / script), *arguments],
            env={
                "PATH": f"{self.bin}:{os.environ['PATH']}",
                "FLINK_HOME": str(self.home),
                "FLINK_SKILLS_HOME": str(self.skills_home),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def flink(self, version: str) -> None:
        """Make the Flink home look like that of a version."""
        (self.home / "lib" / f"flink-dist-{version}.jar").touch()
        (self.home / "opt" / f"flink-python-{version}.jar").touch()
        (self.home / "opt" / f"flink-s3-fs-presto-{version}.jar").touch()
        (self.home / "conf" / "config.yaml").write_text("parallelism.default: 1\n")
        (self.home / "conf" / "log4j-console.properties").write_text("rootLogger.level = INFO\n")


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


def test_build_refuses_an_image_that_is_not_pinned(scripts: Scripts) -> None:
    scripts.program("docker", 'echo "built $*"')
    done = scripts.run("build.sh")
    assert done.returncode == 1 and "built" not in done.stdout
    assert "docker.io/library/flink:2.2.1-java17 is not in base.lock: run deploy/image/pin.sh" in done.stderr


def test_the_shipped_lock_holds_only_digests() -> None:
    lines = [line.split() for line in (IMAGE / "base.lock").read_text().splitlines() if line and line[0] != "#"]
    for line in lines:
        assert len(line) == 2 and line[1].startswith("sha256:") and len(line[1]) == len(DIGEST), line


def test_pin_writes_what_build_takes(scripts: Scripts) -> None:
    scripts.program("docker", f'case "$*" in *inspect*) echo {DIGEST};; *build*) echo "built $*";; esac')
    for _ in range(2):  # again: one line per image
        assert scripts.run("pin.sh").returncode == 0
    lock = (scripts.image / "base.lock").read_text()
    assert lock.count(DIGEST) == 3 and lock.startswith("# ")
    done = scripts.run(
        "build.sh", "--push", FLINK_VERSION="2.3.0", PLATFORMS="linux/amd64,linux/arm64", TAG="here/it:1"
    )
    assert done.returncode == 0, done.stderr
    for word in (
        "-t here/it:1",
        "--platform linux/amd64,linux/arm64",
        "FLINK_VERSION=2.3.0",
        f"BASE_DIGEST={DIGEST}",
        f"BUILDER_DIGEST={DIGEST}",
        f"VERSION={RELEASE}.dev0",
        "--push",
    ):
        assert word in done.stdout, (word, done.stdout)


def test_pin_refuses_what_is_no_digest(scripts: Scripts) -> None:
    scripts.program("docker", 'case "$*" in *inspect*) echo latest;; esac')
    before = (scripts.image / "base.lock").read_text()
    done = scripts.run("pin.sh", "flink:2.2.1-java17")
    assert done.returncode == 1 and "'latest' is no digest of flink:2.2.1-java17" in done.stderr
    assert (scripts.image / "base.lock").read_text() == before


def test_constraints_must_pin_the_flink_that_is_there(scripts: Scripts, tmp_path: Path) -> None:
    scripts.flink("2.2.9")
    wheel = tmp_path / "flink_skills-1-py3-none-any.whl"
    wheel.touch()
    files = [str(path) for path in sorted(IMAGE.parents[1].glob("constraints*.txt"))]
    asked = [word for file in files for word in ("--constraints", file)]
    done = scripts.run("install.sh", "venv", "--wheel", str(wheel), *asked)
    assert done.returncode == 1
    assert "this is Flink 2.2.9, and none of the constraints" in done.stderr and "apache-flink==2.2.9" in done.stderr


@pytest.mark.parametrize("version", ["2.2.1", "2.3.0"])
def test_the_constraints_of_the_checkout_fit_the_images(version: str) -> None:
    pinning = [
        path.name
        for path in IMAGE.parents[1].glob("constraints*.txt")
        if f"apache-flink=={version}" in path.read_text().split()
    ]
    assert len(pinning) == 1
    assert f":{version}-java17" in (IMAGE / "pin.sh").read_text()


def test_finish_links_and_configures_once(scripts: Scripts) -> None:
    scripts.flink("2.2.1")
    scripts.program("chown", ":")  # not root here
    for _ in range(2):
        done = scripts.run("install.sh", "finish", FLINK_PLUGINS="flink-s3-fs-presto")
        assert done.returncode == 0, done.stderr
    link = scripts.skills_home / "flink-python.jar"
    assert link.resolve() == (scripts.home / "opt" / "flink-python-2.2.1.jar").resolve()
    # A second jar of this name in Flink's folder would keep it from starting Python programs.
    assert len(list((scripts.home / "opt").glob("flink-python*.jar"))) == 1
    assert (scripts.home / "plugins" / "flink-s3-fs-presto" / "flink-s3-fs-presto-2.2.1.jar").resolve().is_file()
    settings = (scripts.home / "conf" / "config.yaml").read_text()
    assert settings.count(f"python.executable: {scripts.skills_home}/venv/bin/python") == 1
    assert settings.count("python.client.executable: ") == 1
    logging = (scripts.home / "conf" / "log4j-console.properties").read_text()
    assert logging.count("= org.apache.flink.client.python.PythonEnvUtils\n") == 1
    for path in ("store", "workspaces"):
        assert (scripts.skills_home / path).stat().st_mode & 0o777 == 0o700


def test_finish_names_a_plugin_that_is_not_there(scripts: Scripts) -> None:
    scripts.flink("2.2.1")
    scripts.program("chown", ":")
    done = scripts.run("install.sh", "finish", FLINK_PLUGINS="flink-oss-fs-hadoop")
    assert done.returncode == 1 and "has no flink-oss-fs-hadoop-2.2.1.jar" in done.stderr


def test_a_home_without_flink_is_named(scripts: Scripts) -> None:
    done = scripts.run("install.sh", "finish")
    assert done.returncode == 1 and f"there is no Flink in {scripts.home}" in done.stderr
