"""Proof of a backend's level: the probe runs as a command, and reports what it could do.

The targets are real: listening sockets, a file outside the workspace that the command's user may read and write, a
second workspace, the worker itself. They detect a backend that does not isolate on this kernel or in this container
before it runs an untrusted command.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution.execution_backend import BackendSettings, ExecutionBackend
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.request import CommandRequest, Limits
from flink_skills.execution.workspace import Workspace, WorkspaceManager

REQUIRED: Mapping[IsolationLevel, frozenset[str]] = {
    IsolationLevel.HYGIENE: frozenset(
        {
            *("environment", "privileges", "survivors", "trace_worker", "tcp", "udp", "unix_socket"),
            *("abstract_socket", "kernel_sockets"),
        }
    ),
    IsolationLevel.LANDLOCK_PARTIAL: frozenset(
        {
            *("read_outside", "list_outside", "write_outside", "link_outside", "other_workspace", "write_skills"),
            *("worker_environment", "worker_memory", "worker_files", "worker_command_line"),
        }
    ),
    IsolationLevel.LANDLOCK: frozenset({"truncate_outside", "signal_worker"}),
    IsolationLevel.NAMESPACE: frozenset({"metadata_outside", "other_memory"}),
}
"""Attempts that each level must stop, in addition to those of lower levels."""

_PROBE_SECONDS = 20.0
_NOT_NEEDED_WITH_NETWORK = frozenset({"tcp", "udp"})


@dataclass(frozen=True)
class Findings:
    """Findings of canaries: ``stopped`` attempts, and ``open`` ones with what they reached."""

    stopped: frozenset[str]
    open: Mapping[str, str]


async def prove(backend: ExecutionBackend, workspaces: WorkspaceManager, settings: BackendSettings) -> Findings:
    """Run the canaries with a started ``backend``.

    Raises :class:`ExecutionError` if they cannot be run.
    """
    mark = secrets.token_hex(8)
    workspace = workspaces.for_key(f"canary {mark} a")
    other = workspaces.for_key(f"canary {mark} b")
    try:
        await asyncio.to_thread(_prepare, workspace, other)
        with _targets(workspaces, workspace, other, settings, mark) as targets:
            found = await _run_probe(backend, workspace, targets)
        lock = workspace.work_dir / "lock"
        found["survivors"] = None if _is_free(lock) else "a process that left its session keeps running"
    except OSError as error:
        raise ExecutionError(f"the canaries cannot be prepared in {workspaces.root}: {error}") from error
    finally:
        for created in (workspace, other):
            await asyncio.to_thread(created.remove)
    return Findings(
        stopped=frozenset(name for name, reached in found.items() if reached is None),
        open={name: reached for name, reached in found.items() if reached is not None},
    )


def proved_level(findings: Findings, settings: BackendSettings) -> tuple[IsolationLevel, tuple[str, ...]]:
    """Return the level that ``findings`` prove, and the open attempts that prevent the next level."""
    reached = IsolationLevel.NONE
    for level, required in sorted(REQUIRED.items()):
        needed = required - _NOT_NEEDED_WITH_NETWORK if settings.network else required
        missing = sorted(needed - findings.stopped)
        if missing:
            return reached, tuple(missing)
        reached = level
    return reached, ()


def _prepare(workspace: Workspace, other: Workspace) -> None:
    workspace.ensure()
    other.ensure()
    secret = other.work_dir / "secret"
    secret.write_text("a canary")
    _give(secret, other)


def _give(path: Path, workspace: Workspace) -> None:
    """Give ``path`` to the command's user, so that only the isolation can deny access."""
    if workspace.user is not None:
        os.chown(path, workspace.user.uid, workspace.user.gid)


@contextlib.contextmanager
def _targets(
    workspaces: WorkspaceManager, workspace: Workspace, other: Workspace, settings: BackendSettings, mark: str
) -> Iterator[dict[str, Any]]:
    # The path of a socket has a maximum length, which a job's directory can exceed.
    outside = workspaces.root / f".canary-{mark}"
    sockets = Path(tempfile.mkdtemp(prefix="canary-"))
    try:
        outside.mkdir(mode=0o755)
        for path in (outside, sockets):
            path.chmod(0o755)
            _give(path, workspace)
        canary = outside / "file"
        canary.write_text("a canary")
        _give(canary, workspace)
        with contextlib.ExitStack() as stack:
            tcp = stack.enter_context(_listener(socket.AF_INET, ("127.0.0.1", 0)))
            port = tcp.getsockname()[1]
            with contextlib.suppress(OSError):  # no IPv6, or the port is in use: nothing to reach
                stack.enter_context(_listener(socket.AF_INET6, ("::1", port)))
            udp = stack.enter_context(_listener(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM))
            stack.enter_context(_listener(socket.AF_UNIX, str(sockets / "s")))
            stack.enter_context(_listener(socket.AF_UNIX, str(sockets / "d"), socket.SOCK_DGRAM))
            stack.enter_context(_listener(socket.AF_UNIX, f"\0canary-{mark}"))
            for name in ("s", "d"):
                _give(sockets / name, workspace)
            yield {
                "worker": os.getpid(),
                "group": os.getpgrp(),
                "processes": Path("/proc/self/ns/pid").stat().st_ino,
                "outside": str(canary),
                "other": str(other.work_dir / "secret"),
                "work": str(workspace.work_dir),
                "skills": str(workspace.skills_dir),
                "lock": str(workspace.work_dir / "lock"),
                "unix": str(sockets / "s"),
                "unix_datagram": str(sockets / "d"),
                "abstract": f"canary-{mark}",
                "tcp": port,
                "udp": udp.getsockname()[1],
                "offline": not settings.network,
            }
    finally:
        shutil.rmtree(outside, ignore_errors=True)
        shutil.rmtree(sockets, ignore_errors=True)


def _listener(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> socket.socket:
    found = socket.socket(family, kind)
    try:
        found.bind(address)
        if kind == socket.SOCK_STREAM:
            found.listen(16)
    except OSError:
        found.close()
        raise
    return found


async def _run_probe(backend: ExecutionBackend, workspace: Workspace, targets: dict[str, Any]) -> dict[str, str | None]:
    run_dir = workspace.new_run()
    env = workspace.env(None, "canary", run_dir)
    targets["env"] = sorted(env)
    source = files(__package__).joinpath("probe.py").read_bytes()
    message = ""
    # The command's user possibly cannot reach the worker's own Python; then that of the system is used.
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")):
        result = await backend.run(
            CommandRequest(
                (python, "-I", "-S", "-", json.dumps(targets)),
                cwd=str(workspace.work_dir),
                env=env,
                stdin=source,
                limits=Limits(wall_time=_PROBE_SECONDS),
                root=str(workspace.root),
                writable=workspace.writable,
                readable=workspace.readable,
            )
        )
        if result.error is not None:
            raise ExecutionError(result.error)
        if result.exit_code == 0:
            found: dict[str, str | None] = json.loads(result.stdout)
            return found
        message = (result.stderr or b"the canaries printed nothing").decode("utf-8", "replace").strip()[-400:]
    raise ExecutionError(f"the canaries do not run inside: {message}")


def _is_free(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
