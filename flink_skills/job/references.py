"""``${env:NAME}``, ``${file:/path}`` and ``${job:dir}`` in a job file, replaced where the job's main runs.

``${env:NAME:-default}`` has a default for a variable that is not set or is empty; ``$${`` stands for ``${``. What is
inserted is not searched again, and is remembered, so that it can be taken out of every message.

Some values stay references, because those who use them read them themselves, on the TaskManagers: URLs of skills,
``skills.source.options``, and options that *must* be references, such as ``skills.env.*``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any
from urllib.parse import quote

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.job.document import Document
from flink_skills.job.problems import Path, Problem
from flink_skills.job.statements import in_literals
from flink_skills.options import OptionFamily, SkillOptions
from flink_skills.options.values import parse_optional_reference, parse_reference
from flink_skills.sources.secrets import expand

__all__ = ["References"]

_ONE = re.compile(r"\$\$\{|\$\{(?P<kind>[A-Za-z]+):(?P<name>[^{}]*?)(?::-(?P<default>(?:[^{}]|\$\{[^{}]*\})*))?\}")
_KINDS = ("env", "file", "job")
# Shorter values are found in too many words that have nothing to do with them.
_SHORTEST_HIDDEN = 4


class References:
    """Resolves the references of a document; ``problems`` are those it could not.

    ``folder`` is the job file's. ``at`` is where the job file names the document, for one that it names, and ``known``
    whose inserted values to hide as well.
    """

    def __init__(self, document: Document, folder: FilePath, *, at: Path = (), known: References | None = None) -> None:
        self._document, self._folder, self._at = document, folder, at
        self._values: dict[str, str] = known._values if known is not None else {}
        self.problems: list[Problem] = []

    def resolved(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The data of the document with every reference replaced that is replaced here."""
        found = {key: self._value(value, (key,)) for key, value in data.items()}
        return {str(key): value for key, value in found.items()}

    def hide(self, text: str) -> str:
        """``text`` with each inserted value as the reference that it came from."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, self._values[value])
        return text

    def _value(self, value: Any, path: Path) -> Any:
        if isinstance(value, Mapping):
            return {key: self._value(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item, (*path, number)) for number, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        whole = (*self._at, *path)
        if whole == ("tables",):
            return self._sql(value, path)
        if whole == ("input", "query"):
            self._refuse_in_query(value, path)
            return value
        return self._text(value, path, late=_is_late(whole))

    def _sql(self, text: str, path: Path) -> str:
        def outside(line: str, number: int) -> None:
            for match in _ONE.finditer(line):
                message = f"{match[0]} stands outside of quotes; references are for texts: '{match[0]}'"
                self.problems.append(self._document.problem(path, message, line=number))

        return in_literals(text, lambda literal, line: self._text(literal, path, line=line), outside)

    def _refuse_in_query(self, text: str, path: Path) -> None:
        for match in _ONE.finditer(text):
            message = f"{match[0]} in a query would be seen in the job's plan: put it into a table's options"
            self.problems.append(self._document.problem(path, message))

    def _text(self, text: str, path: Path, *, late: bool = False, line: int = 0) -> str:
        def replaced(match: re.Match[str]) -> str:
            if match["kind"] is None:
                # For those who read references themselves it must stay one that is none.
                return match[0] if late else "${"
            try:
                return self._late(match, path) if late else self._now(match, path)
            except ConfigError as error:
                self.problems.append(self._document.problem(path, str(error), line=line))
                return match[0]

        return _ONE.sub(replaced, text)

    def _late(self, match: re.Match[str], path: Path) -> str:
        if match["kind"] == "job":
            return self._now(match, path)
        if match["default"] is None:
            return match[0]
        reference = f"${{{match['kind']}:{match['name']}}}"
        try:
            expand(reference)
        except ConfigError:
            return self._text(match["default"], path, late=True)
        return reference

    def _now(self, match: re.Match[str], path: Path) -> str:
        kind, name = match["kind"], match["name"]
        if kind not in _KINDS:
            raise ConfigError(str(UnknownNameError("kind of reference", kind, _KINDS, place=match[0])))
        if kind == "job":
            if name != "dir":
                raise ConfigError(f"{match[0]}: write ${{job:dir}}, the folder of the job file")
            return str(self._folder)
        reference = f"${{{kind}:{name}}}"
        try:
            value = expand(reference)
        except ConfigError as error:
            if match["default"] is not None:
                return self._text(match["default"], path)
            raise ConfigError(_mend(str(error))) from None
        if match["default"] is not None and not value:
            return self._text(match["default"], path)
        self._remember(value, reference)
        return value

    def _remember(self, value: str, reference: str) -> None:
        written: tuple[Callable[[str], str], ...] = (
            str,
            lambda v: v.replace("'", "''"),
            lambda v: json.dumps(v)[1:-1],
            lambda v: json.dumps(v, ensure_ascii=False)[1:-1],
            lambda v: quote(v, safe=""),
        )
        for write in written:
            if len(write(value)) >= _SHORTEST_HIDDEN:
                self._values.setdefault(write(value), reference)


def _mend(message: str) -> str:
    """The message of a reference that cannot be resolved, for where a job's main runs."""
    return message.replace("set it on every machine that runs the job", "set it where the job is submitted").replace(
        "put it on every machine that runs the job", "put it where the job is submitted"
    )


def _is_late(path: Path) -> bool:
    """Whether the value at ``path`` is read by those who use it."""
    if path[:2] == ("skills", "urls") or path[:3] == ("agent", "skills", "urls"):
        return True
    if path[:1] != ("options",) or len(path) < 2:
        return False
    key = str(path[1])
    if key in (SkillOptions.SOURCE_OPTIONS.key, SkillOptions.FROM_URLS.key):
        return True
    declared: list[Any] = [*SkillOptions.all(), *SkillOptions.families()]
    for option in declared:
        same = key.startswith(option.prefix) if isinstance(option, OptionFamily) else key == option.key
        if same:
            return option.parse in (parse_reference, parse_optional_reference)
    return False
