"""Text for a model about its tools for skills: a sentence before the list of skills, and advice after it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from flink_skills.manager.menu import INTRODUCTION
from flink_skills.tools.profiles import LOAD_SKILL

if TYPE_CHECKING:
    from flink_skills.tools.settings import SkillSettings

__all__ = ["HEADING", "guidance", "introduction"]

HEADING = "Tooling and workspace guidance:"

_SKILL_LOAD = """\
You have skills: instructions for kinds of task. When a description below fits the task, call skill_load first \
and follow its instructions. If none fits, do without.
"""
_NO_LOADING = "You have skills: instructions and programs for certain kinds of task.\n"

# Each line is for a model that has all of the tools before it. In the order of the work: discover, inspect, load,
# optimize, document, execute.
_LINES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("skill_list",), "- Discover: the list above, or skill_list."),
    (
        ("skill_list_docs", "skill_list_tools"),
        "- Inspect: skill_list_docs, skill_list_tools, before you load more than you need.",
    ),
    (("skill_list_docs",), "- Inspect: skill_list_docs, before you load more than you need."),
    (("skill_list_tools",), "- Inspect: skill_list_tools, before you load more than you need."),
    (
        ("skill_load", "skill_unload"),
        "- Load: skill_load, then act; skill_unload what is done.",
    ),
    (("skill_load",), "- Load: skill_load first, then act."),
    (("skill_select_tools",), "- Optimize: skill_select_tools, when few tools are enough."),
    (("skill_select_docs",), "- Document: skill_select_docs, only those needed now."),
    (
        ("skill_run",),
        "- Execute: skill_run, for commands that a skill asks for; no general shell. Inputs are in "
        "$WORK_DIR/inputs; write results to $OUTPUT_DIR.",
    ),
    (
        ("skill_exec", "skill_write_stdin"),
        "- skill_exec for programs that ask, show menus or run long; answer with skill_write_stdin. Prefer editor_text "
        "to an editor.",
    ),
)


def introduction(tool_names: Collection[str]) -> str:
    """What is said before the list of skills to a model with these tools; ends with a line end.

    >>> "skill_load" in introduction(["skill_load"]), "load" in introduction(["skill_run"])
    (True, False)
    """
    if LOAD_SKILL in tool_names:
        return INTRODUCTION
    return _SKILL_LOAD if "skill_load" in tool_names else _NO_LOADING


def guidance(settings: SkillSettings, tool_names: Collection[str]) -> str:
    """What is said after the list of skills: ``settings.guidance``, else what these tools are for.

    Names no tool that is not in ``tool_names``. "" where ``settings.guidance`` is, and for the tools of ``core``, which
    need no more than their descriptions.
    """
    if settings.guidance is not None:
        return settings.guidance
    lines: list[str] = []
    said: set[str] = set()
    for tools, line in _LINES:
        # Of the lines on one tool the first that fits counts: it says most.
        if said.isdisjoint(tools) and all(tool in tool_names for tool in tools):
            said.update(tools)
            lines.append(line)
    return "\n".join([HEADING, *lines]) if lines else ""
