"""Where skills that are fetched are kept: a folder of the option, else below the temporary folder of the runtime."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.features.conftest import Run
from tests.kit.models import Script


@pytest.fixture
def archive(skills: Path, tmp_path: Path) -> str:
    with zipfile.ZipFile(tmp_path / "skills.zip", "w") as archive:
        for path in sorted(skills.rglob("*")):
            if path.is_file():
                archive.write(path, Path("skills") / path.relative_to(skills))
    return str(tmp_path / "skills.zip")


def stored(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("SKILL.md"))


@pytest.mark.row("B8")
def test_without_an_option_it_is_below_the_temporary_folder(
    run: Run, script: Script, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    model = script(["done"])
    assert run(sources=[archive], **{"store.dir": ""}) == ["done"]
    assert "\n- shout: " in model.requests[0].system
    assert [path.name for path in stored(temporary)] == ["count", "shout"]


@pytest.mark.row("B9")
def test_the_option_puts_it_elsewhere(
    run: Run, script: Script, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    script(["done"])
    assert run(sources=[archive], **{"store.dir": str(tmp_path / "elsewhere")}) == ["done"]
    assert [path.name for path in stored(tmp_path / "elsewhere")] == ["count", "shout"]
    assert stored(temporary) == []
