"""Check of the packages of a release: ``python -m checks.release [--tag v0.1.0]``, ``make release-check``.

Builds wheel and sdist of the commit twice, in two folders, and compares them byte by byte. Looks at versions, contents,
metadata, sizes and placeholders. The packages, the constraints and the notes of the release are in ``dist``. With
``--tag`` a placeholder or a version of a commit between releases is an error, else a note.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from hatch_version import RELEASE, version_of

__all__ = ["build", "faults", "main", "placeholders", "versions"]

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
JAR = "flink_skills/jars/flink-skills-bridge.jar"
_MIB = 1 << 20
#: The largest size of each file, in bytes. An index shows sizes, and images have the package in each layer.
SIZES = {".whl": 4 * _MIB, ".gz": 4 * _MIB}
_PLACEHOLDER = re.compile(r"\bOWNER\b")
_NO_PACKAGE = re.compile(r"(^|/)(tests?|__pycache__|\.DS_Store|node_modules)(/|$)|\.pyc$|/README\.md$")


def build(version: str, folder: Path, epoch: str) -> list[Path]:
    """Build the files of the commit in a copy of it, and return the wheel and the sdist."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True)
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(source, filter="data")
    environment = {**os.environ, "FLINK_SKILLS_VERSION": version, "SOURCE_DATE_EPOCH": epoch}
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "build", "--system-certs", "-q", "--sdist", "--wheel", "-o", str(folder / "dist"), str(source)]
    subprocess.run(command, check=True, env=environment)
    return sorted((folder / "dist").glob("flink_skills-*"))


def versions(root: Path, tag: str) -> Iterator[str]:
    """Yield a message for each place with another version than the next release."""
    patterns = {
        "java-bridge/pom.xml": r"<artifactId>flink-skills-bridge</artifactId>\s*<version>(.+?)</version>",
        "CITATION.cff": r"^version: (.+)$",
    }
    for name, pattern in patterns.items():
        found = re.findall(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if found != [RELEASE]:
            yield f"{name}: the version is {', '.join(found) or 'missing'}, and hatch_version.py has {RELEASE}"
    if tag and tag != f"v{RELEASE}":
        yield f"the tag is {tag}, and hatch_version.py has {RELEASE}: write the tag's number there"
    if tag and f"## [{RELEASE}]" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md: there is no section '## [{RELEASE}]': rename 'Unreleased'"


def placeholders(root: Path) -> Iterator[str]:
    """Yield the places with the address of an owner that is not known yet."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if name.startswith(("checks/", "tests/")) or not (root / name).is_file():
            continue
        for number, line in enumerate((root / name).read_bytes().decode(errors="replace").splitlines(), 1):
            if _PLACEHOLDER.search(line):
                yield f"{name}:{number}: replace OWNER: {line.strip()[:100]}"


def faults(path: Path, version: str) -> Iterator[str]:
    """Yield what a wheel or an sdist lacks or must not have."""
    if path.stat().st_size > SIZES[path.suffix]:
        yield f"{path.name}: {path.stat().st_size:,} bytes, and at most {SIZES[path.suffix]:,} are allowed"
    if path.suffix == ".whl":
        info = f"flink_skills-{version}.dist-info"
        needed = {JAR, "flink_skills/_version.py", "flink_skills/py.typed", *(f"{info}/licenses/{n}" for n in _LEGAL)}
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            inside = zipfile.ZipFile(BytesIO(wheel.read(JAR))).namelist() if JAR in names else []
        yield from (
            f"{path.name}: META-INF/{name} is not in the jar" for name in _LEGAL if f"META-INF/{name}" not in inside
        )
    else:
        with tarfile.open(path) as sdist:
            names = [name.partition("/")[2] for name in sdist.getnames()]
        needed = {"PKG-INFO", "pyproject.toml", "java-bridge/pom.xml", "flink_skills/_version.py", *_LEGAL}
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        yield f"{path.name}: more than one entry for {', '.join(doubled)}"
    yield from (f"{path.name}: {name} is missing" for name in sorted(needed - set(names)))
    yield from (f"{path.name}: {name} does not belong into it" for name in names if _NO_PACKAGE.search(name))


_LEGAL = ("LICENSE", "NOTICE")


def main(arguments: list[str]) -> int:
    """Build and look, print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", default="")
    tag = parser.parse_args(arguments).tag
    version = version_of(RELEASE)
    problems = list(versions(ROOT, tag))
    notes = list(placeholders(ROOT))
    if version != RELEASE:
        notes.append(f"the version is {version}: a release needs the tag v{RELEASE} on a commit without changes")
    if version.endswith(".dirty"):
        notes.append("changes that are not committed are not in the packages")
    show = ["git", "-C", str(ROOT), "show", "-s", "--format=%ct", "HEAD"]
    epoch = subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory(prefix="another-") as second:
        built, again = build(version, Path(first), epoch), build(version, Path(second), epoch)
        for one, other in zip(built, again, strict=True):
            if one.read_bytes() != other.read_bytes():
                problems.append(f"{one.name}: two builds of the commit differ")
            problems += faults(one, version)
        uv = Path(sys.executable).with_name("uv")
        command = [uv, "tool", "run", "--system-certs", "-q", "twine", "check", "--strict", *built]
        checked = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
        if checked.returncode != 0:
            problems.append(f"twine check: {(checked.stdout + checked.stderr).strip()}")
        shutil.rmtree(DIST, ignore_errors=True)
        packages = DIST / "packages"
        packages.mkdir(parents=True)
        for path in built:
            shutil.copy2(path, packages)
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.stat().st_size:>9,}  {path.name}")
    shutil.copy2(ROOT / "constraints.txt", DIST)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(
        r"^## \[(?:Unreleased|" + re.escape(RELEASE) + r")\].*?\n(.*?)(?=^## \[|\Z)", changes, re.MULTILINE | re.DOTALL
    )
    (DIST / "notes.md").write_text(section[1].strip() + "\n" if section else "", encoding="utf-8")
    for note in notes:
        print(f"release {'failed' if tag else 'note'}: {note}")
    for problem in problems:
        print(f"release failed: {problem}")
    return 1 if problems or (tag and notes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
