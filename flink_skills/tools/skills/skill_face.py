"""Base class of the tools for skills, the services that they use, and the names in their arguments."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, Field

from flink_skills.errors import SkillsError, near_misses
from flink_skills.manager.view import SkillView
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.argument_model import Also, ArgumentModel, as_list
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import CheckedTool, Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.profiles import COMMAND_TOOLS, FACES, TOOL_FILES, TOOLS_ABOUT_TOOLS, SkillSettings
from flink_skills.tools.state import ALL, Selection, names_of

if TYPE_CHECKING:
    from flink_skills.artifacts import ArtifactStore
    from flink_skills.tools.commands.runner import ShellRunner
    from flink_skills.tools.dynamic.bundled import BundledTools
    from flink_skills.tools.dynamic.tool_pool import ToolPool
    from flink_skills.tools.runs.process_sessions import ProcessSessions


# A file of a skill in an argument: a reference, or its path in a workspace.
_SKILL_PATH = re.compile(r"(?:skill://|skills/|SKILLS_DIR\}?/)([^/\s\"';|&\\]+)")


@dataclass(frozen=True)
class ToolServices:
    """The services of one model. A service that the job does not have is None.

    ``view`` contains the skills of the model, ``own_tools`` the names of the agent's tools that it has, and
    ``accepts`` the kinds of media that it accepts. The other services are the same for all models of a job.
    ``toolsets`` has tools that models always have, ``pool`` those that skills activate.
    """

    view: SkillView
    config: SkillConfig = field(default_factory=SkillConfig)
    settings: SkillSettings = field(default_factory=SkillSettings)
    shell: ShellRunner | None = None
    sessions: ProcessSessions | None = None
    artifacts: ArtifactStore | None = None
    toolsets: ToolPool | None = None
    pool: ToolPool | None = None
    bundled: BundledTools | None = None
    own_tools: frozenset[str] = frozenset()
    accepts: frozenset[str] = frozenset()


def profile_tools(names: Sequence[str], services: ToolServices) -> list[Tool]:
    """Return the tools of a model, of those ``names`` that can work in the job.

    A job without a shell has no tools for commands. Without skills there is only ``execute_shell_command``. Without a
    pool of tools and a skill that has tools, no tool lists or selects these.
    """
    missing = set(COMMAND_TOOLS) if services.shell is None else set()
    about_tools = not TOOLS_ABOUT_TOOLS.isdisjoint(names)
    if about_tools and services.pool is None and not services.view.has_tools(TOOL_FILES):
        missing |= TOOLS_ABOUT_TOOLS
    return [
        _face(name)(services)
        for name in names
        if name not in missing and (services.view.names or name == "execute_shell_command")
    ]


def _face(name: str) -> Callable[[ToolServices], Tool]:
    module, _, attribute = FACES[name].partition(":")
    face: Callable[[ToolServices], Tool] = getattr(importlib.import_module(module), attribute)
    return face


# With more names than this an enumeration costs more than it helps.
_MAX_NAMES_IN_SCHEMA = 256
_SHOWN_NAMES = 20

M = TypeVar("M", bound=BaseModel)


class SkillTool(CheckedTool, Generic[M]):
    """A tool with the arguments ``model``. The schema of an argument that names a skill lists the skills.

    ``shown`` are the arguments in the schema, () for all. The others are accepted as well.
    """

    tool_name: ClassVar[str]
    description: ClassVar[str]
    model: type[M]
    shown: ClassVar[tuple[str, ...]] = ()
    #: Whether a call that names no skill uses the loaded ones.
    uses_loaded: ClassVar[bool] = False

    def __init__(self, services: ToolServices) -> None:
        self._services = services
        self._arguments = Arguments(self.tool_name, self.model)
        schema = self._arguments.schema
        if self.shown:
            schema["properties"] = {name: schema["properties"][name] for name in self.shown}
        for about in schema["properties"].values():
            # Each request pays for these words, and the result of a wrong value states them.
            for word in ("minLength", "minimum", "exclusiveMinimum", *(() if about.get("default") else ("default",))):
                about.pop(word, None)
        for argument in ("skill", "name"):
            about = schema["properties"].get(argument)
            if about is not None and 0 < len(services.view.names) <= _MAX_NAMES_IN_SCHEMA:
                about["enum"] = sorted(services.view.names)
        self._spec = ToolSpec(self.tool_name, self.description, schema)

    def skills_of(self, arguments: Mapping[str, Any], context: ToolContext) -> Collection[str]:
        names = {str(arguments[name]).strip() for name in ("skill", "name") if arguments.get(name)}
        names |= set(_SKILL_PATH.findall(json.dumps(arguments, default=str)))
        if self.uses_loaded and not (names and arguments.get("name")):
            names |= set(context.skill_state or ())
        known = {name.casefold(): name for name in caller_view(self._services, context).names}
        return [known.get(name.casefold(), name) for name in names]

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            asked = self._arguments.read(arguments)
            return await self._run(asked, caller_view(self._services, context), context)
        except (ArgumentError, SkillsError) as error:
            return ToolResult(str(error), is_error=True)

    @abstractmethod
    async def _run(self, asked: M, view: SkillView, context: ToolContext) -> ToolResult:
        """Run the call. An error that it raises is the result for the model."""


def caller_view(services: ToolServices, context: ToolContext) -> SkillView:
    """Return the skills of the calling model. Several models can share the tool."""
    return context.skills if context.skills is not None else services.view


def known_skill(name: str, view: SkillView) -> str:
    """Return the skill ``name``, or the only one that differs in case. Raises :class:`ArgumentError`."""
    if (skill := view.get(name)) is not None:
        return skill.name
    folded = [known for known in view.names if known.casefold() == name.strip().casefold()]
    if len(folded) == 1:
        return folded[0]
    raise ArgumentError(unknown_name("skill", name, view.names))


def unknown_name(what: str, name: str, known: Iterable[str], *, place: str = "") -> str:
    """Return the message about an unknown name, with similar names and some of the existing ones.

    >>> unknown_name("document", "guid.md", ["guide.md"], place=" in skill a")
    "There is no document 'guid.md' in skill a. Did you mean guide.md? Documents: guide.md."
    """
    names = sorted(known)
    near = _near(name, names)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    shown = ", ".join(names[:_SHOWN_NAMES]) or "none"
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"There is no {what} {name!r}{place}.{hint} {what.capitalize()}s: {shown}{more}."


def _near(name: str, names: Sequence[str]) -> list[str]:
    """Return the names most similar to ``name``. Paths with a similar last part come first."""
    ends: dict[str, str] = {}
    for known in names:
        ends.setdefault(known.rpartition("/")[2], known)
    found = [ends[end] for end in near_misses(name.rpartition("/")[2], ends)]
    return list(dict.fromkeys([*found, *near_misses(name, names)]))[:3]


_Names = Annotated[tuple[str, ...], BeforeValidator(partial(as_list, split=True))]


class SkillArguments(ArgumentModel):
    """A skill, by ``skill``."""

    skill: Annotated[str, Field(min_length=1), Also("skill_name", "name")]


class DocsArguments(SkillArguments):
    """Documents of a skill."""

    docs: Annotated[_Names, Also("selected_docs", "documents", "doc", "document")] = ()
    include_all_docs: Annotated[bool, Also("all_docs", "include_all", "include_all_documents")] = False


class ToolsArguments(SkillArguments):
    """Tools of a skill."""

    tools: Annotated[_Names, Also("selected_tools", "tool", "tool_names")] = ()
    include_all_tools: Annotated[bool, Also("all_tools", "include_all")] = False


def known_names(what: str, asked: Iterable[str], there: Sequence[str], skill: str) -> Selection:
    """Return the names of ``there`` that ``asked`` means, or all for "*".

    Case, ``./`` and a missing directory are ignored if the name remains unambiguous. Raises :class:`ArgumentError` with
    similar names for an unknown one.

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


def max_doc_chars(services: ToolServices) -> int:
    """Return the maximum number of characters of a document in a request."""
    return services.config.get(SkillOptions.PROMPT_MAX_DOC_CHARS)


async def docs_of(skill: str, view: SkillView) -> list[str]:
    """Return the documents in the directory of ``skill``."""
    return await asyncio.to_thread(view.docs, skill)


async def asked_docs(
    skill: str, docs: Sequence[str], all_docs: bool, view: SkillView, context: ToolContext
) -> Selection:
    """Return the requested documents of ``skill``, and record them in the audit trail.

    Raises :class:`~flink_skills.tools.arguments.ArgumentError` for one that is not there.
    """
    if not docs and not all_docs:
        return ()
    there = await docs_of(skill, view)
    asked = ALL if all_docs else known_names("document", docs, there, skill)
    await asyncio.to_thread(view.note_docs, skill, names_of(asked, there), key=context.display_key)
    return asked
