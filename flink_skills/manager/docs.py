"""Text of the documents of a skill (:meth:`AgentSkill.docs`) in a request to a model."""

from __future__ import annotations

from flink_skills.errors import ResourceError
from flink_skills.manager.activation import safe, with_base_dir
from flink_skills.skill import AgentSkill, Limits
from flink_skills.skill.text import not_text

__all__ = ["doc_text"]


def doc_text(skill: AgentSkill, path: str, limits: Limits) -> str:
    """The text of a document, ``__BASE_DIR__`` replaced, without what would open or close a block of ours.

    It ends, with a word on that, where more may not be read at once. Raises :class:`ResourceError` where there is no
    such file or it cannot be read.
    """
    data, total = skill.files.read(path, 0, limits.resource_read)
    if b"\0" in data:
        raise ResourceError(not_text(path, data, total))
    text = data.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if len(data) < total:
        text += f"\n[cut: these are the first {len(data)} of {total} bytes]"
    return safe(with_base_dir(text, skill.path)).strip("\n")
