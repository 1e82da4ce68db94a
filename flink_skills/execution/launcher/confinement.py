"""Confine the process that becomes a command by Landlock. What is done cannot be undone."""

from __future__ import annotations

import os
import stat

from landlockpy import AccessFS, AccessNet, Ruleset, Scope, abi_version

from flink_skills.execution.launcher.protocol import Confinement

__all__ = ["confine_files", "prepare"]

_READ = AccessFS.EXECUTE | AccessFS.READ_FILE | AccessFS.READ_DIR
# All but devices: to make them needs root anyway. RESOLVE_UNIX is given to nobody, IOCTL_DEV for a terminal only.
_WRITE = (
    _READ
    | AccessFS.WRITE_FILE
    | AccessFS.REMOVE_DIR
    | AccessFS.REMOVE_FILE
    | AccessFS.MAKE_DIR
    | AccessFS.MAKE_REG
    | AccessFS.MAKE_SOCK
    | AccessFS.MAKE_FIFO
    | AccessFS.MAKE_SYM
    | AccessFS.REFER
    | AccessFS.TRUNCATE
)
# What makes a workspace larger. The limits of a process do not count folders, links and names, nor what is written into
# the holes of a file through a mapping.
_GROWTH = (
    AccessFS.WRITE_FILE
    | AccessFS.MAKE_DIR
    | AccessFS.MAKE_REG
    | AccessFS.MAKE_SOCK
    | AccessFS.MAKE_FIFO
    | AccessFS.MAKE_SYM
    | AccessFS.REFER
)
# What the kernel takes for a rule on a file that is no folder.
_OF_FILES = AccessFS.EXECUTE | AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE
# Worked out once: flags are slow to combine.
_READ_FILE = _READ & _OF_FILES
_WRITE_FILE = _WRITE & _OF_FILES
_SHRINK = _WRITE & ~_GROWTH
_SHRINK_FILE = _SHRINK & _OF_FILES
_DEVICE = AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# The terminal of the command: whatever opens it can do no more with it than with its standard input, which it is.
_TERMINAL = _DEVICE | AccessFS.IOCTL_DEV
_TERMINALS = ("/dev/tty", "/proc/self/fd/0")
_NO_STORE = ("/dev", "/proc")
_SCOPES = Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL


def prepare() -> None:
    """Do now what would be done anew in every command: the library looks for the C library when it is first used."""
    abi_version()


def confine_files(confinement: Confinement, *, full: bool = False, terminal: bool = False) -> None:
    """Confine files, signals and abstract sockets by Landlock, as ``confinement`` says and the kernel can.

    In a ``full`` workspace files can be removed and cut off, and nothing made or written. A ``terminal`` at standard
    input can be opened by its names. Raises :class:`OSError` where the kernel has no Landlock, unless it is asked for
    ``full`` alone: then the limit of a file's size has to do.
    """
    if not confinement.files and not confinement.scope and abi_version() == 0:
        return
    # Without network rules: which sockets there may be is the filter's matter, for all families alike.
    with Ruleset(
        handled_fs=None if confinement.files else _GROWTH if full else AccessFS.NONE,
        handled_net=AccessNet.NONE,
        scoped=_SCOPES if confinement.scope else Scope.NONE,
    ) as ruleset:
        if confinement.files:
            _grant(ruleset, confinement, full=full)
            if terminal:
                for path in _TERMINALS:
                    _allow(ruleset, path, _TERMINAL, _TERMINAL)
        elif full:
            for path in (*_NO_STORE, *(_TERMINALS if terminal else ())):
                _allow(ruleset, path, AccessFS.WRITE_FILE, AccessFS.WRITE_FILE)
        ruleset.restrict()


def _grant(ruleset: Ruleset, confinement: Confinement, *, full: bool) -> None:
    for path in confinement.read:
        _allow(ruleset, path, _READ, _READ_FILE)
    for path in _DEVICES:
        _allow(ruleset, path, _DEVICE, _DEVICE)
    # Runtimes read about themselves. Other processes, and so their command lines, stay closed.
    _allow(ruleset, f"/proc/{os.getpid()}", _READ, _READ_FILE)
    for path in confinement.write:
        _allow(ruleset, path, *((_SHRINK, _SHRINK_FILE) if full else (_WRITE, _WRITE_FILE)))


def _allow(ruleset: Ruleset, path: str, folder: AccessFS, file: AccessFS) -> None:
    """Grant ``folder`` rights, or those of a ``file``; the library leaves out what the kernel does not know."""
    try:
        ruleset.allow_path(path, folder if stat.S_ISDIR(os.stat(path).st_mode) else file)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # not there, or closed to this user: then nothing is to be granted
