"""Skills made for a test: as folders, zips and jars."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["pack", "write_skill"]


def write_skill(
    parent: Path,
    name: str,
    *,
    description: str = "",
    body: str = "Say hello.",
    files: dict[str, str] | None = None,
) -> Path:
    """Write the skill ``name`` below ``parent`` and return its folder."""
    folder = parent / name
    folder.mkdir(parents=True)
    head = f"---\nname: {name}\ndescription: {description or f'The skill {name}.'}\n---\n"
    (folder / "SKILL.md").write_text(head + body, encoding="utf-8")
    for path, text in {"references/where.txt": f"this is {name}\n", **(files or {})}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def pack(target: Path, folders: Iterable[Path], *, below: str = "", directories: bool = False) -> Path:
    """Put folders into the zip or jar ``target``, below the folder ``below``, with or without directory entries."""
    prefix = f"{below}/" if below else ""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                name = prefix + path.relative_to(folder.parent).as_posix()
                if path.is_file():
                    archive.write(path, name)
                elif directories:
                    archive.writestr(name + "/", b"")
        if directories:
            for name in {"/".join(prefix.split("/")[:n]) + "/" for n in range(1, prefix.count("/") + 1)}:
                archive.writestr(name, b"")
    return target
