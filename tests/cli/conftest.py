"""The command inside of the test's process: words in, exit code and both streams out.

Examines the inside of cli.app on purpose.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flink_skills.cli.app import run_app


@dataclass(frozen=True)
class Said:
    """What a command left."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """What stdout holds. Fails when anything but one JSON text is there."""
        return json.loads(self.stdout)


FlinkSkills = Callable[..., Said]


@pytest.fixture
def flink_skills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Run ``flink-skills`` with these words, in the test's folder and with a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def call(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["flink-skills", *map(str, words)])
        capsys.readouterr()
        code = run_app()
        streams = capsys.readouterr()
        assert "Traceback" not in streams.err
        return Said(code, streams.out, streams.err)

    return call
