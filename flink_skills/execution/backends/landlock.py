"""The ``landlock`` backend: confines files and signals by Landlock and the network by seccomp.

What Landlock cannot restrict before Linux 6.12 (signals) and 6.2 (truncation) is closed by seccomp and the supervisor.

It needs no privilege, no namespace and no program, so it works in a container that is locked down, where nothing
else does. Commands share the kernel with everything else on the node.
"""

from __future__ import annotations

import os

from landlockpy import abi_version

from flink_skills.errors import ExecutionError
from flink_skills.execution.backends.local_backend import LocalBackend
from flink_skills.execution.execution_backend import BackendSettings
from flink_skills.execution.host import is_within, outermost, system_paths
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.launcher.protocol import PARTS, SIGNALS, TRUNCATION, Confinement
from flink_skills.execution.request import CommandRequest

SCOPES_SINCE = 6
"""The version of Landlock that confines signals and abstract sockets (Linux 6.12)."""

_TRUNCATION_SINCE = 3  # Linux 6.2

_MAX_FOLDERS = 1000


class LandlockBackend(LocalBackend):
    """Runs commands at level ``LANDLOCK``.

    On kernels before 6.12 they reach ``LANDLOCK_PARTIAL`` only if the container refuses a listener to system calls.

    >>> backend = LandlockBackend()
    >>> await backend.start()
    >>> (await backend.run(CommandRequest(("ls", "/home"), cwd="/"))).exit_code
    2
    """

    name = "landlock"
    level = IsolationLevel.LANDLOCK

    def __init__(self, settings: BackendSettings | None = None) -> None:
        super().__init__(settings)
        self._abi = 0
        self._filter = self.filter_name
        self._readable: tuple[str, ...] = ()
        self._real = frozenset[str]()
        self._system: dict[str, bool] = {}

    @property
    def version(self) -> str:
        return f"ABI {self._abi}" if self._abi else ""

    async def start(self) -> None:
        self._abi = abi_version()
        if not self._abi:
            raise ExecutionError(
                "the kernel has no Landlock: use nodes with Linux 5.13 or newer that have landlock in the kernel's "
                "list of security modules (lsm=)"
            )
        # Each path is a rule that is added for every command, so paths inside others are omitted.
        self._readable = (
            *outermost(map(os.path.realpath, system_paths(network=self.settings.network))),
            *self.settings.readable,
        )
        self._real = frozenset(map(os.path.realpath, self._readable))
        truncation = (TRUNCATION,) if self._abi < _TRUNCATION_SINCE else ()
        without = PARTS.join((self.filter_name, *truncation))
        if self._abi >= SCOPES_SINCE:
            self._filter = without
            await super().start()
            return
        mediated = PARTS.join((self.filter_name, SIGNALS, *truncation))
        self._launcher.filters = (mediated, without)
        await super().start()
        self._filter = mediated
        if self._launcher.refusal:
            self._filter = without
            self.level = IsolationLevel.LANDLOCK_PARTIAL
            self.shortfall = (
                "commands can signal other processes of their user, because the container refuses a seccomp listener "
                f"({self._launcher.refusal}), which Linux before 6.12 needs: remove what refuses it from the container "
                "(its own listener, or its seccomp profile), or use nodes with Linux 6.12 or newer"
            )

    def environment(self, request: CommandRequest) -> dict[str, str]:
        """Return the variables, without directories of ``PATH`` that are closed to the command.

        With these, the error of a missing program would be "Permission denied" instead of "not found".
        """
        env = super().environment(request)
        if "PATH" in env:
            granted = self._real.union(map(os.path.realpath, (*request.readable, *request.writable)))
            folders = [folder for folder in env["PATH"].split(os.pathsep) if folder and self._is_open(folder, granted)]
            env["PATH"] = os.pathsep.join(folders) or os.defpath
        return env

    def _is_open(self, folder: str, granted: frozenset[str]) -> bool:
        # The system does not change while the worker lives; workspaces do.
        is_open = self._system.get(folder)
        if is_open is None:
            is_open = is_within(os.path.realpath(folder), self._real)
            if len(self._system) < _MAX_FOLDERS:
                self._system[folder] = is_open
        return is_open or is_within(os.path.realpath(folder), granted)

    def confinement(self, request: CommandRequest, *, tty: bool = False) -> Confinement:
        return Confinement(
            read=(*self._readable, *request.readable),
            write=request.writable,
            files=True,
            scope=self._abi >= SCOPES_SINCE,
            filter=self._filter,
        )
