"""Data of one skill in a catalog. No code of the skill runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flink_skills.cli.printing import diagnostic_json
from flink_skills.errors import ResourceError
from flink_skills.manager.menu import MenuEntry, render_menu
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill, Diagnostic
from flink_skills.skill.inspection import about_tokens
from flink_skills.skill.requirements import missing_requirements
from flink_skills.tools.dynamic import tool_names_of
from flink_skills.tools.skills.command_environment import command_environment

__all__ = ["CatalogSkill", "Length", "describe_skill"]

_SCRIPT_FOLDERS = ("scripts/", "bin/")
_SCRIPT = re.compile(r"\.(?:py|sh|bash|zsh|fish|m?js|cjs|tsx?|rb|pl|php|r|jl|lua|go|java|jar|awk|ps1)$", re.IGNORECASE)


@dataclass(frozen=True)
class Length:
    """Length of a string in characters, and approximately in tokens."""

    chars: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, text: str) -> Length:
        """Return the length of ``text``."""
        return cls(len(text), about_tokens(text))


@dataclass
class CatalogSkill:
    """Skill of a catalog.

    Attributes:
        files: Pairs of path and size in bytes.
        menu: Length of the menu entry, which is part of each request to a model.
        body: Length of the instructions that loading the skill adds.
        tools: Names of the bundled tools.
        missing: Requirements that this host does not meet.
        seen_by: Indexes into the viewers of the catalog.
    """

    name: str
    description: str
    origin: str
    digest: str = ""
    files: list[tuple[str, int]] = field(default_factory=list)
    menu: Length = Length()
    body: Length = Length()
    documents: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    allowed_tools: list[str] | None = None
    license: str = ""
    compatibility: str = ""
    missing: list[str] = field(default_factory=list)
    is_hidden: bool = False
    is_remote: bool = False
    diagnostics: list[Diagnostic] = field(default_factory=list)
    seen_by: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return the total size of the files in bytes."""
        return sum(size for _, size in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the skill as JSON data."""
        data = asdict(self)
        data["files"] = [{"path": path, "bytes": size} for path, size in self.files]
        data["diagnostics"] = [diagnostic_json(diagnostic) for diagnostic in self.diagnostics]
        return data


def describe_skill(
    skill: AgentSkill, config: SkillConfig, *, origin: str, diagnostics: Sequence[Diagnostic]
) -> CatalogSkill:
    """Return the catalog entry of ``skill``. Unreadable parts are omitted, and a diagnostic has the reason."""
    entry = CatalogSkill(
        skill.name,
        skill.description,
        origin,
        menu=Length.of(_menu_line(skill)),
        allowed_tools=None if skill.allowed_tools is None else list(skill.allowed_tools),
        license=skill.license or "",
        compatibility=skill.compatibility or "",
        missing=missing_requirements(skill, command_environment(config)),
        is_hidden=skill.hidden,
        is_remote=skill.remote,
        diagnostics=list(diagnostics),
    )
    try:
        entry.digest = skill.digest
        entry.files = [(path, size) for path, (size, _) in sorted(skill.files.manifest().items())]
        entry.body = Length.of(skill.instructions)
        entry.documents = list(skill.docs)
        entry.tools = tool_names_of(skill)
    except (ResourceError, OSError):
        return entry
    entry.scripts = [
        path
        for path, _ in entry.files
        if path not in entry.documents and (path.startswith(_SCRIPT_FOLDERS) or _SCRIPT.search(path))
    ]
    return entry


def _menu_line(skill: AgentSkill) -> str:
    menu_entry = MenuEntry(skill.name, skill.description, skill.origin if skill.remote else "")
    text = render_menu([menu_entry], 1 << 30, "").text
    return text.partition("<available_skills>\n")[2].rpartition("</available_skills>")[0]
