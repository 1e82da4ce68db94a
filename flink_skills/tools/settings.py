"""How one model gets and keeps skills: its tools, life time and place of what is loaded, and the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.options import Option, SkillConfig, SkillOptions
from flink_skills.tools.profiles import (
    COMMAND_TOOLS,
    CORE,
    LOAD_SKILL,
    PROFILES,
    TOOLS_ABOUT_TOOLS,
    named_tools,
    resolve_tools,
)

__all__ = ["MODEL_KEYS", "Content", "Lifetime", "SkillSettings"]

Lifetime = Literal["turn", "once", "session"]
Content = Literal["system", "tool-result"]

#: What a chat model may say itself, and the option that counts where it says nothing.
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
    """What a model does with skills, all choices made.

    ``tools`` are names of tools, ``profile`` is what they are called together, "" for a list of the user's own.
    ``named`` are those of ``tools`` that the user listed by name. ``guidance`` is None for the text that belongs to the
    tools. ``bundled_off`` is the reason why the tools that a skill brings itself are not offered, with the option to
    set; empty if they are. ``runs_code`` says whether the code of its answers is run.
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
        """Whether ``load_skill`` answers with the instructions themselves, for the conversation to keep."""
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
        """The settings of a model that says ``model`` itself (see :data:`MODEL_KEYS`), in a job with ``config``.

        Raises :class:`ConfigError`, which names the key or the option.

        >>> SkillSettings.of(SkillConfig(), {"skill_tools": "full"}).lifetime
        'turn'
        """
        said = model or {}

        def get(key: str) -> Any:
            option = MODEL_KEYS[key]
            if key not in said:
                return config.get(option)
            try:
                return option.read(said[key])
            except ConfigError as error:
                raise ConfigError(f"{key}={said[key]!r}: {str(error).rpartition(': ')[2]}") from None

        place = "skill_tools" if "skill_tools" in said else f"option {SkillOptions.TOOLS.key}"
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
            code = "run_code" if "run_code" in said else f"option {SkillOptions.CODE_ENABLED.key}"
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
    """Raise :class:`ConfigError` where a model could run a skill once it is loaded, and has nothing to load one."""
    runs = [name for name in ("skill_run", "skill_exec") if name in tools]
    if not runs or not {LOAD_SKILL, "skill_load"}.isdisjoint(tools) or not config.get(SkillOptions.SHELL_ENABLED):
        return
    if config.get(SkillOptions.RUN_REQUIRE_LOADED):
        raise ConfigError(
            f"{place}: {' and '.join(runs)} can never run, because no tool here loads a skill: add skill_load, or set "
            f"{SkillOptions.RUN_REQUIRE_LOADED.key} to false"
        )
