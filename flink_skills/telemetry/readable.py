"""Text of models as every encoding takes it."""

from __future__ import annotations

__all__ = ["readable"]


def readable(text: str) -> str:
    """``text`` with U+FFFD for each lone surrogate: JSON may write half of a character, and UTF-8 may not."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
