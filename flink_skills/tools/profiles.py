"""The tools for skills of one model: their profiles, and how the model gets and keeps skills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from flink_skills.errors import ConfigError, ResourceError, UnknownNameError
from flink_skills.options import Option, SkillConfig, SkillOptions

if TYPE_CHECKING:
    from flink_skills.skill import AgentSkill


CORE, FULL, KNOWLEDGE_ONLY = "core", "full", "knowledge_only"
LOAD_SKILL = "load_skill"
#: The tools that load skills.
LOADERS = frozenset({LOAD_SKILL, "skill_load"})

_SKILLS = "flink_skills.tools.skills"

#: The class of each tool. It is created with the ToolServices of a model, and imported only if a model has it.
FACES: Mapping[str, str] = {
    LOAD_SKILL: f"{_SKILLS}.skill_loading:LoadSkill",
    "unload_skill": f"{_SKILLS}.skill_loading:UnloadSkill",
    "load_skill_resource": f"{_SKILLS}.skill_resource:LoadSkillResource",
    "execute_shell_command": f"{_SKILLS}.shell_tool:ExecuteShellCommand",
    "skill_list": f"{_SKILLS}.skill_contents:SkillList",
    "skill_load": f"{_SKILLS}.skill_loading:SkillLoad",
    "skill_unload": f"{_SKILLS}.skill_loading:SkillUnload",
    "skill_list_docs": f"{_SKILLS}.skill_contents:SkillListDocs",
    "skill_select_docs": f"{_SKILLS}.skill_contents:SkillSelectDocs",
    "skill_list_tools": f"{_SKILLS}.skill_contents:SkillListTools",
    "skill_select_tools": f"{_SKILLS}.skill_contents:SkillSelectTools",
    "skill_run": f"{_SKILLS}.skill_run:SkillRun",
    "skill_exec": f"{_SKILLS}.skill_exec:SkillExec",
    "skill_write_stdin": f"{_SKILLS}.skill_exec:SkillWriteStdin",
    "skill_poll_session": f"{_SKILLS}.skill_exec:SkillPollSession",
    "skill_kill_session": f"{_SKILLS}.skill_exec:SkillKillSession",
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
    """Return the name of the profile, "" for a mixture, and the names of its tools in the order of :data:`FACES`.

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
    # Names have no commas, so a string with commas is a list.
    return [part.strip() for item in wanted for part in item.split(",")]


Lifetime = Literal["turn", "once", "session"]
Content = Literal["system", "tool-result"]

#: The settings that a chat model can have, and the options of the job that apply otherwise.
MODEL_KEYS: Mapping[str, Option[Any]] = {
    "skill_tools": SkillOptions.TOOLS,
    "skill_lifetime": SkillOptions.LOAD_LIFETIME,
    "skill_content": SkillOptions.LOAD_CONTENT,
    "max_loaded_skills": SkillOptions.MAX_LOADED,
    "skill_guidance": SkillOptions.PROMPT_GUIDANCE,
    "run_code": SkillOptions.CODE_ENABLED,
}


