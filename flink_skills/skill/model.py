"""``AgentSkill``: one skill, with only its front matter in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from flink_skills.errors import ConfigError, ResourceError
from flink_skills.skill.fields import Fields, split_tools
from flink_skills.skill.files import FolderFiles, MemoryFiles, SkillFiles
from flink_skills.skill.frontmatter import split_body
from flink_skills.skill.limits import Limits
from flink_skills.skill.paths import resource_parts
from flink_skills.skill.render import render_skill_file
from flink_skills.skill.text import clean_line
from flink_skills.skill.tools_section import tools_section

__all__ = ["AgentSkill"]

DEFAULT_LIMITS = Limits()


class AgentSkill:
    """A skill: what it is for, how to do it, and the files that it brings.

    Made in memory, or backed by a folder (:meth:`from_folder`), in which case instructions and resources are
    read when they are asked for.

    ``path`` is the folder or None, ``origin`` says where the skill came from (without secrets), ``extra``
    holds front-matter fields that the format does not know. ``allowed_tools`` is None where the skill names
    none. ``form`` is ``"skill"``, or ``"heading"`` for a file without front matter.

    >>> skill = AgentSkill("greet", "Says hello.", "Say hello.", {"references/a.md": "Hi"})
    >>> skill.name, list(skill.resources)
    ('greet', ['references/a.md'])
    """

    __slots__ = (
        "_digest",
        "_files",
        "_instructions",
        "_limits",
        "allowed_tools",
        "compatibility",
        "description",
        "extra",
        "form",
        "license",
        "metadata",
        "name",
        "origin",
        "path",
        "remote",
    )

    def __init__(
        self,
        name: str,
        description: str,
        instructions: str | None = None,
        resources: Mapping[str, str] | None = None,
        *,
        license: str | None = None,
        compatibility: str | None = None,
        metadata: Mapping[str, str] | None = None,
        allowed_tools: tuple[str, ...] | None = None,
        extra: Mapping[str, Any] | None = None,
        origin: str = "",
    ) -> None:
        if not name or name != clean_line(name) or "/" in name or "\\" in name:
            raise ConfigError(f"skill name {name!r}: use lowercase letters, digits and hyphens")
        if not description.strip():
            raise ConfigError(f"skill {name!r}: the description is empty; say what it does and when to use it")
        self.name = name
        self.description = description
        self.license = license
        self.compatibility = compatibility
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata or {}))
        self.allowed_tools = allowed_tools
        self.extra: Mapping[str, Any] = MappingProxyType(dict(extra or {}))
        self.path: str | None = None
        self.origin = origin
        self.remote = False
        self.form = "skill"
        self._limits = DEFAULT_LIMITS
        self._digest: str | None = None
        self._instructions: str | None = instructions or ""
        files = {"/".join(_checked(name, path)): text.encode() for path, text in (resources or {}).items()}
        files["SKILL.md"] = self.to_markdown().encode()
        self._files: SkillFiles = MemoryFiles(files)

    @classmethod
    def from_folder(
        cls,
        folder: str,
        fields: Fields,
        *,
        root: str,
        skill_file: str = "SKILL.md",
        origin: str = "",
        remote: bool = False,
        limits: Limits | None = None,
        form: str = "skill",
        files: SkillFiles | None = None,
        digest: str | None = None,
    ) -> AgentSkill:
        """A skill backed by ``folder``; ``root`` is the real path that its links must not leave.

        ``files`` and ``digest`` are given where they are known, as they are for what a store has checked.
        Use :func:`flink_skills.skill.load_folder`, which reads the fields and says what is odd about them.
        """
        skill = cls.__new__(cls)
        skill.name = fields.name
        skill.description = fields.description
        skill.license = fields.license
        skill.compatibility = fields.compatibility
        skill.metadata = fields.metadata
        skill.allowed_tools = fields.allowed_tools
        skill.extra = fields.extra
        skill.path = folder
        skill.origin = origin or folder
        skill.remote = remote
        skill.form = form
        skill._limits = limits = limits or DEFAULT_LIMITS
        skill._digest = digest
        skill._instructions = None
        skill._files = FolderFiles(folder, root, skill_file, limits) if files is None else files
        return skill

    @property
    def instructions(self) -> str:
        """The body of the skill file, without front matter. Raises :class:`ResourceError` if unreadable."""
        if self._instructions is not None:
            return self._instructions
        return self.body_of(self._files.read(self._files.skill_file, 0, self._limits.skill_file).data)

    @staticmethod
    def body_of(data: bytes) -> str:
        """The body in the bytes of a skill file: UTF-8 (what is not is replaced), ``\\n`` line ends."""
        text = split_body(data).decode(errors="replace")
        return text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")

    @property
    def tools(self) -> tuple[str, ...]:
        """Names in the ``Tools:`` section of the instructions, read on first use.

        >>> AgentSkill("weather", "Knows the weather.", "Tools:\\n- get_weather\\n\\nOverview").tools
        ('get_weather',)
        """
        return tools_section(self.instructions)

    @property
    def docs(self) -> tuple[str, ...]:
        """Sorted ``.md`` and ``.txt`` files next to the skill file, at any depth.

        Hidden files, files in hidden folders, and files that this process cannot read are omitted.
        """
        return tuple(path for path in self._files.paths() if _is_doc(path) and self._readable(path))

    def _readable(self, path: str) -> bool:
        # Paths of files that were found below the folder: no check of a text that somebody else chose.
        return self.path is None or os.access(f"{self.path}/{path}", os.R_OK)

    @property
    def resources(self) -> Mapping[str, str]:
        """The other files, relative path -> text, each read when it is asked for."""
        return _Resources(self._files, self._limits.resource_read)

    @property
    def files(self) -> SkillFiles:
        """All files with the skill file, for listing, paged reading and digests."""
        return self._files

    @property
    def digest(self) -> str:
        """sha256 over the sorted (path, size, sha256) of the files; computed once, when it is first asked
        for.

        From then on, reading a file that has changed is an error and not new content (format rule S08).
        """
        if self._digest is None:
            self._digest = self._files.digest()
        return self._digest

    @property
    def hidden(self) -> bool:
        """Whether the skill asks not to be offered to models (``disable-model-invocation``)."""
        return str(self.extra.get("disable-model-invocation", "")).strip().lower() in (
            "true",
            "yes",
            "on",
            "1",
        )

    def to_markdown(self) -> str:
        """The skill as the text of a ``SKILL.md``, which reads back to the same skill."""
        own = {
            "name": self.name,
            "description": self.description,
            "license": self.license,
            "compatibility": self.compatibility,
            "metadata": dict(self.metadata) or None,
            "allowed-tools": None if self.allowed_tools is None else _written(self.allowed_tools),
        }
        return render_skill_file(
            {key: value for key, value in own.items() if value is not None} | dict(self.extra), self.instructions
        )

    def __repr__(self) -> str:
        return f"AgentSkill({self.name!r}, origin={self.origin!r})"


def _written(tools: tuple[str, ...]) -> str | list[str]:
    """One text, as the format has it; a list where a name would not survive that."""
    text = " ".join(tools)
    return text if split_tools(text) == tools else list(tools)


def _is_doc(path: str) -> bool:
    return (
        path.lower().endswith((".md", ".txt"))
        and path.lower() != "skill.md"
        and not any(part.startswith(".") for part in path.split("/"))
    )


class _Resources(Mapping[str, str]):
    def __init__(self, files: SkillFiles, limit: int) -> None:
        self._files = files
        self._limit = limit

    def __getitem__(self, path: str) -> str:
        if path not in self:
            raise KeyError(path)
        chunk = self._files.read(path, 0, self._limit)
        if chunk.total > self._limit:
            raise ResourceError(f"{path!r} has {chunk.total} bytes: read it in pages of at most {self._limit}")
        return chunk.data.decode(errors="replace")

    def __iter__(self) -> Iterator[str]:
        return (path for path in self._files.paths() if path != self._files.skill_file)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, path: object) -> bool:
        return any(path == known for known in self)


def _checked(skill: str, path: str) -> tuple[str, ...]:
    try:
        parts = resource_parts(path)
    except ValueError as error:
        raise ConfigError(f"skill {skill!r}: resource {path!r}: {error}") from None
    if re.fullmatch("skill.md", path, re.IGNORECASE):
        raise ConfigError(f"skill {skill!r}: resource {path!r}: this is where the instructions go")
    return parts
