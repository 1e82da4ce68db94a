"""The ways to run a command that are measured side by side: ours, and what a careful user would write instead."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks import peers
from flink_skills.errors import SkillsError
from flink_skills.execution import CommandRequest, CommandUser, ExecutionBackend, WorkspaceManager, create_backend
from flink_skills.execution.backends.bwrap import find_bwrap
from flink_skills.execution.execution_backend import BackendSettings
from flink_skills.execution.workspace import Workspace

#: Runs the words in the workspace and returns how they ended, or the promise of it: 0, or what went wrong.
Way = Callable[[tuple[str, ...]], "int | str | Awaitable[int | str]"]

PLAIN = "subprocess"
OURS = ("landlock", "bwrap", "hygiene")
ALONE = "bwrap alone"
PEERS = ("nono-py", "sandlock")

#: As root, commands are of another user; otherwise they are of the same one.
USER = CommandUser(65534, 65534) if os.geteuid() == 0 else None
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


class Ways:
    """Ways to run commands in one new workspace below ``folder``, which everybody must be able to pass through."""

    def __init__(self, folder: Path) -> None:
        self._workspaces = WorkspaceManager(folder / "workspaces", user=USER)
        self._backends: list[ExecutionBackend] = []
        self.workspace: Workspace = self._workspaces.for_key("measured")
        self.workspace.ensure()

    async def open(self, names: tuple[str, ...]) -> tuple[dict[str, Way], dict[str, str]]:
        """The ways by name, tried once each; for those that do not work here, the reason."""
        found: dict[str, Way] = {}
        skipped: dict[str, str] = {}
        for name in names:
            try:
                way = await self._way(name)
                said = await run(way, ("true",)) if not isinstance(way, str) else way
            except (SkillsError, OSError, RuntimeError, ValueError) as error:
                said = str(error)
            if said == 0 and not isinstance(way, str):
                found[name] = way
            else:
                skipped[name] = str(said).strip().splitlines()[0][:200] if str(said).strip() else "it said nothing"
        return found, skipped

    async def close(self) -> None:
        for backend in self._backends:
            await backend.close()
        await asyncio.to_thread(self._workspaces.close)

    async def _way(self, name: str) -> Way | str:
        if name in OURS:
            return await self._ours(name)
        makers: dict[str, Callable[[], Way | str]] = {
            PLAIN: lambda: self._subprocess((), as_user=False),
            ALONE: self._bwrap_alone,
            "nono-py": self._nono,
            "sandlock": self._sandlock,
        }
        return makers[name]()

    async def _ours(self, name: str) -> Way:
        backend = create_backend(name, BackendSettings(user=USER))
        self._backends.append(backend)
        await backend.start()
        workspace = self.workspace

        async def start(words: tuple[str, ...]) -> int | str:
            result = await backend.run(
                CommandRequest(
                    words,
                    cwd=str(workspace.work_dir),
                    env=ENV,
                    root=str(workspace.root),
                    writable=workspace.writable,
                    readable=workspace.readable,
                )
            )
            return 0 if result.exit_code == 0 else f"{result}"

        return start

    def _subprocess(self, before: tuple[str, ...], *, as_user: bool) -> Way:
        # Not root's start of a process as another user where that is not needed: it takes the slower way of forking.
        switch: dict[str, Any] = {}
        if as_user and USER is not None:
            switch = {"user": USER.uid, "group": USER.gid, "extra_groups": []}
        folder = str(self.workspace.work_dir)

        def start(words: tuple[str, ...]) -> int | str:
            done = subprocess.run(
                [*before, *words],
                cwd=folder,
                env=ENV,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                **switch,
            )
            return 0 if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.decode()}"

        return start

    def _bwrap_alone(self) -> Way | str:
        found = find_bwrap()
        if found is None:
            return "not installed"
        work = str(self.workspace.work_dir)
        links = [
            word
            for path in ("/bin", "/sbin", "/lib", "/lib64")
            if Path(path).is_symlink()
            for word in ("--symlink", str(Path(path).readlink()), path)
        ]
        words = (
            *(found, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"),
            *("--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", *links),
            *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--ro-bind-try", "/etc/ssl", "/etc/ssl"),
            *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", work, work, "--chdir", work, "--"),
        )
        return self._subprocess(words, as_user=True)

    def _nono(self) -> Way | str:
        nono = peers.sandbox("nono_py")
        if isinstance(nono, str):
            return nono
        capabilities = nono.CapabilitySet()
        for path in ("/usr", "/bin", "/lib", "/lib64"):
            if Path(path).exists():
                capabilities.allow_path(path, nono.AccessMode.READ)
        for path in ("/etc/ld.so.cache", "/dev/null", "/dev/urandom"):
            capabilities.allow_file(path, nono.AccessMode.READ)
        work = str(self.workspace.work_dir)
        capabilities.allow_path(work, nono.AccessMode.READ_WRITE)
        capabilities.block_network()
        switch = {"uid": USER.uid, "gid": USER.gid} if USER is not None else {}

        def start(words: tuple[str, ...]) -> int | str:
            done = nono.sandboxed_exec(
                capabilities,
                [program(words[0]) or words[0], *words[1:]],
                cwd=work,
                env=list(ENV.items()),
                enforcement_mode="seccomp",
                **switch,
            )
            return 0 if done.exit_code == 0 else f"exit code {done.exit_code}: {done.stderr.decode('utf-8', 'replace')}"

        return start

    def _sandlock(self) -> Way | str:
        sandlock = peers.sandbox("sandlock")
        if isinstance(sandlock, str):
            return sandlock
        work = str(self.workspace.work_dir)
        readable = [path for path in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache") if Path(path).exists()]
        box = sandlock.Sandbox(
            fs_readable=[*readable, "/dev/null", "/dev/urandom"], fs_writable=[work], cwd=work, clean_env=True, env=ENV
        )

        def start(words: tuple[str, ...]) -> int | str:
            done = box.run(list(words))
            return 0 if done.exit_code == 0 else f"exit code {done.exit_code}: {done.error or done.stderr!r}"

        return start


async def run(way: Way, words: tuple[str, ...]) -> int | str:
    """Run a command; without anything else meanwhile where the way does not know better."""
    said = way(words)
    return await said if inspect.isawaitable(said) else said


async def run_beside(way: Way, words: tuple[str, ...]) -> int | str:
    """The same, beside others of its kind."""
    said = await asyncio.to_thread(way, words) if not inspect.iscoroutinefunction(way) else way(words)
    return await said if inspect.isawaitable(said) else said


def program(name: str) -> str:
    """The path of a program that the user of commands finds as well; empty if there is none."""
    return shutil.which(name, path=ENV["PATH"]) or ""
