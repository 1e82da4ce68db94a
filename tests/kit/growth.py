"""Whether the CPU time of a call grows linearly with its input."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["grows_linearly"]

_LARGER = 10
# A quadratic call takes 100 times as long. What a call takes anyway, and noise of the machine, is not counted.
_MAX_TIMES = 35
_NOISE_SECONDS = 0.25


def grows_linearly(call: Callable[[str], object], make: Callable[[int], str], size: int) -> bool:
    """Return True unless ``call`` takes much more than 10 times as long for an input of ``size`` as for a tenth of it.

    Args:
        call: Reads an input.
        make: Returns an input of about so many characters.
        size: Characters of the larger input.
    """
    small = min(_seconds(call, make(size // _LARGER)) for _ in range(3))
    return _seconds(call, make(size)) <= _MAX_TIMES * small + _NOISE_SECONDS


def _seconds(call: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    call(text)
    return time.process_time() - start
