"""One skill as a catalog shows it. Nothing of the skill is run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flink_skills.cli.output import diagnostic_json
from flink_skills.errors import ResourceError
from flink_skills.manager.menu import MenuEntry, render_menu
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill, Diagnostic
from flink_skills.skill.inspection import about_tokens
from flink_skills.skill.requirements import missing_requirements
from flink_skills.tools.dynamic import tool_names_of
from flink_skills.tools.skills.surroundings import command_surroundings

__all__ = ["CatalogSkill", "Length", "describe_skill"]

_SCRIPT_FOLDERS = ("scripts/", "bin/")
_SCRIPT = re.compile(r"\.(?:py|sh|bash|zsh|fish|m?js|cjs|tsx?|rb|pl|php|r|jl|lua|go|java|jar|awk|ps1)$", re.IGNORECASE)


@dataclass(frozen=True)
class Length:
    """How long a text is for a model; tokens are about."""

    chars: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, text: str) -> Length:
        """The length of ``text``."""
        return cls(len(text), about_tokens(text))


@dataclass
class CatalogSkill:
    """A skill. ``files`` are pairs of path and bytes; ``seen_by`` are numbers of the catalog's viewers.

    ``menu`` is what each request to a model spends on it, ``body`` what loading it adds. ``tools`` are the names of
    tools that it brings itself, ``missing`` what it requires and this machine has not.
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
        """Bytes of all files."""
        return sum(size for _, size in self.files)

    def to_json(self) -> dict[str, Any]:
        """The skill as plain data."""
        data = asdict(self)
        data["files"] = [{"path": path, "bytes": size} for path, size in self.files]
        data["diagnostics"] = [diagnostic_json(said) for said in self.diagnostics]
        return data


def describe_skill(
    skill: AgentSkill, config: SkillConfig, *, origin: str, diagnostics: Sequence[Diagnostic]
) -> CatalogSkill:
    """What is shown of ``skill``. What cannot be read is left out: a diagnostic says why."""
    found = CatalogSkill(
        skill.name,
        skill.description,
        origin,
        menu=Length.of(_menu_line(skill)),
        allowed_tools=None if skill.allowed_tools is None else list(skill.allowed_tools),
        license=skill.license or "",
        compatibility=skill.compatibility or "",
        missing=missing_requirements(skill, command_surroundings(config)),
        is_hidden=skill.hidden,
        is_remote=skill.remote,
        diagnostics=list(diagnostics),
    )
    try:
        found.digest = skill.digest
        found.files = [(path, size) for path, (size, _) in sorted(skill.files.manifest().items())]
        found.body = Length.of(skill.instructions)
        found.documents = list(skill.docs)
        found.tools = tool_names_of(skill)
    except (ResourceError, OSError):
        return found
    found.scripts = [
        path
        for path, _ in found.files
        if path not in found.documents and (path.startswith(_SCRIPT_FOLDERS) or _SCRIPT.search(path))
    ]
    return found


def _menu_line(skill: AgentSkill) -> str:
    entry = MenuEntry(skill.name, skill.description, skill.origin if skill.remote else "")
    text = render_menu([entry], 1 << 30, "").text
    return text.partition("<available_skills>\n")[2].rpartition("</available_skills>")[0]
