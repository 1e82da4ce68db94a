"""Tables of cases in YAML files next to their tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["read_cases", "read_rows"]


def read_cases(test: str, name: str) -> list[dict[str, Any]]:
    """Return the cases of the file ``name`` in the folder of the module ``test``."""
    found: list[dict[str, Any]] = yaml.safe_load(Path(test).with_name(name).read_text(encoding="utf-8"))
    return found


def read_rows(test: str, name: str) -> list[tuple[Any, ...]]:
    """Return the values of the cases, in the order of the arguments of the test."""
    return [tuple(case.values()) for case in read_cases(test, name)]
