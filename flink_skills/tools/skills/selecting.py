"""What a model selects of a skill: names of documents or of tools, or all there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.skills.face import unknown_name
from flink_skills.tools.state import ALL, Selection

__all__ = ["ADD", "CLEAR", "MODES", "REPLACE", "changed", "known_names", "mode_of", "names_of", "united"]

ADD, REPLACE, CLEAR = MODES = ("add", "replace", "clear")


def mode_of(asked: str | None) -> tuple[str, str]:
    """The mode that is meant, and what to say where that is not what was asked.

    >>> mode_of(" Add "), mode_of("merge")[0]
    (('add', ''), 'replace')
    """
    mode = (asked or REPLACE).strip().lower()
    if mode in MODES:
        return mode, ""
    return REPLACE, f"There is no mode {asked!r}: took {REPLACE}. Modes: {', '.join(MODES)}."


def known_names(what: str, asked: Iterable[str], there: Sequence[str], skill: str) -> Selection:
    """The names ``asked`` as they are written ``there``; all for "*".

    Case, ``./`` and a folder that was left out do not matter where it is clear what is meant. Raises
    :class:`ArgumentError`, with near names, for one that is not there.

    >>> known_names("document", ["Guide.md", "ref/a.md"], ["docs/ref/a.md", "guide.md"], "x")
    ('guide.md', 'docs/ref/a.md')
    """
    wanted = list(asked)
    if ALL in wanted:
        return ALL
    return tuple(dict.fromkeys(_known(what, name, there, skill) for name in wanted))


def _known(what: str, asked: str, there: Sequence[str], skill: str) -> str:
    name = asked.strip().removeprefix("./")
    if name in there:
        return name
    folded = name.casefold()
    for meant in (
        [known for known in there if known.casefold() == folded],
        [known for known in there if known.casefold().endswith(f"/{folded}")],
    ):
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise ArgumentError(f"Skill {skill} has several {what}s {asked!r}: give one of {', '.join(meant)}.")
    raise ArgumentError(unknown_name(what, asked, there, place=f" in skill {skill}"))


def changed(before: Selection, mode: str, asked: Selection) -> Selection:
    """What is selected after ``asked`` in ``mode``.

    >>> changed(("a",), "add", ("b",)), changed(("a",), "replace", ("b",)), changed(("a",), "clear", ("b",))
    (('a', 'b'), ('b',), ())
    """
    if mode == CLEAR:
        return ()
    return asked if mode == REPLACE else united(before, asked)


def united(before: Selection, more: Selection) -> Selection:
    """What is selected once ``more`` is.

    >>> united(("a.md",), ("b.md", "a.md")), united(("a.md",), "*")
    (('a.md', 'b.md'), '*')
    """
    if ALL in (before, more):
        return ALL
    return tuple(dict.fromkeys((*before, *more)))


def names_of(selection: Selection, there: Iterable[str]) -> list[str]:
    """The names that ``selection`` stands for (never empty when something was selected)."""
    return list(there if selection == ALL else selection)
