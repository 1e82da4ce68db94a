"""What to do when the machine refuses a file: it is full, or has no descriptors left."""

from __future__ import annotations

import errno

__all__ = ["MACHINE_FULL", "NO_DESCRIPTORS", "os_error_hint"]

MACHINE_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors that go away when somebody gives back what the machine has too little of."""

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Those of them that are not about a disk."""

_FIXES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit on open files",
    errno.ENOLCK: "choose a file system with locks, such as a local disk",
    errno.EROFS: "mount it so that it can be written",
}


def os_error_hint(error: OSError) -> str:
    """What an operator can do about ``error``; empty where that does not follow from its number.

    >>> machine_mend(OSError(errno.ENOSPC, "No space left on device"))
    'free some space'
    """
    return _FIXES.get(error.errno or 0, "")
