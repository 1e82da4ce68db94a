"""What a model gets when it loads a skill."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from flink_skills.manager.menu import escape
from flink_skills.skill import AgentSkill
from flink_skills.skill.skill_paths import role_of
from flink_skills.skill.text import clean, clean_line

__all__ = ["BASE_DIR", "MAX_LISTED_FILES", "Activation", "activation_text", "attribute", "safe", "with_base_dir"]

MAX_LISTED_FILES = 100

# A text of a skill contains this name in place of the skill's absolute folder.
BASE_DIR = "__BASE_DIR__"

# Only our own tags: escaping all of a body would spoil its commands and code.
_OWN_TAGS = re.compile(
    r"<(?=\s*(?:/\s*)?(?:skill_content|skill_files|skill_doc|available_skills|loaded_skills)\b)", re.IGNORECASE
)


class Activation(NamedTuple):
    """A loaded skill: ``text`` is for the model, ``digest`` is what it is bound to, ``path`` its folder."""

    name: str
    digest: str
    text: str
    path: str | None


def activation_text(skill: AgentSkill, body: str, files: Sequence[str]) -> str:
    """The body in a wrapper that names the skill, its folder and its files (unread, at most 100)."""
    parts = [f'<skill_content name="{attribute(skill.name)}">', safe(with_base_dir(body, skill.path)).strip("\n")]
    if skill.path:
        folder = safe(skill.path).replace("\n", " ")
        parts.append(f"\nFolder of this skill: {folder} (paths in these instructions are relative to it)")
    others = [path for path in files if path != skill.files.skill_file and role_of(path) == "model"]
    if others:
        listed = [escape(clean_line(path)) for path in others[:MAX_LISTED_FILES]]
        if len(others) > MAX_LISTED_FILES:
            listed.append(f"… and {len(others) - MAX_LISTED_FILES} more")
        parts += ["<skill_files>", *listed, "</skill_files>"]
    parts.append("</skill_content>")
    return "\n".join(parts)


def attribute(text: str) -> str:
    """A name or path as the value of an attribute in double quotes."""
    return escape(clean_line(text)).replace('"', "&quot;")


def with_base_dir(text: str, folder: str | None) -> str:
    """``text`` with the skill's folder in place of ``__BASE_DIR__``; unchanged for a skill without one.

    >>> with_base_dir("sh __BASE_DIR__/run.sh", "/opt/skills/a")
    'sh /opt/skills/a/run.sh'
    """
    return text.replace(BASE_DIR, folder) if folder else text


def safe(text: str) -> str:
    """Untrusted text without characters that a reader would not see, which opens and closes no block of ours."""
    return _OWN_TAGS.sub("&lt;", clean(text))
