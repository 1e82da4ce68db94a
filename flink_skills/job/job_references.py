"""``${env:NAME}``, ``${file:/path}`` and ``${job:dir}`` in a job file, replaced where the job's main runs.

``${env:NAME:-default}`` has a default for a variable that is not set or is empty; ``$${`` stands for ``${``. What is
inserted is not searched again, and is remembered, so that it can be taken out of every message.

Some values stay references, because those who use them read them themselves, on the TaskManagers: URLs of skills, MCP
servers,
``skills.source.options``, custom keys (``skills.user.*``), and options that *must* be references, such as
``skills.env.*``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any
from urllib.parse import quote, quote_plus

from flink_skills.documents.document import Document, Path, Problem
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.job.statements import in_literals
from flink_skills.options import OptionFamily, SkillOptions
from flink_skills.options.option import parse_optional_reference, parse_reference, parse_user_value
from flink_skills.sources.secrets import expand
from flink_skills.texts import visible

_ONE = re.compile(r"\$\$\{|\$\{(?P<kind>[A-Za-z]+):(?P<name>[^{}]*?)(?::-(?P<default>(?:[^{}]|\$\{[^{}]*\})*))?\}")
_KINDS = ("env", "file", "job")
_OPEN = re.compile(rf"\$\{{(?:{'|'.join(_KINDS)}):[^\s'\"${{}}]*")


class References:
    """Resolves the references of a document; ``problems`` are those it could not.

    ``folder`` is the job file's. ``at`` is where the job file names the document, for one that it names, and ``known``
    whose inserted values to hide as well.
    """

    def __init__(self, document: Document, folder: FilePath, *, at: Path = (), known: References | None = None) -> None:
        self._document, self._folder, self._at = document, folder, at
        self._inserted: InsertedValues = known._inserted if known is not None else InsertedValues()
        self._refused: set[tuple[Path, str, int]] = set()
        self.problems: list[Problem] = []

    def resolved(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of the document with the references that are replaced on this host."""
        found = {key: self._value(value, (key,)) for key, value in data.items()}
        return {str(key): value for key, value in found.items()}

    @staticmethod
    def stays_in(text: str) -> bool:
        """Return True if a string still contains a reference, because it could not be replaced."""
        return any(match["kind"] is not None for match in _ONE.finditer(text)) or bool(_OPEN.search(text))

    def hide(self, text: str) -> str:
        """Return ``text`` with each inserted value replaced by its reference."""
        return self._inserted.hide(text)

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
        if whole[-2:] == ("input", "query") and (len(whole) == 2 or (len(whole) == 4 and whole[0] == "agents")):
            self._refuse_in_query(value, path)
            return value
        return self._text(value, path, late=_is_late(whole))

    def _sql(self, text: str, path: Path) -> str:
        def outside(line: str, number: int) -> None:
            for match in _ONE.finditer(line):
                message = f"{match[0]} is outside quotes; references are replaced only in strings: write '{match[0]}'"
                self.problems.append(self._document.problem(path, message, line=number))

        return in_literals(text, lambda literal, line: self._text(literal, path, line=line), outside)

    def _refuse_in_query(self, text: str, path: Path) -> None:
        for match in _ONE.finditer(text):
            message = f"{match[0]} in a query would be seen in the job's plan: put it into a table's options"
            self.problems.append(self._document.problem(path, message))

    def _text(self, text: str, path: Path, *, late: bool = False, line: int = 0) -> str:
        def replaced(match: re.Match[str]) -> str:
            if match["kind"] is None:
                # A later replacement must not find a reference either.
                return match[0] if late else "${"
            try:
                return self._late(match, path) if late else self._now(match, path)
            except ConfigError as error:
                self._refuse(path, str(error), line)
                return match[0]

        found = _ONE.sub(replaced, text)
        for opened in _OPEN.finditer(_ONE.sub("", text)):
            message = f"{opened[0]} is never closed: write }} behind it, or $${{ for a text that begins so"
            self._refuse(path, message, line)
        return found

    def _refuse(self, path: Path, message: str, line: int) -> None:
        """Add a problem once, because nested references can have the same one."""
        if (path, message, line) not in self._refused:
            self._refused.add((path, message, line))
            self.problems.append(self._document.problem(path, message, line=line))

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
            raise ConfigError(_fix(str(error))) from None
        if match["default"] is not None and not value:
            return self._text(match["default"], path)
        self._inserted.add(value, reference)
        return value


