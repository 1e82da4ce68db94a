"""Judge the fields of a front matter (format rules F03 to F14): lenient values, and what is odd."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from flink_skills.skill.diagnostic import Report
from flink_skills.skill.text import clean_line, hidden_characters
from flink_skills.skill.yaml_values import Entry, Node, Untyped, plain_value, source_text

__all__ = ["Fields", "judge_fields", "split_tools"]

KNOWN_FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_ASCII_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PATH_LIKE = re.compile(r"[/\\]|^\.|^~")


@dataclass(frozen=True)
class Fields:
    """What the front matter says, after leniency."""

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    allowed_tools: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)


def judge_fields(entries: Mapping[str, Entry], report: Report, *, first_line: int, folder: str) -> Fields | None:
    """Read the fields; None, with an error reported, where there is no skill in them.

    ``folder`` is the name of the skill's directory, which stands in for a missing name.
    """
    judge = _Judge(entries, report, first_line)
    name = judge.name(folder)
    report.skill = name
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


def split_tools(text: str) -> tuple[str, ...]:
    """Names separated by spaces or commas, but not inside parentheses.

    >>> split_tools("Bash(git add:*, git diff) Read,Write")
    ('Bash(git add:*, git diff)', 'Read', 'Write')
    """
    return tuple(re.findall(r"(?:\([^()]*\)|[^\s,(])+(?:\([^()]*)?", text))


class _Judge:
    def __init__(self, entries: Mapping[str, Entry], report: Report, first_line: int) -> None:
        self._entries = entries
        self._report = report
        self._first_line = first_line

    def _line(self, field: str) -> int:
        return self._entries[field].line + self._first_line if field in self._entries else 0

    def _say(self, code: str, message: str, field: str, mend: str) -> None:
        self._report.add(code, message, line=self._line(field), mend=mend)

    def name(self, folder: str) -> str:
        entry = self._entries.get("name")
        written = source_text(entry.value) if entry else None
        name = clean_line(unicodedata.normalize("NFKC", written)) if written else ""
        if not name:
            self._say("F03", f"there is no name; the folder's, {folder!r}, is used", "name", f"add 'name: {folder}'")
            return clean_line(unicodedata.normalize("NFKC", folder)) or "skill"
        if written and hidden_characters(written):
            self._say("S06", "the name has hidden characters, which were removed", "name", "remove them")
        if _PATH_LIKE.search(name):
            self._say(
                "F05",
                f"{name!r} looks like a path; the folder's name {folder!r} is used",
                "name",
                "rename it",
            )
            return clean_line(unicodedata.normalize("NFKC", folder)) or "skill"
        if not (_ASCII_NAME.fullmatch(name) and len(name) <= MAX_NAME):
            self._judge_name(name)
        if name != folder and name != unicodedata.normalize("NFKC", folder):
            self._say("F07", f"the name {name!r} is not the folder's, {folder!r}", "name", "rename one of them")
        return name

    def _judge_name(self, name: str) -> None:
        if len(name) > MAX_NAME:
            self._say("F04", f"the name has {len(name)} characters", "name", f"use at most {MAX_NAME}")
        if name != name.lower() or not all(char.isalnum() or char == "-" for char in name):
            mend = "use lowercase letters, digits and hyphens"
            self._say("F05", f"the name {name!r} has other characters than the format allows", "name", mend)
        if name.startswith("-") or name.endswith("-") or "--" in name:
            self._say("F06", f"the name {name!r} has hyphens where none may be", "name", "single hyphens, inside")

    def description(self) -> str | None:
        entry = self._entries.get("description")
        value = entry.value if entry else None
        text = source_text(value) if value is not None else None
        if value is not None and text is None:
            text = _joined_text(value)
            if text:
                self._say("F09", "the description is a list and not text", "description", "write it as text")
        text = (text or "").strip()
        if not text or (isinstance(value, Untyped) and value.value is None):
            self._say("F08", "there is no description", "description", "say what the skill does and when to use it")
            return None
        if isinstance(value, Untyped):
            self._say("F09", f"the description {text!r} is no text for YAML", "description", "put it in quotes")
        if len(text) > MAX_DESCRIPTION:
            mend = f"use at most {MAX_DESCRIPTION}; details belong to the body"
            self._say("F09", f"the description has {len(text)} characters", "description", mend)
        if hidden := hidden_characters(text):
            message = f"the description has hidden characters ({', '.join(hidden[:5])})"
            self._say("S06", message, "description", "remove them")
        if "<!--" in text:
            self._say("S06", "the description has an HTML comment", "description", "remove it")
        return text

    def text(self, field: str, code: str) -> str | None:
        entry = self._entries.get(field)
        if entry is None:
            return None
        text = source_text(entry.value)
        if isinstance(entry.value, Untyped) or not text:
            self._say(code, f"{field} is no text", field, "write it as text, in quotes where needed")
        return text.strip() if text is not None else json.dumps(plain_value(entry.value), ensure_ascii=False)

    def compatibility(self) -> str | None:
        text = self.text("compatibility", "F11")
        if text and len(text) > MAX_COMPATIBILITY:
            mend = f"use at most {MAX_COMPATIBILITY}"
            self._say("F11", f"compatibility has {len(text)} characters", "compatibility", mend)
        return text

    def metadata(self) -> Mapping[str, str]:
        entry = self._entries.get("metadata")
        if entry is None:
            return _EMPTY
        if not isinstance(entry.value, dict):
            if not (isinstance(entry.value, Untyped) and entry.value.value is None):
                self._say("F12", "metadata is no map", "metadata", "write 'key: value' lines below it")
            return _EMPTY
        metadata: dict[str, str] = {}
        for key, value in entry.value.items():
            text = source_text(value)
            if text is None:
                self._say("F12", f"metadata {key!r} is no text; kept as JSON", "metadata", "write it as text")
            metadata[key] = json.dumps(plain_value(value), ensure_ascii=False) if text is None else text
        return MappingProxyType(metadata)

    def allowed_tools(self) -> tuple[str, ...] | None:
        entry = self._entries.get("allowed-tools")
        if entry is None:
            return None
        mend = "write one text with names separated by spaces"
        if isinstance(entry.value, list):
            self._say("F13", "allowed-tools is a list", "allowed-tools", mend)
            names = [(source_text(item) or "").strip() for item in entry.value]
            return tuple(name for name in names if name)
        text = source_text(entry.value)
        if text is None:
            self._say("F13", "allowed-tools is a map; no tool is taken from it", "allowed-tools", mend)
            return ()
        tools = split_tools(text)
        if "," in re.sub(r"\([^()]*\)", "", text):
            self._say("F13", "allowed-tools is separated by commas", "allowed-tools", mend)
        return tools

    def extra(self) -> Mapping[str, Any]:
        names = [name for name in self._entries if name not in KNOWN_FIELDS]
        for name in names:
            self._say("F14", f"the format has no field {name!r}; kept in extra", name, "move it into metadata")
        if not names:
            return _EMPTY
        return MappingProxyType({name: plain_value(self._entries[name].value) for name in names})


def _joined_text(value: Node) -> str:
    if isinstance(value, list):
        return " ".join(text for item in value if (text := source_text(item)))
    return ""
