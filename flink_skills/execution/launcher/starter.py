"""A process that becomes a command when it receives the order.

It prepares what is the same for all orders: it is forked, becomes the command's user, enters namespaces and filters
system calls. A supervisor has one ready while it waits, so that the next command does not wait for this.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.linux import Listener
from flink_skills.execution.launcher.namespaces import enter
from flink_skills.execution.launcher.process_tree import Reaped
from flink_skills.execution.launcher.protocol import HEADER, Confinement, Order, Orders, Restrictions, is_mediated

# A program inherits ignored signals. Python ignores two and the launcher handles the others. The zygote has reset those
# that its parents ignored.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)
_CONTROL = 3  # after standard input, output and error
_MAX_DESCRIPTORS = 4  # these three, and the Landlock rules
# Messages that accompany the descriptor of the filter's listener.
_KILLABLE, _INTERRUPTIBLE = b"k", b"i"

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TERMINALS = ("/dev/tty", "/proc/self/fd/0")
_NO_STORE = ("/dev", "/proc")
_OPEN_FILES = "RLIMIT_NOFILE"
# Errors of a file that is not a program, or not one for this user; any other error is a failed set-up.
_NO_PROGRAM = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.ELOOP),
        *(errno.ENAMETOOLONG, errno.ELIBBAD),
    }
)


def in_common(confinement: Confinement) -> Confinement:
    """Return what a confinement has in common with those of other commands of the same worker."""
    return confinement._replace(read=(), write=(), namespaces=())


class Starter:
    """A starter for the supervisor. It has the confinement ``common``, and runs in ``namespaces`` if given.

    ``pid`` is the process id, 0 if it could not enter the namespaces. ``listener`` receives the calls that a mediated
    filter does not execute. It is open when the command starts, and None without such a filter. Raises
    :class:`OSError` if no process can be started. ``reaped`` accounts for what was needed meanwhile.
    """

    def __init__(
        self, common: Confinement, namespaces: Mapping[str, int], restrictions: Restrictions, reaped: Reaped
    ) -> None:
        self.common = common
        self.listener: Listener | None = None
        self._failure = b""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _become_command(common, namespaces, restrictions, theirs.fileno(), parent)
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self.pid = self._follow(pid, reaped) if namespaces else pid

    @property
    def failure(self) -> str:
        """The error before the start of the command's program. Empty without an error."""
        found = self._failure
        with suppress(OSError):
            while self._has_message() and (chunk := self._socket.recv(4096)):
                found += chunk
        return found.decode("utf-8", "replace")

    def is_waiting(self) -> bool:
        """Return True if the process waits for an order: it lives, and has not reported an error."""
        if self._has_message() and self.listener is None and is_mediated(self.common.filter):
            self._receive_listener()
        return self.pid != 0 and not self._failure and not self._has_message()

    def start(self, order: Order, stdio: list[int], ruleset: int) -> None:
        """Have the process become the command of ``order``. If it cannot, :attr:`failure` is the reason."""
        body = order._replace(confinement=self.common).encode()
        descriptors = [*stdio, *((ruleset,) if ruleset >= 0 else ())]
        try:
            socket.send_fds(self._socket, [body[: HEADER.size]], descriptors)
            self._socket.sendall(body[HEADER.size :])
            if self.listener is None and is_mediated(self.common.filter):
                self._receive_listener()
        except OSError:
            return  # it has ended, as the caller will find

    def close(self) -> None:
        """Release the process. It ends if it still waits."""
        self._socket.close()
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def _has_message(self) -> bool:
        return bool(select.select([self._socket], [], [], 0)[0])

    def _receive_listener(self) -> None:
        """Receive the listener, or the error before it."""
        message, descriptors, _, _ = socket.recv_fds(self._socket, 4096, 1)
        if descriptors:
            self.listener = Listener(descriptors[0], killable=message[:1] == _KILLABLE)
            message = message[1:]
        self._failure += message

    def _follow(self, pid: int, reaped: Reaped) -> int:
        """Return the id of the process inside, which the one that is forked first leaves behind."""
        message = self._socket.recv(4096)
        reaped.reap(pid)
        number, _, self._failure = message.partition(b"\n")
        if number.isdigit():
            return int(number)
        self._failure = message or b"cannot enter namespaces: the process was killed"
        return 0


def prepare_rules(order: Order, pid: int, restrictions: Restrictions) -> int:
    """Return a descriptor of the Landlock rules for ``order``, which process ``pid`` is to run.

    Return -1 if it needs none, or if it has to prepare them itself because it sees other files. The supervisor prepares
    all others: after a fork, the first use of each page of memory takes time.
    """
    confinement = order.confinement
    rights = restrictions.rights
    if rights is None:
        if confinement.files or confinement.scope:
            raise OSError(errno.EOPNOTSUPP, "the kernel has no Landlock")
        return -1
    scopes = rights.scopes if confinement.scope else 0
    if not confinement.files:
        # Without network rules: the filter decides which sockets there are, for all families alike.
        handled = rights.growth if order.full and confinement.filter else 0
        if confinement.scope and not scopes:
            handled |= rights.domain
        return linux.create_ruleset(handled, scopes) if handled or scopes else -1
    ruleset = linux.create_ruleset(rights.every, scopes)
    for path in confinement.read:
        _allow(ruleset, path, rights.read, rights.of_files)
    for path in _DEVICES:
        _allow(ruleset, path, rights.device, rights.of_files)
    # Runtimes read about themselves. Other processes, and so their command lines, stay closed.
    _allow(ruleset, f"/proc/{pid}", rights.read, rights.of_files)
    write = rights.write & ~rights.growth if order.full else rights.write
    for path in confinement.write:
        _allow(ruleset, path, write, rights.of_files)
    return ruleset