@dataclass(frozen=True)
class SkillSettings:
    """How a model gets and keeps skills.

    Attributes:
        profile: The profile of ``tools``. Empty for a list of tools.
        tools: Names of tools.
        named: The ``tools`` that the user listed by name.
        lifetime: When a loaded skill is unloaded.
        content: Where requests have the content of loaded skills.
        max_loaded: Maximum number of loaded skills. 0: no limit.
        guidance: Text about the tools. None: the default text.
        bundled_off: The reason why bundled tools are not offered, with the option to set. Empty if they are offered.
        runs_code: True if code in answers is run.
    """

    profile: str = CORE
    tools: tuple[str, ...] = PROFILES[CORE]
    named: frozenset[str] = frozenset()
    lifetime: Lifetime = "session"
    content: Content = "tool-result"
    max_loaded: int = 0
    guidance: str | None = None
    bundled_off: str = ""
    runs_code: bool = False

    @property
    def loads_in_place(self) -> bool:
        """True if the result of ``load_skill`` contains the instructions and stays in the conversation."""
        return self.content == "tool-result" and self.lifetime == "session"

    @property
    def bundled(self) -> bool:
        """True if the tools that a skill brings itself are offered."""
        return not self.bundled_off

    def tools_for(self, *, sees_skills: bool) -> tuple[str, ...]:
        """Return the tools of a model. One that sees no skill has only those tools for commands that it names."""
        return tuple(name for name in self.tools if sees_skills or name in self.named or name not in COMMAND_TOOLS)

    @classmethod
    def of(cls, config: SkillConfig, model: Mapping[str, Any] | None = None) -> SkillSettings:
        """Return the settings of a model in a job. ``model`` has those of :data:`MODEL_KEYS` that the model sets.

        Raises :class:`ConfigError`, which names the key or the option.

        >>> SkillSettings.of(SkillConfig(), {"skill_tools": "full"}).lifetime
        'turn'
        """
        own = model or {}

        def get(key: str) -> Any:
            option = MODEL_KEYS[key]
            if key not in own:
                return config.get(option)
            try:
                return option.read(own[key])
            except ConfigError as error:
                raise ConfigError(f"{key}={own[key]!r}: {str(error).rpartition(': ')[2]}") from None

        place = "skill_tools" if "skill_tools" in own else f"option {SkillOptions.TOOLS.key}"
        try:
            wanted = get("skill_tools")
            profile, tools = resolve_tools(wanted)
        except UnknownNameError as error:
            raise ConfigError(f"{place}: {error}") from None
        _check_loadable(tools, config, place)
        by_hand = LOAD_SKILL in tools
        lifetime, content = get("skill_lifetime"), get("skill_content")
        runs_code = get("run_code")
        if runs_code and not config.get(SkillOptions.SHELL_ENABLED):
            code = "run_code" if "run_code" in own else f"option {SkillOptions.CODE_ENABLED.key}"
            raise ConfigError(f"{code}: code runs in the sandbox, and {SkillOptions.SHELL_ENABLED.key} is false")
        return cls(
            profile=profile,
            tools=tools,
            named=named_tools(wanted),
            lifetime=cast(Lifetime, ("session" if by_hand else "turn") if lifetime == "auto" else lifetime),
            content=cast(Content, ("tool-result" if by_hand else "system") if content == "auto" else content),
            max_loaded=get("max_loaded_skills"),
            guidance=get("skill_guidance"),
            runs_code=runs_code,
            bundled_off=_bundled_off(tools, config, place),
        )


def _bundled_off(tools: tuple[str, ...], config: SkillConfig, place: str) -> str:
    """Return the reason why a model with ``tools`` is not offered those that skills bring. Return "" if it is."""
    wanted = config.get(SkillOptions.BUNDLED_TOOLS)
    if not config.get(SkillOptions.SHELL_ENABLED):
        return f"{SkillOptions.SHELL_ENABLED.key} is false"
    if wanted == "false":
        return f"{SkillOptions.BUNDLED_TOOLS.key} is false"
    if wanted == "auto" and (COMMAND_TOOLS | TOOLS_ABOUT_TOOLS).isdisjoint(tools):
        return f"{SkillOptions.BUNDLED_TOOLS.key} is auto, and {place} has no tool that runs commands"
    return ""


def _check_loadable(tools: tuple[str, ...], config: SkillConfig, place: str) -> None:
    """Raise :class:`ConfigError` if a model can only run loaded skills, and has no tool that loads them."""
    runs = [name for name in ("skill_run", "skill_exec") if name in tools]
    if not runs or not {LOAD_SKILL, "skill_load"}.isdisjoint(tools) or not config.get(SkillOptions.SHELL_ENABLED):
        return
    if config.get(SkillOptions.RUN_REQUIRE_LOADED):
        raise ConfigError(
            f"{place}: {' and '.join(runs)} can never run, because no tool here loads a skill: add skill_load, or set "
            f"{SkillOptions.RUN_REQUIRE_LOADED.key} to false"
        )
