"""The command in the test's process: arguments in, exit code and both streams out.

Examines the internals of cli.app on purpose.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flink_skills.cli.app import run_app
from tests.cli.command import KEYS


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

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records on stdout. Fails if anything else is there."""
        return [json.loads(line) for line in self.stdout.split("\n") if line]


FlinkSkills = Callable[..., Said]


def calling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> FlinkSkills:
    """Return a function that runs ``flink-skills`` with these words, in the test's folder and with a separate store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def call(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["flink-skills", *map(str, words)])
        capture.readouterr()
        code = run_app()
        streams = capture.readouterr()
        assert "Traceback" not in streams.err
        return Said(code, streams.out, streams.err)

    return call


@pytest.fixture
def flink_skills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> FlinkSkills:
    """Run ``flink-skills`` in the process of the test."""
    return calling(tmp_path, monkeypatch, capsys)


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[FlinkSkills]:
    """Run ``flink-skills run`` in the process of the test, without the model keys of the machine.

    ``stdin`` is the standard input, any other keyword is an environment variable. Fails if the run leaves a file of
    flink-skills, except for the store of skills. Modules from the folder are unloaded after the test.
    """
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    # Imports of agents by name start in the folder, as they do for the command.
    monkeypatch.syspath_prepend(str(tmp_path))
    # The command writes records to the file of stdout, past sys.stdout.
    flink_skills = calling(tmp_path, monkeypatch, capfd)
    before = set(sys.modules)

    def call(*words: object, stdin: str = "", **variables: str) -> Said:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        said = flink_skills("run", *words)
        left = [path.name for path in (tmp_path / "tmp").glob("flink-skills*")]
        assert [name for name in left if not name.startswith("flink-skills-store")] == []
        return said

    yield call
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]