def _fix(message: str) -> str:
    """Return the message of an unresolved reference for the host on which a job's main runs."""
    return message.replace("set it on every machine that runs the job", "set it where the job is submitted").replace(
        "put it on every machine that runs the job", "put it where the job is submitted"
    )


def _is_late(path: Path) -> bool:
    """Return True if the TaskManagers replace the references in the value at ``path``."""
    agent = path[1:] if path[:1] == ("agent",) else path[2:] if path[:1] == ("agents",) else path
    if agent[:2] == ("skills", "urls") or agent[:1] == ("mcp_servers",):
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
            return option.parse in (parse_reference, parse_optional_reference, parse_user_value)
    return False


# Shorter values occur in too many unrelated words.
_SHORTEST = 4
# A line of a value with several lines. Shorter lines, such as a brace, occur elsewhere, too.
_SHORTEST_LINE = 16
_BOTH_QUOTES = "'\""


class InsertedValues:
    """Replaces values by their references.

    It recognizes values verbatim, with other whitespace, each of their long lines, and in the notation of SQL, JSON,
    Java, Python, URLs and terminals.

    Flink and its libraries collapse whitespace in values, so it is not compared. Truncated, encoded or reversed values
    are not recognized. Values with fewer than 4 characters remain visible.

    >>> inserted = InsertedValues()
    >>> inserted.add("pl4nted  pass\\nword", "${env:A}")
    >>> inserted.hide("cannot parse 'pl4nted pass word'")
    "cannot parse '${env:A}'"
    """

    def __init__(self) -> None:
        self._references: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str, reference: str) -> None:
        """Hide ``value`` from now on."""
        for form in _forms(value):
            self._references.setdefault(_one_line(form), reference)
        self._pattern = None

    def hide(self, text: str) -> str:
        """Return ``text`` without the values. A second call changes nothing."""
        if not self._references:
            return text
        if self._pattern is None:
            # A reference can contain the value of another one, and is not a secret.
            known = {*self._references, *self._references.values()}
            # Longest first, because a value can be the prefix of another one.
            longest_first = sorted(known, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(r"\s+".join(map(re.escape, form.split())) for form in longest_first))
        return self._pattern.sub(lambda found: self._references.get(_one_line(found[0]), found[0]), text)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _forms(value: str) -> Iterator[str]:
    for part in (value, *(line for line in value.splitlines() if len(line.strip()) >= _SHORTEST_LINE)):
        if len(part.strip()) < _SHORTEST:
            continue
        for write in _WRITTEN:
            form = write(part)
            yield form
            # An error that contains the message of another one quotes it a second time.
            yield _in_python(form)
            yield _in_python_with_both_quotes(form)


def _in_sql(value: str) -> str:
    return value.replace("'", "''")


def _in_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _in_python(value: str) -> str:
    return repr(value)[1:-1]


def _in_python_with_both_quotes(value: str) -> str:
    """Return ``value`` as Python writes it in a string with both kinds of quotes."""
    return repr(value + _BOTH_QUOTES)[1 : -len("\\'\"'")]


_WRITTEN: tuple[Callable[[str], str], ...] = (
    str,
    _in_sql,
    _in_json,
    lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    # The format of the token at which Flink's parser stopped.
    lambda value: _in_json(_in_sql(value)).replace("'", "\\'"),
    visible,
    lambda value: quote(value, safe=""),
    quote,
    quote_plus,
)
