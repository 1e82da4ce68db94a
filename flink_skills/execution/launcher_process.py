"""The worker's side of the zygote: start it, have it fork supervisors, start it again when it died."""

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
from flink_skills.sources.os_errors import os_error_hint

__all__ = ["LauncherProcess"]

_log = logging.getLogger(__name__)

_READY_WITHIN_SECONDS = 30.0
_SEND_WITHIN_SECONDS = 10.0
_ENDS_WITHIN_SECONDS = 15.0

# The packages above the launcher become empty shells: what their __init__ modules import is neither on the
# zygote's path (it has no site packages) nor wanted in its memory. Works from a zipped package as well.
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


class LauncherProcess:
    """A zygote process. Belongs to one event loop at a time.

    ``python`` is the interpreter to start it with; the worker's own by default.

    Attributes:
        filters: Names of the filters of system calls that orders may use.
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
        # Shielded: one impatient caller must not end what the others wait for as well.
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        self._let_go()
        if not sys.platform.startswith("linux") or not self._python:
            raise ExecutionError("commands cannot be run here: they need Linux and a Python interpreter")
        libraries = _library_folders()
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise self._cannot_start(error) from error
        try:
            messages = os.memfd_create("launcher-messages", os.MFD_CLOEXEC)
        except OSError as error:
            ours.close()
            theirs.close()
            raise self._cannot_start(error) from error
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - our own code; forks within 1 ms
                [
                    *(self._python, "-I", "-S", "-c", _BOOT, _package_folder(), str(theirs.fileno()), libraries),
                    ",".join(self.filters),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                pass_fds=[theirs.fileno()],
                # Nothing of the worker's environment, which may hold secrets.
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            os.close(messages)
            raise self._cannot_start(error) from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._requests, self._messages = ours, messages
        try:
            hello = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(ours, 512), _READY_WITHIN_SECONDS)
        except (asyncio.TimeoutError, OSError):
            hello = b""
        if not hello:
            self._process.kill()
            self._process.wait()
            said = self._last_messages()
            self._let_go()
            raise ExecutionError(_why_not_up(self._python, said))
        self.refusal = hello.removeprefix(b"ready").decode("utf-8", "replace")

    def _cannot_start(self, error: OSError) -> ExecutionError:
        fix = os_error_hint(error)
        return ExecutionError(
            f"the command launcher {self._python} cannot be started: {error}" + (f": {fix}" if fix else "")
        )

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
                if self._process is not None:
                    self._process.kill()
                    self._process.wait()
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
        process = self._process
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if process is not None:
            try:
                await asyncio.to_thread(process.wait, _ENDS_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._let_go()

    def _let_go(self) -> None:
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


def _package_folder() -> str:
    return str(Path(__file__).resolve().parents[1])


def _library_folders() -> str:
    """Where the libraries are that the launcher needs, separated by colons. Raises :class:`ExecutionError`."""
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


def _why_not_up(python: str, said: str) -> str:
    if "libseccomp" in said:
        return "commands cannot be confined without libseccomp: install it in the image (package libseccomp2)"
    return f"the command launcher {python} did not come up: {said or 'it said nothing'}"
