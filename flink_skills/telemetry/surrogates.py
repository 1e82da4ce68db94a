"""Replacement of lone surrogates in text of models."""

from __future__ import annotations

__all__ = ["replace_surrogates"]


def replace_surrogates(text: str) -> str:
    """Return ``text`` with U+FFFD for each lone surrogate, which JSON can contain but UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
