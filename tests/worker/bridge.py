"""The other side of a worker's pipes, as the bridge of the operator is it. Speaks the frames of the protocol itself."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flink_skills import AgentEvent, SkillConfig, __version__
from flink_skills.agents import compile_plan
from flink_skills.worker import frames

__all__ = ["DEADLINE", "Bridge", "frames", "many"]

DEADLINE = 60.0


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def many(items: list[bytes]) -> bytes:
    return struct.pack(">I", len(items)) + b"".join(map(sized, items))


class Body:
    """Takes one thing after the other out of the body of a frame."""

    def __init__(self, body: bytes, offset: int) -> None:
        self._body, self._offset = body, offset

    def take(self) -> bytes:
        length = self.count()
        self._offset += length
        return self._body[self._offset - length : self._offset]

    def count(self) -> int:
        self._offset += 4
        return int(struct.unpack_from(">I", self._body, self._offset - 4)[0])

    def outputs(self) -> list[tuple[str, Any]]:
        return [(self.take().decode(), pickle.loads(self.take())) for _ in range(self.count())]


class Bridge:
    """The JVM's side of one worker."""

    index = 0
    with_events = False
    operator = 7

    def __init__(self, folder: Path) -> None:
        self.figures: list[tuple[int, dict[str, int]]] = []
        self.events: list[AgentEvent] = []
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.log = (folder / "stderr").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flink_skills.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )
        self.received = b""
        self._held: bytearray | None = None

    def send(self, kind: int, body: bytes = b"") -> None:
        self._write(struct.pack(">IB", len(body) + 1, kind) + body)

    def _write(self, data: bytes) -> None:
        if self._held is not None:
            self._held += data
            return
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """What is sent meanwhile comes in one go, as after a restart."""
        self._held = bytearray()
        yield
        data, self._held = bytes(self._held), None
        self._write(data)

    def receive(self) -> tuple[int, bytes]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + DEADLINE
        while len(self.received) < 4 or len(self.received) < 4 + struct.unpack(">I", self.received[:4])[0]:
            ready, _, _ = select.select([self.process.stdout], [], [], deadline - time.monotonic())
            assert ready, "no answer: " + self.stderr()
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise EOFError(self.stderr())
            self.received += data
        length = struct.unpack(">I", self.received[:4])[0]
        frame, self.received = self.received[4 : 4 + length], self.received[4 + length :]
        if frame[0] == frames.METRICS:
            (plan,) = struct.unpack_from(">I", frame, 1)
            self.figures.append((plan, json.loads(frame[9:])))
            return self.receive()
        if frame[0] == frames.EVENTS:
            taken = Body(frame[1:], 4)
            self.events += [pickle.loads(taken.take()) for _ in range(taken.count())]
            return self.receive()
        return frame[0], frame[1:]

    def stderr(self) -> str:
        self.log.seek(0)
        return self.log.read().decode()

    def open(self, agent: Any, plan: int = 1, **options: Any) -> tuple[int, str]:
        scopes = options.pop("scopes", [])
        rows = options.pop("rows", None)
        memory = options.pop("memory", 0)
        build = options.pop("build", __version__)
        compiled = compile_plan(agent, job_scopes=scopes, config=SkillConfig(options), events="pickle")
        compiled = dataclasses.replace(compiled, rows=rows, build=build)
        sealed, secrets = compiled.seal()
        config = {
            "frames": frames.FORMAT,
            "plan": sealed.to_json(),
            "secrets": json.dumps(secrets),
            "resources": {},
            "scratch_dir": str(self.scratch),
            "worker_index": self.index,
            "memory": memory,
            "events": self.with_events,
        }
        self.send(frames.OPEN, struct.pack(">I", plan) + sized(json.dumps(config).encode()))
        kind, body = self.receive()
        return kind, body[9 if kind == frames.OPEN_FAILED else 8 :].decode()

    def turn(self, turn: int, event: Any, **given: Any) -> None:
        session = given.get("session")
        flags = 2 if session is not None else 0
        head = struct.pack(
            ">IIQBIqQQ",
            self.operator,
            given.get("plan", 1),
            turn,
            flags,
            given.get("crashes", 0),
            0,
            given.get("number", 1),
            given.get("version", 0),
        )
        data = event if isinstance(event, bytes) else pickle.dumps(event)
        body = (
            head + sized(given.get("key", '"k"').encode("utf-8", "surrogatepass")) + sized(data) + many(session or [])
        )
        self.send(frames.TURN, body + many(given.get("journal", [])))

    def end(self) -> dict[str, Any]:
        """The steps and the end of one turn."""
        steps = []
        self.step_outputs: list[list[tuple[str, Any]]] = []
        while True:
            kind, body = self.receive()
            if kind == frames.STEP:
                taken = Body(body, 13)
                steps.append((body[12], taken.take()))
                self.step_outputs.append(taken.outputs())
            elif kind == frames.END:
                return {"steps": steps, **self._end(body)}
            else:
                return {"steps": steps, "kind": kind}

    @staticmethod
    def _end(body: bytes) -> dict[str, Any]:
        operator, turn, status, op = struct.unpack_from(">IQBB", body)
        taken = Body(body, 14)
        chunks = [taken.take() for _ in range(taken.count())]
        outputs = taken.outputs()
        return {
            "kind": frames.END,
            "operator": operator,
            "turn": turn,
            "status": status,
            "op": op,
            "chunks": chunks,
            "outputs": outputs,
            "message": taken.take().decode(),
        }

    def stop(self) -> None:
        """Kill the worker and close the pipes."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
