"""The process of pytest is killed in the middle of a test."""

from __future__ import annotations

import os
import signal


def test_dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
