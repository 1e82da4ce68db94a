"""Tool profiles: the names of the tools for skills, by the profiles that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flink_skills.errors import ResourceError, UnknownNameError

if TYPE_CHECKING:
    from flink_skills.skill import AgentSkill

__all__ = [
    "COMMAND_TOOLS",
    "CORE",
    "FACES",
    "FULL",
    "KNOWLEDGE_ONLY",
    "LOADERS",
    "LOAD_SKILL",
    "PROFILES",
    "TOOLS_ABOUT_TOOLS",
    "TOOL_FILES",
    "TOOL_NAMES",
    "brings_tools",
    "named_tools",
    "resolve_tools",
]

CORE, FULL, KNOWLEDGE_ONLY = "core", "full", "knowledge_only"
LOAD_SKILL = "load_skill"
#: The tools that load skills.
LOADERS = frozenset({LOAD_SKILL, "skill_load"})

_SKILLS = "flink_skills.tools.skills"
_RUNS = "flink_skills.tools.runs"

#: The class of each tool. It is created with the ToolServices of a model, and imported only if a model has it.
FACES: Mapping[str, str] = {
    LOAD_SKILL: f"{_SKILLS}.skill_loading:LoadSkill",
    "unload_skill": f"{_SKILLS}.skill_loading:UnloadSkill",
    "load_skill_resource": f"{_SKILLS}.skill_resource:LoadSkillResource",
    "execute_shell_command": "flink_skills.tools.commands.shell_tool:ExecuteShellCommand",
    "skill_list": f"{_SKILLS}.skill_contents:SkillList",
    "skill_load": f"{_SKILLS}.skill_loading:SkillLoad",
    "skill_unload": f"{_SKILLS}.skill_loading:SkillUnload",
    "skill_list_docs": f"{_SKILLS}.skill_contents:SkillListDocs",
    "skill_select_docs": f"{_SKILLS}.skill_contents:SkillSelectDocs",
    "skill_list_tools": f"{_SKILLS}.skill_contents:SkillListTools",
    "skill_select_tools": f"{_SKILLS}.skill_contents:SkillSelectTools",
    "skill_run": f"{_RUNS}.skill_run:SkillRun",
    "skill_exec": f"{_RUNS}.skill_exec:SkillExec",
    "skill_write_stdin": f"{_RUNS}.skill_exec:SkillWriteStdin",
    "skill_poll_session": f"{_RUNS}.skill_exec:SkillPollSession",
    "skill_kill_session": f"{_RUNS}.skill_exec:SkillKillSession",
}

#: Every tool for skills. No tool of a job's own may have one of these names.
TOOL_NAMES = frozenset(FACES)

#: Tools that run commands, or use the process of a command. A job without a shell has none of them.
COMMAND_TOOLS = frozenset(
    {
        *("execute_shell_command", "skill_run"),
        *("skill_exec", "skill_write_stdin", "skill_poll_session", "skill_kill_session"),
    }
)

#: Files in which a skill brings tools. tools.dynamic has the same names, and most models do not import it.
TOOL_FILES = frozenset({"tools.py", "schema.json"})

#: Tools about the tools of skills, which no model needs if no skill has any.
TOOLS_ABOUT_TOOLS = frozenset({"skill_list_tools", "skill_select_tools"})

PROFILES: Mapping[str, tuple[str, ...]] = {
    CORE: (LOAD_SKILL, "unload_skill", "load_skill_resource", "execute_shell_command"),
    FULL: tuple(name for name in FACES if name.startswith("skill_") or name == "load_skill_resource"),
    KNOWLEDGE_ONLY: ("skill_list", "skill_load", "skill_unload", "skill_list_docs", "skill_select_docs"),
}


def resolve_tools(wanted: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The name of the profile ("" for a mixture) and the names of its tools, in the order of their declaration here.

    ``wanted`` are names of profiles and of tools. Raises :class:`UnknownNameError` for any other.

    >>> resolve_tools(["core"])[0], resolve_tools(["skill_list", "load_skill"])
    ('core', ('', ('load_skill', 'skill_list')))
    """
    chosen: set[str] = set()
    for name in _parts(wanted):
        if name in PROFILES:
            chosen.update(PROFILES[name])
        elif name in FACES:
            chosen.add(name)
        else:
            raise UnknownNameError("tool", name, [*PROFILES, *FACES])
    tools = tuple(name for name in FACES if name in chosen)
    return next((profile for profile, names in PROFILES.items() if set(names) == chosen), ""), tools


def brings_tools(skill: AgentSkill) -> bool:
    """Return True if a skill has a file with tools. A skill that cannot be read counts: its tools report the error."""
    try:
        return not TOOL_FILES.isdisjoint(skill.files.paths())
    except ResourceError:
        return True


def named_tools(wanted: Sequence[str]) -> frozenset[str]:
    """Return the tools that ``wanted`` lists by name, without those of a profile.

    >>> sorted(named_tools(["core", "skill_list"]))
    ['skill_list']
    """
    return TOOL_NAMES.intersection(_parts(wanted))


def _parts(wanted: Sequence[str]) -> list[str]:
    # Names have no commas: what is written with them is a list all the same.
    return [part.strip() for item in wanted for part in item.split(",")]
