"""How much of a storm: what ``make test`` has time for, or all of it with ``STRESS=nightly``."""

from __future__ import annotations

import os

__all__ = ["NIGHTLY"]

NIGHTLY = os.environ.get("STRESS") == "nightly"
