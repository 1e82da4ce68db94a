"""Text of skills in the requests to a model: guidance about their tools, and blocks with loaded skills."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from flink_skills.errors import ResourceError
from flink_skills.manager.activation import attribute
from flink_skills.manager.menu import INTRODUCTION, escape
from flink_skills.skill.text import clean_line
from flink_skills.texts import table
from flink_skills.tools.profiles import LOAD_SKILL
from flink_skills.tools.state import ALL, LoadedSkill, SkillState, names_of

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView
    from flink_skills.tools.profiles import SkillSettings

HEADING = "Tooling and workspace guidance:"

_SKILL_LOAD = """\
You have skills: instructions for kinds of task. When a description below fits the task, call skill_load first \
and follow its instructions. If none fits, do without.
"""
_NO_LOADING = "You have skills: instructions and programs for certain kinds of task.\n"

_LINES = tuple((tools.split(), line) for tools, line in table("guidance.txt", beside=__file__))


def introduction(tool_names: Collection[str]) -> str:
    """Return the text before the list of skills, for a model with these tools. It ends with a line end.

    >>> "skill_load" in introduction(["skill_load"]), "load" in introduction(["skill_run"])
    (True, False)
    """
    if LOAD_SKILL in tool_names:
        return INTRODUCTION
    return _SKILL_LOAD if "skill_load" in tool_names else _NO_LOADING


def guidance(settings: SkillSettings, tool_names: Collection[str]) -> str:
    """Return the text after the list of skills: ``settings.guidance``, else the use of these tools.

    It names only tools of ``tool_names``. It is empty for the tools of ``core``: their descriptions are sufficient.
    """
    if settings.guidance is not None:
        return settings.guidance
    lines: list[str] = []
    described: set[str] = set()
    for tools, line in _LINES:
        # The first line about a tool is the most complete one.
        if described.isdisjoint(tools) and all(tool in tool_names for tool in tools):
            described.update(tools)
            lines.append(line)
    return "\n".join([HEADING, *lines]) if lines else ""


# Maximum size of all documents of a skill, as a multiple of the maximum size of one.
_DOCS_OF_A_SKILL = 4


def skill_block(name: str, loaded: LoadedSkill, view: SkillView, *, max_doc_chars: int) -> str:
    """Return the text of a loaded skill: its instructions, then its selected documents and tools.

    Each document is truncated to ``max_doc_chars``, and all together to four times as much. A note replaces a skill
    that the view no longer has or that has changed, and a document that cannot be read. Files are read only
    the first time.
    """
    opening = f'<skill_content name="{attribute(name)}">'
    if name not in view:
        return _note(opening, "This skill is no longer available.")
    try:
        activation = view.content(name)
        skill = view.get(name)
        if activation.digest != loaded.digest and not (skill is not None and skill.has_digest(loaded.digest)):
            return _note(opening, "This skill has changed since it was loaded: load it again.")
        docs = names_of(loaded.docs, view.docs(name) if loaded.docs == ALL else ())
    except ResourceError as error:
        return _note(opening, f"This skill cannot be read: {_named(str(error))}")
    parts = [activation.text, f"Docs loaded: {', '.join(map(_named, docs)) or 'none'}"]
    if docs:
        parts.append(docs_block(name, docs, view, max_doc_chars=max_doc_chars))
    if loaded.tools is not None:
        tools = "all" if loaded.tools == ALL else ", ".join(map(_named, loaded.tools)) or "none"
        parts.append(f"Tools selected: {tools}")
    return "\n".join(parts)


def system_block(state: SkillState, view: SkillView, *, max_doc_chars: int) -> str:
    """Return the text of the loaded skills for the system prompt, sorted by name. See :func:`skill_block`."""
    names = sorted(state.names)
    if not names:
        return ""
    blocks = [skill_block(name, state[name], view, max_doc_chars=max_doc_chars) for name in names]
    return "\n".join([f"Loaded skills: {', '.join(map(_named, names))}", *blocks])


def unloaded_line(name: str) -> str:
    """Return the text that replaces a load result after its skill is unloaded.

    >>> unloaded_line("ants")
    'unloaded: ants. This result no longer has the content of the skill.'
    """
    return f"unloaded: {_named(name)}. This result no longer has the content of the skill."


def says_unloaded(text: str, name: str) -> bool:
    """Return True if ``text`` is the :func:`unloaded_line` for a skill."""
    return text == unloaded_line(name)


def docs_block(name: str, docs: Sequence[str], view: SkillView, *, max_doc_chars: int) -> str:
    """Return the text of these documents of a skill, each in a separate block."""
    found: list[str] = []
    room = _DOCS_OF_A_SKILL * max_doc_chars
    skill = view.get(name)
    origin = f' origin="{attribute(skill.origin)}"' if skill is not None and skill.server else ""
    for path in docs:
        opening = f'<skill_doc skill="{attribute(name)}" path="{attribute(path)}"{origin}>'
        if not room:
            found.append(f"{opening}[left out: the documents are too long together]</skill_doc>")
            continue
        try:
            text = view.doc_text(name, path)
        except ResourceError as error:
            text = f"[{_named(str(error))}]"
        most = min(max_doc_chars, room)
        room -= min(len(text), most)
        if len(text) > most:
            text = f"{text[:most]}\n[cut: these are the first {most} of {len(text)} characters]"
        found += [opening, text, "</skill_doc>"]
    return "\n".join(found)


def _named(text: str) -> str:
    """Return a name from a skill on one line, without characters that close or open a block."""
    return escape(clean_line(text))


def _note(opening: str, text: str) -> str:
    return f"{opening}\n{text}\n</skill_content>"
