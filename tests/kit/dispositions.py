"""The signals that a process ignores or blocks, as its ``/proc/PID/status`` says."""

from __future__ import annotations

import re

__all__ = ["SHOW", "ignored_or_blocked"]

SHOW = ("grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
"""A command that prints them for itself."""

# The C library keeps these for itself: its posix_spawn, by which make starts programs, leaves the first one ignored,
# and no function of it changes that.
_OF_THE_C_LIBRARY = {32, 33}


def ignored_or_blocked(status: str) -> set[int]:
    """Return the numbers of the signals in the output of :data:`SHOW`."""
    masks = [int(mask, 16) for mask in re.findall(r"^Sig(?:Ign|Blk):\s*([0-9a-f]+)$", status, re.MULTILINE)]
    assert len(masks) == 2, status
    return {number for number in range(1, 65) for mask in masks if mask >> (number - 1) & 1} - _OF_THE_C_LIBRARY
