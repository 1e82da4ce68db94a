"""The skills on offer in a request, read off its system text."""

from __future__ import annotations

from flink_skills.manager.menu import parse_menu

__all__ = ["has_menu", "offered_skills"]

_TAG = "<available_skills>"


def has_menu(system: str) -> bool:
    """Whether ``system`` may hold a menu, without parsing it."""
    return _TAG in system


def offered_skills(system: str) -> list[tuple[str, str]]:
    """Names and descriptions of the menu in ``system``; empty without one."""
    return parse_menu(system) if has_menu(system) else []
