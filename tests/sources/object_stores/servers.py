"""Servers of the tests as processes: started, waited for, and gone with the test run however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.kit.ports import listens
from tests.kit.waiting import wait_until

_START_SECONDS = 60
# Runs a command that the kernel kills when the test run dies, also by kill -9 (Linux; elsewhere it just runs it).
_TIED = """
import ctypes, os, signal, sys
try:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
except AttributeError:
    pass
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


class Server:
    """A command that listens on a loopback port; its output is in ``log``."""

    def __init__(self, command: list[str], port: int, log: Path, **environment: str) -> None:
        self.port = port
        self._command, self._log = command, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _TIED, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        """Until it listens. Raises with the end of its log where it does not."""

        def what() -> str:
            return f"{self._command[:3]} to listen on {self.port}: {self._log.read_text(errors='replace')[-2000:]}"

        wait_until(lambda: listens(self.port) or self._process.poll() is not None, what, within=_START_SECONDS)
        assert self._process.poll() is None, f"waited in vain for {what()}"

    def stop(self) -> None:
        """Kill it and what it started: nothing of it is kept."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(30)


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[None]:
    """All of them listening, and stopped in the end, also where one of them does not start."""
    try:
        for server in servers:
            server.wait()
        yield
    finally:
        for server in servers:
            server.stop()
