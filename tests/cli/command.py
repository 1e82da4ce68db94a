"""The ``flink-skills`` command as a user runs it: a process with files, streams and an exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.kit.waiting import wait_until

__all__ = ["KEYS", "ROOT", "Command", "Done", "by_key", "ignore", "run"]

ROOT = Path(__file__).resolve().parents[2]
_MARK = "FLINK_SKILLS_TEST_RUN"
# Variables that select a model for the command on the caller's machine.
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL")
# Neither these nor what PyFlink leaves behind where a mini cluster ran in this process.
_NOT_INHERITED = (*KEYS, "PYFLINK_GATEWAY_DISABLED")


def ignore(*numbers: signal.Signals) -> None:
    """Ignore signals, as a shell does in the processes that it starts in the background."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


@dataclass(frozen=True)
class Done:
    """What a run left."""

    code: int
    stdout: str
    stderr: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records on stdout. Fails when anything else is there."""
        return [json.loads(line) for line in self.stdout.split("\n") if line]


@dataclass
class Command:
    """A run of the command that goes on; its processes can be told by a variable of their environment."""

    arguments: tuple[str, ...]
    cwd: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[signal.Signals, ...] = ()

    def __post_init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self.temporary = self.cwd / f"tmp-{self._mark}"
        self.temporary.mkdir()
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flink_skills.cli", "run", *self.arguments],
            cwd=self.cwd,
            env={
                **inherited,
                "PYTHONPATH": path,
                _MARK: self._mark,
                "COLUMNS": "200",
                "TMPDIR": str(self.temporary),
                **self.variables,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=partial(ignore, *self.ignored),  # noqa: PLW1509 - it takes no lock
        )

    def finish(self, stdin: str = "", timeout: float = 240.0) -> Done:
        """Wait for the end, and for the end of every process that belongs to the run. Fails when one is left, or a
        temporary file (but for the store of skills, which is there to stay)."""
        try:
            stdout, stderr = self.process.communicate(stdin, timeout=timeout)
            wait_until(
                lambda: not self.processes(),
                lambda: f"the end of {[process.cmdline() for process in self.processes()]}",
                pause=0.1,
            )
        finally:
            for left in self.processes():
                left.kill()
        files = [path.name for path in self.temporary.iterdir() if not path.name.startswith("flink-skills-store")]
        assert [name for name in files if name.startswith("flink-skills")] == [], files
        return Done(self.process.returncode, stdout, stderr)

    def processes(self) -> list[psutil.Process]:
        """All processes of the run that live."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.AccessDenied, psutil.NoSuchProcess):
                continue
        return found


def run(*arguments: str, cwd: Path, stdin: str = "", **variables: str) -> Done:
    """Run ``flink-skills run`` with these words to its end."""
    return Command(arguments, cwd, variables).finish(stdin)


def by_key(records: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Records by key and turn. Fails when there are two of one turn."""
    found = {(json.dumps(record["key"]), record["turn"]): record for record in records}
    assert len(found) == len(records), "two records of one turn"
    return found
