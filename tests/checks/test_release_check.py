"""Faults of a release: other versions, placeholders, files that are missing or stray."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from checks import release
from checks.release import RELEASE

ROOT = Path(__file__).resolve().parents[2]


def test_the_versions_of_the_repository_agree() -> None:
    assert list(release.versions(ROOT, "")) == []


def test_another_version_and_a_wrong_tag_are_found(tmp_path: Path) -> None:
    (tmp_path / "java-bridge").mkdir()
    for name in ("java-bridge/pom.xml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    citation = tmp_path / "CITATION.cff"
    citation.write_text(citation.read_text().replace(f"version: {RELEASE}", "version: 9.9.9"))
    assert list(release.versions(tmp_path, "v9.9.9")) == [
        f"CITATION.cff: the version is 9.9.9, and hatch_version.py has {RELEASE}",
        f"the tag is v9.9.9, and hatch_version.py has {RELEASE}: write the tag's number there",
        f"CHANGELOG.md: there is no section '## [{RELEASE}]': rename 'Unreleased'",
    ]


def test_placeholders_have_their_place(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "README.md").write_text("One.\nSee https://localhost/OWNER/flink_skills.\nOWNERS stay.\n")
    subprocess.run(["git", "-C", tmp_path, "add", "README.md"], check=True)
    assert list(release.placeholders(tmp_path)) == [
        "README.md:2: replace OWNER: See https://localhost/OWNER/flink_skills."
    ]


def wheel(folder: Path, *names: str) -> Path:
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as inside:
        inside.writestr("META-INF/LICENSE", "")
    path = folder / "flink_skills-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as files:
        for name in names:
            files.writestr(name, jar.getvalue() if name.endswith(".jar") else "")
    return path


def test_a_wheel_has_all_its_parts_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = "flink_skills-1.0.dist-info/licenses"
    path = wheel(tmp_path, release.JAR, "flink_skills/py.typed", f"{info}/LICENSE", f"{info}/NOTICE", "tests/a.py")
    monkeypatch.setitem(release.SIZES, ".whl", 100)
    name = path.name
    assert list(release.faults(path, "1.0")) == [
        f"{name}: {path.stat().st_size:,} bytes, and at most 100 are allowed",
        f"{name}: META-INF/NOTICE is not in the jar",
        f"{name}: flink_skills/_version.py is missing",
        f"{name}: tests/a.py does not belong into it",
    ]


def test_a_source_distribution_has_no_stray_files(tmp_path: Path) -> None:
    path = tmp_path / "flink_skills-1.0.tar.gz"
    names = ["PKG-INFO", "pyproject.toml", "java-bridge/pom.xml", "flink_skills/_version.py", "LICENSE", "README.md"]
    with tarfile.open(path, "w:gz") as sdist:
        for name in [*names, "skills/README.md", "LICENSE"]:
            sdist.addfile(tarfile.TarInfo(f"flink_skills-1.0/{name}"))
    assert list(release.faults(path, "1.0")) == [
        f"{path.name}: more than one entry for LICENSE",
        f"{path.name}: NOTICE is missing",
        f"{path.name}: skills/README.md does not belong into it",
    ]
