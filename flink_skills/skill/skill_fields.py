"""Judge the fields of a front matter (format rules F03 to F14): lenient values, and what is odd."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from flink_skills.skill.diagnostic import Report
from flink_skills.skill.frontmatter import find_block, read_front_matter, starts_with_front_matter
from flink_skills.skill.skill_body import first_heading
from flink_skills.skill.skill_limits import Limits
from flink_skills.skill.text import clean_line, hidden_characters
from flink_skills.skill.yaml_values import Entry, Node, Untyped, is_null, plain_value, source_text

KNOWN_FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500

EMPTY: Mapping[str, Any] = MappingProxyType({})
_MAX_NAME_LENGTH = 1_000
_ASCII_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Words of YAML and of prose that begin a list or a block, and no tool.
_DASHES = frozenset({"-", "\u2013", "\u2022", "|", "|-", ">", ">-"})
_PATH_LIKE = re.compile(r"[/\\]|^\.|^~")


class Fields(NamedTuple):
    """What the front matter says, after leniency."""

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = EMPTY
    allowed_tools: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = EMPTY


_JOINED = re.compile(r"(?:\s|\\n)(name|description|license|compatibility|metadata|allowed-tools):\s")
_TOOLS_FIX = "name them in allowed-tools, or in lines '- name' below a line 'Tools:' at the start of the body"
_JOINED_FIX = "write each field on its own line"


def judge_fields(entries: Mapping[str, Entry], report: Report, *, first_line: int, folder: str) -> Fields | None:
    """Read the fields; None, with an error reported, where there is no skill in them.

    ``folder`` is the name of the skill's directory, which stands in for a missing name.
    """
    if not entries.keys() <= KNOWN_FIELDS:
        entries = _in_lower_case(entries, report, first_line)
    judge = _Judge(entries, report, first_line)
    name = judge.name(folder)
    report.skill = name
    judge.joined()
    description = judge.description()
    if description is None:
        return None
    if len(entries) == 2 and "name" in entries:
        return Fields(name, description)
    return Fields(
        name,
        description,
        license=judge.text("license", "F10"),
        compatibility=judge.compatibility(),
        metadata=judge.metadata(),
        allowed_tools=judge.allowed_tools(),
        extra=judge.extra(),
    )


def read_fields(
    data: bytes, report: Report, limits: Limits, *, folder: str, heading: bool = True, complete: bool = True
) -> tuple[Fields | None, str]:
    """Return the fields of a skill file, and its form. The fields are None, with an error reported, without a skill.

    Args:
        data: The file, or its beginning.
        report: Receives the diagnostics.
        limits: Maximum sizes.
        folder: The name of the skill's directory.
        heading: Whether a file without front matter is a skill (form "heading"). Its folder is the name, and its first
            heading the description.
        complete: Whether ``data`` is the whole file.
    """
    if starts_with_front_matter(data) or not heading:
        block = find_block(data, report, limits, complete=complete)
        entries = read_front_matter(block, report, limits) if block else None
        if block is None or entries is None:
            return None, "skill"
        return judge_fields(entries, report, first_line=block.line, folder=folder), "skill"
    report.add("L13", "the file has no front matter; folder and first heading say what it is", line=1)
    found = first_heading(data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n"))
    line = found.line if found else 1
    report.skill = name = _of_folder(folder)
    _judge_name(name, report, line)
    text = _Judge({}, report, line).described(clean_line(found.text) if found else "", line)
    return None if text is None else Fields(name, text), "heading"


def split_tools(text: str, *, commas: bool = True) -> tuple[str, ...]:
    """Names separated by spaces or commas (``commas``), but not inside parentheses. Dashes of lists are omitted.

    >>> split_tools("Bash(git add:*, git diff) Read,Write")
    ('Bash(git add:*, git diff)', 'Read', 'Write')
    """
    names = _split(text, commas=commas)
    names = [name for name in names if name not in _DASHES]
    if all(name.startswith("-") for name in names):
        names = [name[1:] for name in names]
    return tuple(map(_without_quotes, names))


def _split(text: str, *, commas: bool) -> list[str]:
    names, start, depth = [], 0, 0
    for end, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= depth > 0
        elif not depth and ((commas and char == ",") or char.isspace()):
            names.append(text[start:end])
            start = end + 1
    return [name for name in (*names, text[start:]) if name]


def _without_quotes(name: str) -> str:
    return name[1:-1] if len(name) > 2 and name[0] in "\"'" and name[-1] == name[0] else name


def _in_lower_case(entries: Mapping[str, Entry], report: Report, first_line: int) -> Mapping[str, Entry]:
    """``Description:`` for ``description:``, where the latter is not there."""
    fields: dict[str, Entry] = {}
    for name, entry in entries.items():
        known = name.lower()
        if name != known and known in KNOWN_FIELDS and known not in entries and known not in fields:
            report.add("L15", f"the field {name!r} was read as {known!r}", line=entry.line + first_line)
            fields[known] = entry
        else:
            fields[name] = entry
    return fields


def _of_folder(folder: str) -> str:
    return clean_line(unicodedata.normalize("NFKC", folder)) or "skill"


def _joined_name(name: str) -> str | None:
    """Return a name of several parts, such as ``plugin/skill``, with hyphens. Return None for a path.

    >>> _joined_name("plugin/skill"), _joined_name("../skill")
    ('plugin-skill', None)
    """
    parts = [part.strip() for part in re.split(r"[/\\]", name)]
    if len(parts) < 2 or any(not part or ".." in part or part.startswith((".", "~")) for part in parts):
        return None
    return "-".join(parts)


def _judge_name(name: str, report: Report, line: int) -> None:
    """Report what the format does not allow in ``name``, as it was written but for its normal form."""
    if len(name) > MAX_NAME:
        report.add("F04", f"the name has {len(name)} characters", line=line)
    if name != name.lower() or not all(char.isalnum() or char == "-" for char in name):
        report.add("F05", f"the name {name!r} has other characters than the format allows", line=line)
    if name.startswith("-") or name.endswith("-") or "--" in name:
        report.add("F06", f"the name {name!r} has hyphens where none may be", line=line)


class _Judge:
    def __init__(self, entries: Mapping[str, Entry], report: Report, first_line: int) -> None:
        self._entries = entries
        self._report = report
        self._first_line = first_line

    def _line(self, field: str) -> int:
        """The line of a field; that of the front matter's beginning where the field is missing."""
        return self._first_line + (self._entries[field].line if field in self._entries else -1)

    def _say(self, code: str, message: str, field: str, fix: str = "") -> None:
        if not fix and field in self._entries:
            fix = self._entries[field].fix
        self._report.add(code, message, line=self._line(field), fix=fix)

    def name(self, folder: str) -> str:
        entry = self._entries.get("name")
        value = entry.value if entry else None
        if type(value) is str and value == folder and len(value) <= MAX_NAME and _ASCII_NAME.fullmatch(value):
            return value
        written = None if value is None or is_null(value) else source_text(value)
        # Normalization takes quadratic time for many accents on one letter.
        normal = unicodedata.normalize("NFKC", written[:_MAX_NAME_LENGTH]).strip() if written else ""
        name = clean_line(normal)
        if not name:
            message = f"there is no name; the folder's, {folder!r}, is used"
            if value is not None and not is_null(value) and written is None:
                message = f"the name is not a string; the folder's name {folder!r} is used"
            self._say("F03", message, "name", f"add 'name: {folder}'")
            return _of_folder(folder)
        if hidden_characters(normal):
            self._say("S06", "the name has hidden characters, which were removed", "name")
        if _PATH_LIKE.search(name):
            joined = _joined_name(name)
            if joined is None:
                message = f"{name!r} looks like a path; the folder's name {folder!r} is used"
                self._say("F05", message, "name")
                return _of_folder(folder)
            self._say("F05", f"the name {name!r} has slashes; {joined!r} is used", "name", f"write 'name: {joined}'")
            name = normal = joined
        if not (len(normal) <= MAX_NAME and _ASCII_NAME.fullmatch(normal)):
            _judge_name(normal, self._report, self._line("name"))
        if name != folder and name != unicodedata.normalize("NFKC", folder):
            self._say("F07", f"the name {name!r} is not the folder's, {folder!r}", "name")
        return name

    def joined(self) -> None:
        """Report a value that contains the next field, which is missing therefore."""
        for field, entry in self._entries.items():
            text = source_text(entry.value) if field in KNOWN_FIELDS else None
            for match in _JOINED.finditer(text or ""):
                other = match[1]
                if other not in self._entries and (field == "name" or other in ("name", "description")):
                    self._say("L17", f"the line of {field!r} also has the field {other!r}", field, _JOINED_FIX)
                    break

    def description(self) -> str | None:
        entry = self._entries.get("description")
        value = None if entry is None or is_null(entry.value) else entry.value
        line = self._line("description")
        if type(value) is str:
            return self.described(value, line)
        if entry is None or value is None:
            if entry is not None and entry.fix:
                self._report.add("F08", "there is no description", line=line, fix=entry.fix)
                return None
            return self.described("", line)
        text = source_text(value)
        if text is None:
            text = _joined_text(value) or (entry.raw if value else "")
            if text:
                kind = "list" if isinstance(value, list) else "map"
                self._say("F09", f"the description is a {kind} and not text", "description", "put it in quotes")
        else:
            self._say("F09", f"the description {text!r} is not a YAML string", "description", "put it in quotes")
        return self.described(text, line)

    def described(self, text: str, line: int) -> str | None:
        """The description in ``text``, judged; None, with an error reported, where there is none."""
        text = text.strip()
        if not text:
            self._report.add("F08", "there is no description", line=line)
            return None
        if len(text) > MAX_DESCRIPTION:
            fix = f"use at most {MAX_DESCRIPTION}; details belong to the body"
            self._report.add("F09", f"the description has {len(text)} characters", line=line, fix=fix)
        if hidden := hidden_characters(text):
            message = f"the description has hidden characters ({', '.join(hidden[:5])})"
            self._report.add("S06", message, line=line)
        if "<!--" in text:
            self._report.add("S06", "the description has an HTML comment", line=line)
        return text

    def text(self, field: str, code: str) -> str | None:
        entry = self._entries.get(field)
        if entry is None:
            return None
        text = source_text(entry.value)
        if isinstance(entry.value, Untyped) or not text or not text.strip():
            self._say(code, f"{field} is not a string", field)
        if is_null(entry.value):
            return None
        return text.strip() if text is not None else entry.raw or _as_json(entry.value)

    def compatibility(self) -> str | None:
        text = self.text("compatibility", "F11")
        if text and len(text) > MAX_COMPATIBILITY:
            fix = f"use at most {MAX_COMPATIBILITY}"
            self._say("F11", f"compatibility has {len(text)} characters", "compatibility", fix)
        return text

    def metadata(self) -> Mapping[str, str]:
        entry = self._entries.get("metadata")
        if entry is None:
            return EMPTY
        if not isinstance(entry.value, dict):
            self._say("F12", "metadata is not a map", "metadata")
            return EMPTY
        metadata: dict[str, str] = {}
        for key, value in entry.value.items():
            text = source_text(value)
            if text is None:
                self._say("F12", f"metadata {key!r} is not a string; kept as JSON", "metadata", "write it as a string")
                text = _as_json(value)
            metadata[key] = text
        return MappingProxyType(metadata)

    def allowed_tools(self) -> tuple[str, ...] | None:
        entry = self._entries.get("allowed-tools")
        if entry is None:
            return None
        if is_null(entry.value):
            self._say("F13", "allowed-tools is empty", "allowed-tools", "write names or leave it out")
            return None
        if isinstance(entry.value, list):
            self._say("F13", "allowed-tools is a list", "allowed-tools")
            names = [(source_text(item) or "").strip() for item in entry.value]
            return tuple(name for name in names if name)
        text = source_text(entry.value)
        if text is None:
            only_names = isinstance(entry.value, dict) and all(map(is_null, entry.value.values()))
            if only_names and isinstance(entry.value, dict):
                self._say("F13", "allowed-tools is a set in braces", "allowed-tools")
                return tuple(entry.value)
            self._say("F13", "allowed-tools is a map; no tool is taken from it", "allowed-tools")
            return ()
        tools = split_tools(text)
        if text.lstrip().startswith("-") or not _DASHES.isdisjoint(_split(text, commas=False)):
            self._say("F13", "allowed-tools has the dashes of a list", "allowed-tools")
            return tools
        if "," in text and tools != split_tools(text, commas=False):
            self._say("F13", "allowed-tools is separated by commas", "allowed-tools")
        return tools

    def extra(self) -> Mapping[str, Any]:
        names = [name for name in self._entries if name not in KNOWN_FIELDS]
        for name in names:
            fix = _TOOLS_FIX if name.lower() == "tools" else ""
            unread = "; no tool is read from it" if fix else ""
            self._say("F14", f"the format has no field {name!r}; kept in extra{unread}", name, fix)
        if not names:
            return EMPTY
        return MappingProxyType({name: plain_value(self._entries[name].value) for name in names})


def _joined_text(value: Node) -> str:
    if isinstance(value, list):
        return " ".join(text for item in value if (text := source_text(item)))
    return ""


def _as_json(value: Node) -> str:
    return json.dumps(plain_value(value), ensure_ascii=False)
