"""What the test's job image has on top of the runtime image: skills, in two versions, a jar of skills, and the job.

``python -m tests.k8s.image.content FOLDER [--version 2]`` writes it for an image that is built elsewhere:
a build context for ``deploy/image/job.Dockerfile``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import zipfile
from pathlib import Path

from tests.k8s.image.archive import Layer, write_layer
from tests.k8s.image.root import CHECKOUT

HERE = Path(__file__).resolve().parents[1]
SKILLS = HERE / "skills"


def stamp_skill(folder: Path, place: str, version: int) -> Path:
    """Write the skill that stamps parcels of ``place`` below ``folder``; returns its own folder."""
    target = folder / f"stamp-{place}"
    shutil.copytree(SKILLS / "stamp", target)
    file = target / "SKILL.md"
    file.write_text(file.read_text().replace("@PLACE@", place).replace("@VERSION@", str(version)))
    return target


def write_content(folder: Path, version: int) -> None:
    """The folders ``skills``, ``job`` and ``usrlib`` of a job image."""
    for skill in sorted(path.parent for path in (CHECKOUT / "skills").glob("*/SKILL.md")):
        shutil.copytree(skill, folder / "skills" / skill.name, ignore=shutil.ignore_patterns("__pycache__"))
    stamp_skill(folder / "skills", "harbour", version)
    shutil.copytree(SKILLS / "pod-probe", folder / "skills" / "pod-probe")
    (folder / "job").mkdir()  # the manifests bring the job's file
    # The job's jar has the same name in both versions: Flink gives it to the job from the image.
    in_jar = folder / "jar"
    stamp_skill(in_jar, "border", version)
    (folder / "usrlib").mkdir()
    with zipfile.ZipFile(folder / "usrlib" / "skills.jar", "w") as jar:
        for path in sorted(in_jar.rglob("*")):
            name = f"skills/{path.relative_to(in_jar)}{'/' if path.is_dir() else ''}"
            jar.writestr(zipfile.ZipInfo(name), path.read_bytes() if path.is_file() else b"")
    shutil.rmtree(in_jar)


def job_layer(work: Path, version: int) -> Layer:
    """The content as a layer of an image."""
    folder = work / f"content-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_content(folder, version)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".sh" else 0o644)
    return write_layer(
        f"skills and job, version {version}", folder, {}, work / f"content-{version}.tar.gz", "opt/flink/"
    )


def main() -> int:
    """Write the content; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    write_content(options.folder, options.version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
