"""The suite's side of a worker process: see :mod:`tests.execution.escape.host`."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flink_skills.execution import CommandRequest, CommandResult, IsolationLevel
from tests.execution.escape.columns import expected_level
from tests.execution.escape.machine import Identity, python_for
from tests.kit.waiting import SLOWNESS

__all__ = ["Room", "WorkerError", "WorkerProcess"]

_PACKAGE = Path(__file__).parents[3]


class WorkerError(Exception):
    """What a worker answered instead of a result."""


@dataclasses.dataclass(frozen=True)
class Room:
    """A workspace, by its paths."""

    root: str
    work: str
    out: str
    tmp: str
    home: str
    inputs: str
    skill: str
    writable: list[str]
    readable: list[str]


class WorkerProcess:
    """A worker with a backend and its options. ``base`` is a folder that all may enter; ``secret`` goes to its
    environment.
    """

    secret_name = "FLINK_SECRET_CANARY"

    def __init__(
        self, backend: str, identity: Identity, base: Path, canary: Path, options: Mapping[str, str] | None = None
    ) -> None:
        self.backend = backend
        self.identity = identity
        self.base = base
        self.canary = canary
        self.secret = f"env-{uuid.uuid4().hex}"
        self.memory_text = f"memory-{uuid.uuid4().hex}"
        self.python = python_for(identity.command_uid)
        self._numbers = itertools.count()
        self._answers: dict[int, dict[str, Any]] = {}
        # One for each user: a worker restores the modes of folders that are its own.
        jobs = base / f"jobs-{identity.worker_uid}"
        given = {
            "backend": backend,
            "user": identity.command_uid if identity.switches else None,
            "root": str(jobs / f"job-{uuid.uuid4().hex[:8]}"),
            "python": "",
            "canary": str(canary),
            # As the shell sets it: one copy of a skill for all keys, where commands cannot write to it.
            "share_files": expected_level(backend) >= IsolationLevel.LANDLOCK_PARTIAL,
            "memory_text": self.memory_text,
            "options": dict(options or {}),
            "landlock_abi": os.environ.get("ESCAPE_LANDLOCK_ABI", ""),
        }
        jobs.mkdir(mode=0o711, exist_ok=True)
        os.chown(jobs, identity.worker_uid, -1)
        self._errors = (base / f"worker-{backend}-{identity.name}.log").open("w+b")
        other = identity.worker_uid != os.geteuid()
        self._process = subprocess.Popen(
            [python_for(identity.worker_uid), str(Path(__file__).with_name("host.py")), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=canary.parent,
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "PYTHONPATH": os.pathsep.join([str(_PACKAGE), *(path for path in sys.path if "site-packages" in path)]),
                "PYTHONDONTWRITEBYTECODE": "1",
                "TMPDIR": str(base),
                self.secret_name: self.secret,
            },
            user=identity.worker_uid if other else None,
            group=identity.worker_uid if other else None,
            extra_groups=[] if other else None,
            start_new_session=True,
        )
        try:
            self.facts: dict[str, Any] = self.call("start")
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def room(self, key: str) -> Room:
        """The workspace of ``key``, with a skill staged in it."""
        return Room(**self.call("workspace", key=key))

    def run(self, *requests: CommandRequest) -> list[CommandResult]:
        """Run commands side by side; raises :class:`WorkerError` for what no result is."""
        return self.results(self.begin(requests))

    def begin(self, requests: Sequence[CommandRequest]) -> int:
        """Have commands run; what :meth:`results` needs to get at their results."""
        commands = []
        for request in requests:
            command = dataclasses.asdict(request)
            command["stdin"] = base64.b64encode(request.stdin).decode()
            commands.append(command)
        return self.send("run", commands=commands)

    def results(self, number: int) -> list[CommandResult]:
        found = []
        for given in self.receive(number):
            for stream in ("stdout", "stderr"):
                given[stream] = base64.b64decode(given[stream])
            found.append(CommandResult(**given))
        return found

    def call(self, order: str, **arguments: Any) -> Any:
        return self.receive(self.send(order, **arguments))

    def send(self, order: str, **arguments: Any) -> int:
        number = next(self._numbers)
        assert self._process.stdin is not None
        line = json.dumps({"id": number, "order": order, "arguments": arguments}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(f"the worker has gone: {self.said()}") from None
        return number

    def receive(self, number: int) -> Any:
        assert self._process.stdout is not None
        while number not in self._answers:
            line = self._process.stdout.readline()
            if not line:
                raise WorkerError(f"the worker has gone: {self.said()}")
            answer = json.loads(line)
            self._answers[answer["id"]] = answer
        answer = self._answers.pop(number)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["result"]

    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode(errors="replace")

    def kill(self) -> None:
        """End the worker as a crash would."""
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def close(self) -> None:
        """End the worker in order."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(60 * SLOWNESS)
        finally:
            self._process.kill()
            self._end()

    def _end(self) -> None:
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()
