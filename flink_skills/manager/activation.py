"""Content of skills for models: loaded instructions, documents, and pages of files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from flink_skills.errors import ResourceError
from flink_skills.manager.menu import escape
from flink_skills.skill import AgentSkill, Limits
from flink_skills.skill.file_rules import role_of
from flink_skills.skill.text import clean, clean_line, not_text

MAX_LISTED_FILES = 100

# A text of a skill contains this name in place of the skill's absolute folder.
BASE_DIR = "__BASE_DIR__"
_WHOLE = (BASE_DIR.encode(), b"\r\n")

# Only our own tags: escaping all of a body would spoil its commands and code.
_OWN_TAGS = re.compile(
    r"<(?=\s*(?:/\s*)?(?:skill_content|skill_files|skill_doc|available_skills|loaded_skills)\b)", re.IGNORECASE
)


def doc_text(skill: AgentSkill, path: str, limits: Limits) -> str:
    """Return a document's text with the skill's folder for ``__BASE_DIR__``, and with our own tags escaped.

    A longer document is truncated, which its last line states. Raises :class:`ResourceError` if the file is missing or
    cannot be read.
    """
    data, total = skill.files.read(path, 0, limits.resource_read)
    if b"\0" in data:
        raise ResourceError(not_text(path, data, total))
    text = data.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if len(data) < total:
        text += f"\n[cut: these are the first {len(data)} of {total} bytes]"
    return safe(with_base_dir(text, skill.path)).strip("\n")


class ResourceText(NamedTuple):
    """Part of a file: ``next_offset`` is where the rest begins, None at the end; offsets are in bytes.

    ``origin`` is the server that sent it, or an empty string.
    """

    text: str
    offset: int
    next_offset: int | None
    total_bytes: int
    origin: str = ""


def page_of(data: bytes, offset: int, total: int) -> ResourceText:
    """Return the first page of ``data``, which was read at ``offset`` from a file with ``total`` bytes.

    It ends before a character, a line end or a ``__BASE_DIR__`` that would be cut, unless nothing would be left.

    >>> page_of("né".encode()[:2], 0, 3)
    ResourceText(text='n', offset=0, next_offset=1, total_bytes=3)
    """
    end = offset + len(data)
    if end < total:
        whole = _whole_characters(data)
        for piece in _WHOLE:
            cut = _cut_piece(data[:whole], piece)
            whole -= cut if cut < whole else 0
        end, data = offset + whole, data[:whole]
    text = data.decode(errors="replace").removeprefix("\ufeff")
    return ResourceText(text, offset, end if end < total else None, total)


def _cut_piece(data: bytes, piece: bytes) -> int:
    """Return how many bytes at the end can start another ``piece``."""
    after = data.split(piece)[-1]  # the end of a whole piece is not the beginning of another one
    return next((size for size in range(len(piece) - 1, 0, -1) if after.endswith(piece[:size])), 0)


def _whole_characters(data: bytes) -> int:
    """Return the length without an incomplete character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if needed > back else len(data)
    return len(data)


class Activation(NamedTuple):
    """A loaded skill: ``text`` is for the model, ``digest`` is what it is bound to, ``path`` its folder."""

    name: str
    digest: str
    text: str
    path: str | None


def activation_text(skill: AgentSkill, body: str, files: Sequence[str]) -> str:
    """Return the body in a wrapper that names the skill, its folder and its files (unread, at most 100)."""
    parts = [f"<skill_content{opening_attributes(skill)}>", safe(with_base_dir(body, skill.path)).strip("\n")]
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


def opening_attributes(skill: AgentSkill) -> str:
    """Return the attributes of a tag with content of ``skill``: its name, and the origin if a server sent it."""
    origin = f' origin="{attribute(skill.origin)}"' if skill.server else ""
    return f' name="{attribute(skill.name)}"{origin}'


def attribute(text: str) -> str:
    """Return a name or path as an attribute value in double quotes."""
    return escape(clean_line(text)).replace('"', "&quot;")


def with_base_dir(text: str, folder: str | None) -> str:
    """Return ``text`` with the skill's folder for ``__BASE_DIR__``. It is unchanged for a skill without a folder.

    >>> with_base_dir("sh __BASE_DIR__/run.sh", "/opt/skills/a")
    'sh /opt/skills/a/run.sh'
    """
    return text.replace(BASE_DIR, folder) if folder else text


def safe(text: str) -> str:
    """Return untrusted text without hidden characters, and with our own tags escaped."""
    return _OWN_TAGS.sub("&lt;", clean(text))
