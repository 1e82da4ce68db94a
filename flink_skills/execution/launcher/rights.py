"""Landlock rights of commands, as numbers for the kernel.

Only the process that :func:`~flink_skills.execution.launcher.preparation.prepare` forks imports this module: the
library's flags are slow to combine, and its modules would be part of every fork.
"""

from __future__ import annotations

from landlockpy import AccessFS, Scope, abi_version
from landlockpy.flags import fs_for_abi, scope_for_abi

from flink_skills.execution.launcher.restrictions import Rights

__all__ = ["rights_of_kernel"]

_READ = AccessFS.EXECUTE | AccessFS.READ_FILE | AccessFS.READ_DIR
# All rights except those for devices, which need root anyway. RESOLVE_UNIX is never granted, and IOCTL_DEV only for a
# terminal.
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
# The rights that can enlarge a workspace. The limits of a process do not count folders, links and names, nor what is
# written into the holes of a file through a mapping.
_GROWTH = (
    AccessFS.WRITE_FILE
    | AccessFS.MAKE_DIR
    | AccessFS.MAKE_REG
    | AccessFS.MAKE_SOCK
    | AccessFS.MAKE_FIFO
    | AccessFS.MAKE_SYM
    | AccessFS.REFER
)
# The kernel accepts only these for a rule on a file that is not a folder.
_OF_FILES = AccessFS.EXECUTE | AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE
_DEVICE = AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE
# Every domain denies this right unless it grants it. Before Linux 5.19 the kernel always denies it.
_DOMAIN = AccessFS.REFER
# A device that only root can make.
_DOMAIN_BEFORE = AccessFS.MAKE_BLOCK
_SCOPES = Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL


def rights_of_kernel() -> Rights | None:
    """Return the rights that the kernel supports. Return None if it has no Landlock."""
    abi = abi_version()
    if abi == 0:
        return None
    every = fs_for_abi(abi)
    return Rights(
        every=int(every),
        read=int(_READ & every),
        write=int(_WRITE & every),
        growth=int(_GROWTH & every),
        of_files=int(_OF_FILES & every),
        device=int(_DEVICE & every),
        # A process that opens its terminal by name can do no more with it than with its standard input.
        terminal=int((_DEVICE | AccessFS.IOCTL_DEV) & every),
        write_file=int(AccessFS.WRITE_FILE),
        domain=int((_DOMAIN & every) or _DOMAIN_BEFORE),
        scopes=int(_SCOPES & scope_for_abi(abi)),
    )
