"""The launcher process of a worker: start it, have it fork supervisors, and restart it after its death."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from flink_skills.errors import ExecutionError
from flink_skills.sources.locking import os_error_hint

_log = logging.getLogger(__name__)

_READY_WITHIN_SECONDS = 30.0
_SEND_WITHIN_SECONDS = 10.0
_ENDS_WITHIN_SECONDS = 15.0

# The packages above the launcher become empty modules: the zygote has no site packages, so it cannot import what their
# __init__ modules import, and each module would use its memory. This works from a zipped package as well.
_BOOT = """\
import sys
for name, path in (("flink_skills", sys.argv[1]), ("flink_skills.execution", sys.argv[1] + "/execution")):
    shell = type(sys)(name)
    shell.__path__ = [path]
    sys.modules[name] = shell
from flink_skills.execution.launcher.zygote import serve
serve(int(sys.argv[2]), sys.argv[3], sys.argv[4])
"""
_LIBRARIES = ("landlockpy", "pyseccomp")
_PACKAGE_FOLDER = str(Path(__file__).resolve().parents[1])


class LauncherProcess:
    """A zygote process. Belongs to one event loop at a time.

    ``python`` is the interpreter to start it with; the worker's own by default.

    Attributes:
        filters: Names of the system call filters that orders may use.
        refusal: Why filters for which the supervisor answers calls cannot be used; empty if they can.
    """

    def __init__(self, python: str = "") -> None:
        self._python = python or sys.executable
        self.filters: tuple[str, ...] = ("offline", "inet")
        self.refusal = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._messages = -1
        self._starting: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def start(self) -> None:
        """Start the process unless it runs. Raises :class:`ExecutionError` with what it wrote."""
        if self._requests is not None and self.pid is not None:
            return
        if self._starting is None or self._starting.done():
            self._starting = asyncio.get_running_loop().create_task(self._start())
        # Shielded: the cancellation of one caller must not end the start that others wait for.
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        self._close_descriptors()
        if not sys.platform.startswith("linux") or not self._python:
            raise ExecutionError("commands cannot be run here: they need Linux and a Python interpreter")
        libraries = _library_folders()
        try:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._messages = os.memfd_create("launcher-messages", os.MFD_CLOEXEC)
                arguments = (_PACKAGE_FOLDER, str(theirs.fileno()), libraries, ",".join(self.filters))
                self._process = subprocess.Popen(  # noqa: ASYNC220 - our own code; forks within 1 ms
                    (self._python, "-I", "-S", "-c", _BOOT, *arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._messages,
                    pass_fds=[theirs.fileno()],
                    # Without the worker's environment, which can contain secrets.
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            self._close_descriptors()
            fix = os_error_hint(error)
            raise ExecutionError(
                f"the command launcher {self._python} cannot be started: {error}" + (f": {fix}" if fix else "")
            ) from error
        self._requests.setblocking(False)
        ready = asyncio.get_running_loop().sock_recv(self._requests, 512)
        try:
            hello = await asyncio.wait_for(ready, _READY_WITHIN_SECONDS)
        except (asyncio.TimeoutError, OSError):
            hello = b""
        if not hello:
            self._kill()
            message = self._last_messages()
            self._close_descriptors()
            if "libseccomp" in message:
                raise ExecutionError(
                    "commands cannot be confined without libseccomp: install it in the image (package libseccomp2)"
                )
            raise ExecutionError(f"the command launcher {self._python} did not come up: {message or 'it said nothing'}")
        self.refusal = hello.removeprefix(b"ready").decode("utf-8", "replace")

    async def fork_supervisor(self) -> socket.socket:
        """Fork a supervisor, and return the other end of its control socket, which does not block.

        Restarts the process if it died. Raises :class:`ExecutionError` if that is not possible.
        """
        for last_try in (False, True):
            await self.start()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ours.setblocking(False)
            try:
                with theirs:
                    await self._send(theirs.fileno())
            except (BrokenPipeError, ConnectionResetError) as error:
                ours.close()
                _log.warning("the command launcher exited and is restarted: %s", self._last_messages())
                self._kill()
                if last_try:
                    raise ExecutionError(
                        "the command launcher exited again after a restart: read its output in the worker's log"
                    ) from error
            except BaseException:
                ours.close()
                raise
            else:
                return ours
        raise AssertionError

    async def _send(self, descriptor: int) -> None:
        deadline = time.monotonic() + _SEND_WITHIN_SECONDS
        while True:
            if self._requests is None:
                raise BrokenPipeError
            try:
                socket.send_fds(self._requests, [b"run"], [descriptor])
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ExecutionError("the command launcher does not take requests") from None
                await asyncio.sleep(0.002)

    async def close(self) -> None:
        """End the process; commands that still run end with it."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        process = self._process
        self._close_descriptors()
        if process is not None:
            try:
                await asyncio.to_thread(process.wait, _ENDS_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _close_descriptors(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._messages >= 0:
            os.close(self._messages)
            self._messages = -1
        self._process = None

    def _last_messages(self) -> str:
        if self._messages < 0:
            return ""
        size = os.fstat(self._messages).st_size
        return os.pread(self._messages, 4096, max(0, size - 4096)).decode("utf-8", "replace").strip()


def _library_folders() -> str:
    """Return the directories of the launcher's libraries, separated by colons. Raises :class:`ExecutionError`."""
    folders: list[str] = []
    for name in _LIBRARIES:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise ExecutionError(f"commands cannot be confined without the package {name}: install it")
        origin = Path(found.origin)
        folder = str(origin.parents[1] if origin.name == "__init__.py" else origin.parent)
        if folder not in folders:
            folders.append(folder)
    return ":".join(folders)
