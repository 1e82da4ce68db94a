"""Confine the process that becomes a command by Landlock. What is done cannot be undone."""

from __future__ import annotations

import errno
import os
import stat

from flink_skills.execution.launcher import linux
from flink_skills.execution.launcher.protocol import Order
from flink_skills.execution.launcher.restrictions import Restrictions

__all__ = ["confine_files", "prepare_rules"]

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TERMINALS = ("/dev/tty", "/proc/self/fd/0")
_NO_STORE = ("/dev", "/proc")


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
        # Without network rules: which sockets there may be is the filter's matter, for all families alike.
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


def confine_files(order: Order, ruleset: int, restrictions: Restrictions) -> None:
    """Confine files, signals and abstract sockets by Landlock, as ``order`` says and the kernel can.

    ``ruleset`` is the result of :func:`prepare_rules` in the supervisor. In a full workspace, files can be removed and
    truncated but not created or written: where the kernel has no Landlock, the limit of a file's size has to do. A
    terminal at standard input can be opened by its names.
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
    """Grant the rights ``granted`` below a folder, or those of them that are ``of_files`` on anything else."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # not there, or closed to this user: then nothing is to be granted
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            granted &= of_files
        if granted:
            linux.add_rule(ruleset, descriptor, granted)
    finally:
        os.close(descriptor)
