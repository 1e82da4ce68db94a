"""The worker: a process that starts a backend and runs commands with it, as a worker of a job does.

It is started with a secret in its environment, keeps another in its memory, and has files open: what commands are
to be kept from. It takes orders as lines of JSON and answers each with a line; orders run side by side.
"""

from __future__ import annotations

import asyncio
import base64
import ctypes
import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

from flink_skills.execution import (
    BackendSettings,
    CommandRequest,
    CommandUser,
    ExecutionBackend,
    Limits,
    create_backend,
)
from flink_skills.execution.backends import LocalBackend
from flink_skills.execution.workspace import Workspace, WorkspaceManager

SKILL_TEXT = "---\nname: report\ndescription: Writes a report.\n---\nRun scripts/run.sh.\n"
_TTL_SECONDS = 3600
SCRIPT_TEXT = "#!/bin/sh\necho report\n"


class _Skill:
    name = "report"
    path = None
    digest = "1"
    instructions = SKILL_TEXT
    resources = {"scripts/run.sh": SCRIPT_TEXT}  # noqa: RUF012 - as skills in memory have it


class Worker:
    """What the orders act on."""

    def __init__(self, given: dict[str, Any]) -> None:
        user = given["user"]
        self.user = CommandUser(user, user) if user is not None else None
        self.settings = BackendSettings(user=self.user, python=given["python"], options=given["options"])
        if given["landlock_abi"]:
            mock.patch(
                "flink_skills.execution.backends.landlock.abi_version", lambda: int(given["landlock_abi"])
            ).start()
        self.backend = _backend(given["backend"], self.settings)
        self.workspaces = WorkspaceManager(
            given["root"], user=self.user, share_files=given["share_files"], ttl=_TTL_SECONDS
        )
        self.kept: list[Workspace] = []
        self.text = ctypes.create_string_buffer(given["memory_text"].encode())
        self.writable = ctypes.create_string_buffer(b"untouched", 64)
        self.before = _open_for_children(given["canary"])
        self.after = -1
        self.canary = given["canary"]

    async def start(self) -> dict[str, Any]:
        await self.backend.start()
        self.after = _open_for_children(self.canary)
        return {
            "pid": os.getpid(),
            "memory": ctypes.addressof(self.text),
            "writable_memory": ctypes.addressof(self.writable),
            "descriptor": self.before,
            "level": self.backend.level.name,
        }

    async def workspace(self, key: str) -> dict[str, Any]:
        workspace = self.workspaces.for_key(key)
        workspace.ensure()
        self.kept.append(workspace)
        skill = workspace.stage(_Skill())
        return {
            "root": str(workspace.root),
            "work": str(workspace.work_dir),
            "out": str(workspace.out_dir),
            "tmp": str(workspace.tmp_dir),
            "home": str(workspace.home_dir),
            "inputs": str(workspace.inputs_dir),
            "skill": str(skill),
            "writable": list(map(str, workspace.writable)),
            "readable": list(map(str, workspace.readable)),
        }

    async def write_event(self, key: str, text: str) -> str:
        return str(await asyncio.to_thread(self.workspaces.for_key(key).write_event, text.encode()))

    async def stage_again(self, key: str) -> str:
        return str(await asyncio.to_thread(self.workspaces.for_key(key).stage, _Skill()))

    async def release(self, key: str) -> None:
        """End the turn of a key: from now on the workspace is removed when it is old."""
        self.workspaces.for_key(key).release()

    async def sweep(self) -> int:
        return await asyncio.to_thread(self.workspaces.sweep)

    async def digest(self, key: str) -> str:
        """Return the skill's digest in a workspace, as a worker that replaces this one reads it from the file."""
        replacing = WorkspaceManager(self.workspaces.root, user=self.user, share_files=self.workspaces.share_files)
        workspace = replacing.for_key(key)
        await asyncio.to_thread(workspace.ensure)
        return workspace.staged_digest("report")

    async def remove(self, key: str) -> None:
        await asyncio.to_thread(self.workspaces.for_key(key).remove)

    async def run(self, commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(self._run(command) for command in commands)))

    async def _run(self, command: dict[str, Any]) -> dict[str, Any]:
        request = CommandRequest(
            **{
                **command,
                "argv": tuple(command["argv"]),
                "stdin": base64.b64decode(command["stdin"]),
                "limits": Limits(**command["limits"]),
                "writable": tuple(command["writable"]),
                "readable": tuple(command["readable"]),
            }
        )
        result = dataclasses.asdict(await self.backend.run(request))
        for stream in ("stdout", "stderr"):
            result[stream] = base64.b64encode(result[stream]).decode()
        return result

    async def memory(self) -> str:
        return self.writable.value.decode()

    async def state(self) -> dict[str, int]:
        """What may not grow from command to command."""
        if isinstance(self.backend, LocalBackend):
            self.backend.end_idle()
        return {**_own_use(), "tasks": len(asyncio.all_tasks())}

    async def can_fork(self) -> bool:
        done = await asyncio.to_thread(subprocess.run, ["/bin/true"], check=False)
        return done.returncode == 0

    async def prove(self) -> dict[str, Any]:
        """What the product's own canaries say."""
        from flink_skills.execution.isolation import prove, proved_level

        findings = await prove(self.backend, self.workspaces, self.settings)
        level, kept_from = proved_level(findings, self.settings)
        return {"level": level.name, "stopped": sorted(findings.stopped), "open": dict(findings.open), "why": kept_from}

    async def close(self) -> None:
        await self.backend.close()
        await asyncio.to_thread(self.workspaces.close)


def _backend(name: str, settings: BackendSettings) -> ExecutionBackend:
    if name == "none":
        from tests.kit.no_isolation import NoIsolationBackend

        return NoIsolationBackend(settings)
    return create_backend(name, settings)


def _own_use() -> dict[str, int]:
    status = Path("/proc/self/status").read_text().splitlines()
    resident = next(line for line in status if line.startswith("VmRSS:"))
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "resident": int(resident.split()[1]) * 1024,
    }


def _open_for_children(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    return descriptor


async def serve(given: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 28)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    worker = Worker(given)
    tasks = set()

    async def answer(number: int, name: str, arguments: dict[str, Any]) -> None:
        try:
            said = {"id": number, "result": await getattr(worker, name)(**arguments)}
        except Exception as error:
            said = {"id": number, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)

    while line := await reader.readline():
        order = json.loads(line)
        task = loop.create_task(answer(order["id"], order["order"], order["arguments"]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
    await worker.close()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
