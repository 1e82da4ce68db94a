"""Entries for a server's skills: checked, pinned and compared with the files that are read later."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flink_skills.skill import Limits, Report
from flink_skills.skill.file_rules import comparison_key, name_problem, resource_parts
from flink_skills.skill.frontmatter import find_block, read_front_matter
from flink_skills.skill.text import clean_line
from flink_skills.skill.yaml_values import Node, Untyped

_SKILL_FILE = "SKILL.md"
_MAX_URI = 2_048
# The extension's limits, which each host supports.
_MAX_FILES, _MAX_BYTES = 512, 16 << 20
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Words that YAML 1.1 reads as booleans.
_BOOLEANS = {**dict.fromkeys(("yes", "on", "y"), True), **dict.fromkeys(("no", "off", "n"), False)}


class ServedFile(NamedTuple):
    """A skill's file: its URI, its size (None if the server does not state it) and its SHA-256."""

    uri: str
    size: int | None
    sha256: str


class _Resource(BaseModel):
    model_config = ConfigDict(strict=True)
    uri: Annotated[str, Field(max_length=_MAX_URI)]
    digest: Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)] | None = None


class _Skill(BaseModel):
    model_config = ConfigDict(strict=True)
    uri: str
    frontmatter: dict[str, Any]
    resources: Literal["dynamic"] | Annotated[list[_Resource], Field(min_length=1)]


@dataclass(frozen=True)
class SkillEntry:
    """A skill as its server describes it.

    Attributes:
        uri: The ``SKILL.md`` URI.
        front_matter: Its front matter.
        files: The files by path. Empty: the content is dynamic.
    """

    uri: str
    front_matter: Mapping[str, Any]
    files: Mapping[str, ServedFile]

    @property
    def name(self) -> str:
        return str(self.front_matter["name"])

    @property
    def place(self) -> str:
        """The skill's path on its server without the name, such as ``acme/billing``."""
        return self.uri.partition("://")[2].removesuffix(f"/{_SKILL_FILE}").rpartition("/")[0]

    @property
    def digest(self) -> str:
        """SHA-256 over the URI, the front matter, and each file's URI, size and digest."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the entry in the extension's form."""
        files = [
            {"uri": file.uri, "digest": f"sha256:{file.sha256}"} | ({} if file.size is None else {"size": file.size})
            for file in self.files.values()
        ]
        return {"uri": self.uri, "frontmatter": dict(self.front_matter), "resources": files or "dynamic"}

    @cached_property
    def head(self) -> bytes:
        """Return the front matter as a skill file's start."""
        texts = [[json.dumps(part, ensure_ascii=False) for part in item] for item in self.front_matter.items()]
        return "\n".join(["---", *(f"{key}: {value}" for key, value in texts), "---", ""]).encode()


def read_entry(raw: Any, limits: Limits) -> SkillEntry | str:
    """Return the entry that a server sent, or what is wrong with it."""
    try:
        skill = _Skill.model_validate(raw)
    except ValidationError as error:
        # The deepest error is that of the alternative that the value resembles most.
        found = max(error.errors(include_url=False, include_input=False), key=lambda one: len(one["loc"]))
        return f"{'.'.join(str(part) for part in found['loc'])[:120]} is not valid: {found['msg']}"
    uri, front_matter, resources = skill.uri, skill.frontmatter, skill.resources
    if not _is_uri(uri) or not uri.endswith(f"/{_SKILL_FILE}") or "://" not in uri:
        return f"'uri' is {_shown(uri)} instead of the URI of a {_SKILL_FILE}"
    for key in ("name", "description"):
        if not isinstance(front_matter.get(key), str) or not front_matter[key].strip():
            return f"'frontmatter' has no string {key!r}"
    root = uri.removesuffix(f"/{_SKILL_FILE}")
    name = front_matter["name"]
    # ':' would make it the name of a skill of another origin.
    if (
        not all(char.isalnum() or char == "-" for char in name)
        or unquote(root.partition("://")[2].rpartition("/")[2]) != name
    ):
        return f"the URI {uri} does not end with the name {_shown(name)} and /{_SKILL_FILE}"
    if isinstance(resources, str):
        return _encodable(SkillEntry(uri, front_matter, {}), limits)
    if len(resources) > max(_MAX_FILES, limits.skill_files):
        return f"the skill has {len(resources):,} files, more than skills.limits.skill-files"
    files: dict[str, ServedFile] = {}
    keys: set[str] = set()
    for resource in resources:
        try:
            path = _path(resource.uri, root)
        except ValueError as error:
            return f"the file {_shown(resource.uri)} has an invalid path: {error}"
        if (key := comparison_key(path)) in keys:
            return f"the file {_shown(path)} is listed twice"
        keys.add(key)
        files[path] = ServedFile(resource.uri, resource.size, resource.digest.removeprefix("sha256:"))
    for key in keys:
        parents = key.split("/")[:-1]
        if any("/".join(parents[:end]) in keys for end in range(1, len(parents) + 1)):
            return f"{_shown(key)} is below a file"
    if files.get(_SKILL_FILE, ("",))[0] != uri:
        return f"'resources' does not have {uri}"
    total = sum(file.size or 0 for file in files.values())
    if total > max(_MAX_BYTES, limits.total):
        return f"the files have {total:,} bytes, more than skills.limits.total"
    if (files[_SKILL_FILE].size or 0) > limits.skill_file:
        return f"{_SKILL_FILE} has {files[_SKILL_FILE].size:,} bytes, more than skills.limits.skill-file"
    return _encodable(SkillEntry(uri, front_matter, files), limits)