def _become_command(
    common: Confinement, namespaces: Mapping[str, int], restrictions: Restrictions, control: int, parent: int
) -> NoReturn:
    """Prepare this process, wait for an order at the descriptor ``control``, and become its command.

    Runs after the fork of ``parent`` and never returns. An error is written to ``control``, which is closed when the
    program starts: the exit code of a command is never mistaken for a failed set-up. Only a program that does not exist
    or cannot be executed is the command's own failure, reported as shells report it.
    """
    step = "detach"
    try:
        os.setsid()
        os.umask(0o077)
        linux.die_first_when_memory_is_short()
        if common.user is not None:
            step = f"become the user {common.user[0]}:{common.user[1]}"
            linux.switch_user(common.user)
        step = "drop privileges"
        linux.forbid_new_privileges()
        # After the user, because the kernel forgets it when the user changes.
        linux.die_with_parent(parent)
        if namespaces:
            step = "enter namespaces"
            enter(namespaces, control)
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        if control != _CONTROL:
            control = os.dup2(control, _CONTROL, inheritable=False)
        linux.close_from(_CONTROL + 1)
        orders = socket.socket(fileno=control)  # stays open for errors of later steps
        if common.filter:
            step = "filter system calls (seccomp)"
            _filter_calls(restrictions.filters[common.filter], orders if is_mediated(common.filter) else None)
        step = "receive an order"
        received = Orders(orders, _MAX_DESCRIPTORS).next()
        if received is None:
            raise EOFError("the order is incomplete")
        order, descriptors = received
        step = "set limits"
        # That of open files is the last one: the next steps open some.
        for name, value in order.rlimits.items():
            if name != _OPEN_FILES:
                # At the hard limit of CPU time the kernel sends SIGKILL, which does not name the reason.
                linux.set_limit(getattr(resource, name), value, spare=1 if name == "RLIMIT_CPU" else 0)
        step = f"enter the working directory {order.cwd!r}"
        os.chdir(order.cwd)
        step = "connect standard input and output"
        for target, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, target, inheritable=True)
        if order.tty:
            step = "take the terminal"
            linux.take_terminal(0)
        step = "confine files (Landlock)"
        _confine_files(order, descriptors[3] if len(descriptors) > 3 else -1, restrictions)
        linux.close_from(_CONTROL + 1)
        step = "limit open files"
        if _OPEN_FILES in order.rlimits:
            linux.set_limit(resource.RLIMIT_NOFILE, order.rlimits[_OPEN_FILES])
        step = f"start {order.argv[0]!r}"
        _execute(order)
    except BaseException as error:
        os.write(control, f"cannot {step}: {error}".encode("utf-8", "replace")[:4096])
    finally:
        os._exit(127)


def _filter_calls(program: bytes, listening: socket.socket | None) -> None:
    """Filter the system calls of this process, and send the listener to the socket ``listening``."""
    if listening is None:
        linux.load_filter(program)
        return
    descriptor, killable = linux.load_filter_and_listen(program)
    socket.send_fds(listening, [_KILLABLE if killable else _INTERRUPTIBLE], [descriptor])
    os.close(descriptor)


def _confine_files(order: Order, ruleset: int, restrictions: Restrictions) -> None:
    """Confine files, signals and abstract sockets by Landlock, as ``order`` requires and the kernel supports.

    ``ruleset`` is the result of :func:`prepare_rules` in the supervisor. In a full workspace, files can be removed and
    truncated but not created or written; without Landlock, only the file size limit applies. A terminal at
    standard input can be opened by its names.
    """
    rights = restrictions.rights
    terminals = _TERMINALS if order.tty else ()
    if order.confinement.files:
        if ruleset < 0 or rights is None:
            raise OSError(errno.EBADF, "the rules are missing")
        for path in terminals:
            _allow(ruleset, path, rights.terminal, rights.terminal)
    elif ruleset >= 0 and rights is not None:
        if order.full and order.confinement.filter:
            for path in (*_NO_STORE, *terminals):
                _allow(ruleset, path, rights.write_file, rights.write_file)
        elif not rights.scopes:
            _allow(ruleset, "/", rights.domain, 0)
    if ruleset >= 0:
        linux.restrict_self(ruleset)


def _allow(ruleset: int, path: str, granted: int, of_files: int) -> None:
    """Grant the rights ``granted`` below a directory, or those of them that are ``of_files`` on anything else."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # it does not exist, or this user cannot reach it: nothing is to be granted
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            granted &= of_files
        if granted:
            linux.add_rule(ruleset, descriptor, granted)
    finally:
        os.close(descriptor)


def _execute(order: Order) -> None:
    """Execute the program. If it does not exist or cannot be executed, exit as a shell does, with 127 or 126."""
    program = order.argv[0]
    folders = [""] if "/" in program else order.env.get("PATH", os.defpath).split(os.pathsep)
    code, reason = 127, "not found"
    for folder in folders:
        path = f"{folder or '.'}/{program}" if "/" not in program else program
        try:
            os.execve(path, order.argv, order.env)  # noqa: S606 - the point of this module
        except OSError as error:
            if error.errno not in _NO_PROGRAM:
                raise
            # A directory of PATH that this user may not enter does not show whether the program exists.
            if os.path.lexists(path) and code == 127:
                code, reason = 126, error.strerror or "exec failed"
    os.write(2, f"{program}: {reason}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)
