"""``AgentSkill``: one skill, with only its front matter in memory."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from flink_skills.errors import ConfigError, ResourceError
from flink_skills.hints import none_is_default
from flink_skills.skill.file_rules import role_of
from flink_skills.skill.frontmatter import split_body
from flink_skills.skill.skill_body import tools_section
from flink_skills.skill.skill_data import (
    SCHEMA,
    all_files,
    check_fields,
    check_name,
    checked_data,
    core_schema,
    encoded,
    plain_content,
    render_skill_file,
    resource_files,
    verbatim_fields,
)
from flink_skills.skill.skill_fields import Fields, split_tools
from flink_skills.skill.skill_files import FolderFiles, MemoryFiles, SkillFiles
from flink_skills.skill.skill_limits import Limits

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreSchema

DEFAULT_LIMITS = Limits()


@none_is_default
class AgentSkill:
    """A skill: what it is for, how to do it, and the files that it brings.

    A skill is made in memory, or backed by a folder (:meth:`from_folder`). The instructions and resources of a folder
    are read when they are requested.

    A skill is immutable: an assignment raises :class:`AttributeError`.

    Skills are equal if they have the same name and the same :attr:`digest`. A comparison, a hash, a dump and a pickle
    read the files of a folder, and raise :class:`ResourceError` if this fails. A skill can be the type of a field of a
    pydantic model.

    A pickle contains the files, because another host may not have the folder. A skill that was unpickled is in memory:
    its ``path`` is None, and its digest is the same. A copy in the same process keeps the folder.

    Attributes:
        path: The folder, or None.
        origin: The source of the skill, without secrets.
        extra: Fields of the front matter that the format does not define.
        allowed_tools: Names of tools. None: the skill names none.
        form: ``"skill"``, or ``"heading"`` for a file without front matter.
        plugin: The name of its plugin, or an empty string. For a skill of an MCP server, the label of the server.
        server: The label of its MCP server, or an empty string.
        refusal: Why commands are refused while a model uses the skill. Empty: they are allowed.

    Args:
        name: At most 64 characters: lowercase letters, digits and hyphens. Other letters are a diagnostic when a
            manager loads the skill.
        description: What the skill does and when to use it, at most 1,024 characters.
        instructions: Markdown for the model. None: empty.
        resources: Content of the other files by relative path.

    Raises:
        ConfigError: An argument has the wrong type, is empty or too long, or a path cannot be a file of a skill.

    >>> skill = AgentSkill("greet", "Says hello.", "Say hello.", {"references/a.md": "Hi"})
    >>> skill.name, list(skill.resources)
    ('greet', ['references/a.md'])
    >>> AgentSkill.model_validate(skill.model_dump()) == skill
    True
    """

    __slots__ = (
        *Fields._fields,
        *("path", "origin", "remote", "form", "plugin", "server", "refusal"),
        *("_digest", "_files", "_instructions", "_limits"),
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
        allowed_tools: Sequence[str] | None = None,
        extra: Mapping[str, Any] | None = None,
        origin: str = "",
    ) -> None:
        check_name(name)
        values = {
            "description": description,
            "instructions": instructions,
            "license": license,
            "compatibility": compatibility,
            "metadata": metadata,
            "allowed_tools": allowed_tools,
            "extra": extra,
        }
        check_fields(name, values)
        self.name = _exact(name)
        self.description = _exact(description)
        self.license = None if license is None else _exact(license)
        self.compatibility = None if compatibility is None else _exact(compatibility)
        self.metadata: Mapping[str, str] = MappingProxyType(
            {_exact(key): _exact(value) for key, value in (metadata or {}).items()}
        )
        self.allowed_tools = None if allowed_tools is None else tuple(map(_exact, allowed_tools))
        # A copy: a change of the caller's dict must not change what the digest was taken of.
        self.extra: Mapping[str, Any] = MappingProxyType(json.loads(json.dumps(dict(extra or {}))))
        self.path: str | None = None
        self.origin = origin
        self.remote = False
        self.form = "skill"
        self.plugin = self.server = self.refusal = ""
        self._limits = DEFAULT_LIMITS
        self._digest: str | None = None
        self._instructions: str | None = _exact(instructions or "")
        files = resource_files(name, resources, self._limits)
        files["SKILL.md"] = encoded(name, "the skill file", self.to_markdown(), self._limits.skill_file)
        self._files: SkillFiles = MemoryFiles(files)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and hasattr(self, name):
            raise AttributeError(
                f"skill {self.name!r}: {name} cannot be set, because a skill is immutable: create another AgentSkill"
            )
        super().__setattr__(name, value)

    @classmethod
    def from_folder(
        cls,
        folder: str | None,
        fields: Fields,
        *,
        root: str,
        skill_file: str = "SKILL.md",
        origin: str = "",
        remote: bool = False,
        limits: Limits | None = None,
        form: str = "skill",
        plugin: str = "",
        server: str = "",
        refusal: str = "",
        files: SkillFiles | None = None,
        digest: str | None = None,
    ) -> AgentSkill:
        """A skill backed by ``folder``; ``root`` is the real path that its links must not leave.

        ``files`` and ``digest`` are given where they are known, as they are for what a store has checked.
        Use :func:`flink_skills.skill.load_folder`, which reads the fields and says what is odd about them.
        """
        skill = cls.__new__(cls)
        limits = limits or DEFAULT_LIMITS
        # Without the check of __setattr__, which took half of the time.
        put = object.__setattr__
        files = FolderFiles(folder or "", root, skill_file, limits) if files is None else files
        source = (folder, origin or folder or "", remote, form, plugin, server, refusal)
        values = (*fields, *source, digest, files, None, limits)
        for name, value in zip(AgentSkill.__slots__, values, strict=True):
            put(skill, name, value)
        return skill

    @property
    def full_name(self) -> str:
        """The name with that of its plugin, such as ``ops:deploy``. It is the name if there is no plugin."""
        prefix = f"{self.plugin}:" if self.plugin else ""
        return self.name if self.name.startswith(prefix) else prefix + self.name

    def with_full_name(self, prefix: str = "") -> AgentSkill:
        """Return the skill with ``prefix`` and :attr:`full_name` as its name. The files are shared."""
        skill = self._same()
        object.__setattr__(skill, "name", prefix + self.full_name)
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

        Hidden files, files in hidden folders, files for people such as README.md, and files that this process cannot
        read are omitted.
        """
        return tuple(path for path in self._files.paths() if _is_doc(path) and self._readable(path))

    def _readable(self, path: str) -> bool:
        # The paths come from a listing of the folder and need no check.
        return self.path is None or self._files.on_demand or os.access(f"{self.path}/{path}", os.R_OK)

    @property
    def resources(self) -> Mapping[str, str]:
        """The other files, relative path -> text, each read when it is asked for."""
        return _Resources(self._files, self._limits.resource_read)

    @property
    def files(self) -> SkillFiles:
        """All files with the skill file, for listing, paged reading and digests."""
        return self._files

    def is_program(self, path: str) -> bool:
        """Return True if the file is executable, or in memory if it begins with ``#!``."""
        if self.path is None:
            return self._files.read(path, 0, 2).data == b"#!"
        return os.access(f"{self.path}/{path}", os.X_OK)

    @property
    def digest(self) -> str:
        """sha256 over the sorted (path, size, sha256) of the files; computed once, when it is first asked
        for.

        From then on, reading a file that has changed is an error and not new content (format rule S08).
        """
        if self._digest is None:
            self._digest = self._files.digest()
        return self._digest

    def has_digest(self, digest: str) -> bool:
        """Return True if ``digest`` is that of the files, by the rule of this release or of an earlier one.

        Raises :class:`ResourceError`.
        """
        return digest == self.digest or digest in self._files.earlier_digests()

    @property
    def hidden(self) -> bool:
        """Whether the skill asks not to be offered to models (``disable-model-invocation``)."""
        return str(self.extra.get("disable-model-invocation", "")).strip().lower() in ("true", "yes", "on", "1")

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

    def model_dump(self, *, mode: Literal["python", "json"] = "python") -> dict[str, Any]:
        """Return the skill as plain data, from which :meth:`model_validate` makes an equal skill.

        The keys are ``name``, ``description``, ``instructions`` and ``resources``, and of the others those that are
        set. ``skill_file`` has the path and the text of a skill file that :meth:`to_markdown` would write differently.

        Args:
            mode: ``"json"`` for JSON values only.

        Raises:
            ResourceError: A file is binary, is too large, or cannot be read. The message names the file.
        """
        return plain_content(
            self._fields(), self.instructions, self.to_markdown(), self._files, limits=self._limits, mode=mode
        )

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return :meth:`model_dump` as JSON text."""
        return json.dumps(self.model_dump(mode="json"), indent=indent, ensure_ascii=False)

    @classmethod
    def model_validate(cls, obj: Any) -> AgentSkill:
        """Return the skill that ``obj`` describes: a mapping of arguments, or a skill, which is returned as it is.

        Raises :class:`ConfigError` for a value that cannot be used.
        """
        if isinstance(obj, AgentSkill):
            return obj
        data = checked_data(obj)
        verbatim = data.pop("skill_file", None)
        if verbatim is None:
            return cls(**data)
        path, raw, fields, form = verbatim_fields(data, verbatim)
        if (data.get("instructions") or "").strip("\n") != cls.body_of(raw):
            raise ConfigError(
                f"skill {fields.name!r}: skill_file has other instructions than the skill. "
                "Leave skill_file out to use the new instructions."
            )
        files = resource_files(fields.name, data.get("resources"), DEFAULT_LIMITS)
        return cls.from_folder(None, fields, root="", form=form, files=MemoryFiles({**files, path: raw}, path))

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> AgentSkill:
        """Return the skill that JSON text describes, see :meth:`model_validate`."""
        try:
            data = json.loads(json_data)
        except ValueError as error:
            raise ConfigError(f"skill: not valid JSON ({error}). Give the text of model_dump_json.") from None
        return cls.model_validate(data)

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of :meth:`model_dump`."""
        return copy.deepcopy(dict(SCHEMA))

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> AgentSkill:
        """Return a copy of the skill.

        With ``update``, the copy is in memory and has these values instead of the old ones. They are checked.

        Raises:
            ConfigError: A new value cannot be used.
            ResourceError: There are new values, and :meth:`model_dump` fails.
        """
        if not update:
            return copy.copy(self)
        data = self.model_dump()
        data.pop("skill_file", None)
        return type(self).model_validate(data | dict(update))

    def _fields(self) -> Fields:
        return Fields(*(getattr(self, name) for name in Fields._fields))

    def __copy__(self) -> AgentSkill:
        return self._same()

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentSkill:
        return self._same()

    def _same(self) -> AgentSkill:
        """Return another object with the same values. Files are shared: neither skill changes them."""
        skill = type(self).__new__(type(self))
        for name in AgentSkill.__slots__:
            setattr(skill, name, getattr(self, name))
        return skill

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._pickled())

    def _pickled(self) -> dict[str, Any]:
        fields = self._fields()._replace(metadata=dict(self.metadata), extra=dict(self.extra))
        return {
            "fields": tuple(fields),
            "files": all_files(self.name, self._files, self._limits),
            "skill_file": self._files.skill_file,
            "form": self.form,
            "plugin": self.plugin,
            "server": self.server,
            "refusal": self.refusal,
            "instructions": self._instructions,
            "origin": self.origin,
            "remote": self.remote,
            "limits": self._limits,
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AgentSkill):
            return NotImplemented
        return self is other or (self.name == other.name and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema(cls.model_validate)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return cls.model_json_schema()

    def __repr__(self) -> str:
        return f"AgentSkill({self.name!r}, origin={self.origin!r})"


def _exact(text: str) -> str:
    """Return a plain ``str`` for a value of a subclass, such as a prompt or a member of an enum: YAML needs one."""
    return str.__str__(text)


def _unpickled(kind: type[AgentSkill], state: Mapping[str, Any]) -> AgentSkill:
    fields = Fields(*state["fields"])
    fields = fields._replace(metadata=MappingProxyType(fields.metadata), extra=MappingProxyType(fields.extra))
    files = MemoryFiles(state["files"], state["skill_file"])
    known = {name: state[name] for name in ("form", "plugin", "server", "refusal", "origin", "remote", "limits")}
    skill = kind.from_folder(None, fields, root="", files=files, **known)
    skill._instructions = state["instructions"]
    return skill


def _written(tools: tuple[str, ...]) -> str | list[str]:
    """One text, as the format has it; a list where a name would not survive that."""
    text = " ".join(tools)
    return text if split_tools(text) == tools else list(tools)


def _is_doc(path: str) -> bool:
    return (
        path.lower().endswith((".md", ".txt"))
        and path.lower() != "skill.md"
        and role_of(path) == "model"
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