def _encodable(entry: SkillEntry, limits: Limits) -> SkillEntry | str:
    try:
        size = len(entry.head)
    except (UnicodeEncodeError, ValueError, RecursionError):
        return "'frontmatter' cannot be written as text"
    if size > limits.front_matter:
        return f"'frontmatter' has {size:,} bytes, more than skills.limits.front-matter"
    return entry


def _is_uri(value: str) -> bool:
    return len(value) <= _MAX_URI and value.isprintable() and not set("?#\\ ") & {*value}


def _path(uri: str, root: str) -> str:
    """Return a file's path in the skill. Raises :class:`ValueError`."""
    if not uri.startswith(f"{root}/"):
        raise ValueError("the file is outside the skill")
    parts = [unquote(part, errors="strict") for part in uri[len(root) + 1 :].split("/")]
    path = "/".join(parts)
    if any("/" in part for part in parts) or resource_parts(path) != tuple(parts):
        raise ValueError("the path is not plain")
    if problem := next(filter(None, map(name_problem, parts)), ""):
        raise ValueError(problem)
    return path


def _shown(value: Any) -> str:
    return repr(clean_line(value)[:120]) if isinstance(value, str) else f"a {type(value).__name__}"


def pack_entries(entries: Iterable[SkillEntry]) -> str:
    """Return entries as one word, for a plan."""
    data = json.dumps([entry.to_json() for entry in entries], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(zlib.compress(data.encode(), 9)).decode()


def unpack_entries(text: str, limits: Limits) -> list[SkillEntry]:
    """Return the entries in :func:`pack_entries` output. Raises :class:`ValueError`."""
    found = []
    for raw in json.loads(zlib.decompress(base64.urlsafe_b64decode(text))):
        entry = read_entry(raw, limits)
        if isinstance(entry, str):
            raise ValueError(entry)
        found.append(entry)
    return found


def front_matter_problem(data: bytes, entry: SkillEntry, limits: Limits) -> str:
    """Return how the front matter in a ``SKILL.md`` differs from the entry. Empty: they are equal."""
    block = find_block(data, Report(), limits)
    fields = read_front_matter(block, Report(), limits) if block else None
    if fields is None:
        return "the front matter of the file cannot be read"
    for name in dict.fromkeys((*fields, *entry.front_matter)):
        if name not in fields or name not in entry.front_matter:
            return f"the field {_shown(name)} is only in {'the entry' if name not in fields else 'the file'}"
        if not _is_same(fields[name].value, entry.front_matter[name]):
            return f"the field {_shown(name)} differs from the entry"
    return ""


def _is_same(node: Node, value: Any) -> bool:
    """Return True if a YAML value and a JSON value are the same. YAML readers differ in scalar types."""
    if isinstance(node, dict):
        if not isinstance(value, dict) or node.keys() != value.keys():
            return False
        return all(_is_same(item, value[key]) for key, item in node.items())
    if isinstance(node, list):
        return isinstance(value, list) and len(node) == len(value) and all(map(_is_same, node, value))
    if isinstance(node, Untyped):
        typed = isinstance(value, bool) == isinstance(node.value, bool) and value == node.value
        return bool(typed or value == node.text)
    if isinstance(value, str):
        return node == value or bool(_DATE.fullmatch(node) and value.startswith(f"{node}T00:00:00"))
    return isinstance(value, bool) and _BOOLEANS.get(node.lower()) is value
