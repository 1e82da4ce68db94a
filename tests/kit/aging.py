"""Workspaces and shared copies of skills that look as if they were not used for a while."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

__all__ = ["age_copy", "age_workspace"]


def age_workspace(root: Path, seconds: float) -> None:
    """Have ``metadata.json`` say that the workspace was last used ``seconds`` ago."""
    file = root / "metadata.json"
    moment = time.time() - seconds
    text = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(moment))}.{int(moment * 1000) % 1000:03d}Z"
    _replace(file, json.dumps({**json.loads(file.read_text()), "last_access": text}))


def age_copy(digest: Path, seconds: float) -> None:
    """Have the shared copy of a skill say that it was last used ``seconds`` ago."""
    _replace(digest / "used", str(time.time() - seconds))


def _replace(file: Path, text: str) -> None:
    building = file.with_name(".aged")
    building.write_text(text)
    os.replace(building, file)
