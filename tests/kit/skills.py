"""Skills on disk."""

from __future__ import annotations

from pathlib import Path

__all__ = ["skill_text", "write_skill"]


def skill_text(name: str, description: str = "Does it.", body: str = "Do it.", more: str = "") -> str:
    """Return the content of a skill file. ``more`` are further lines of its front matter."""
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}\n"


def write_skill(
    folder: Path, name: str = "", description: str = "Does it.", body: str = "Do it.", **files: str
) -> Path:
    """Write a skill into ``folder``, and ``files`` by name, with ``__`` for ``/``."""
    texts = {"SKILL.md": skill_text(name or folder.name, description, body)}
    texts |= {file.replace("__", "/"): text for file, text in files.items()}
    for file, text in texts.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
