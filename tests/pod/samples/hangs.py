"""Does not end."""

from __future__ import annotations

import threading


def test_hangs() -> None:
    assert not threading.Event().wait(600)
