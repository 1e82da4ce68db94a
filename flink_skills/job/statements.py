"""The SQL of a job file: its statements with their lines, and which of them a job may have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from flink_skills.errors import near_misses

# Tokens of SQL that can contain a semicolon or a quote: comments, strings, names in backticks.
_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)"
    r"|(?P<literal>'(?:[^']|'')*')"
    r"|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<end>;)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<open>\()|(?P<close>\))"
    r"|(?P<broken>['`]|/\*)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_CREATED = ("TABLE", "VIEW", "CATALOG", "DATABASE", "FUNCTION", "MODEL")
_BEFORE = {"OR", "REPLACE", "TEMPORARY", "SYSTEM", "ALTER", "MATERIALIZED"}
_FIXES = {
    "SET": "put options of Flink under 'flink'",
    "RESET": "put options of Flink under 'flink'",
    "INSERT": "the job writes to the tables of 'output', 'errors' and 'events' itself",
    "EXECUTE": "the job runs what 'input', 'agent' and 'output' say",
    "BEGIN": "the job runs what 'input', 'agent' and 'output' say",
    "SELECT": "write it as 'query' of 'input', or as a view",
    "ADD": "put jars under 'jars', or into Flink's lib folder",
}


@dataclass(frozen=True)
class Statement:
    """A statement without its semicolon, and the line in which it starts, from 1."""

    text: str
    line: int

    @property
    def title(self) -> str:
        """First words of the statement, such as ``CREATE TABLE answers``."""
        words = [m[0] for m in _tokens(self.text) if m.lastgroup in ("word", "name") or m[0] == "."]
        shown: list[str] = []
        for word in words:
            shown.append(word)
            if word.upper() in _CREATED or word.upper() == "USE":
                break
        rest = [word for word in words[len(shown) :] if word.upper() not in ("IF", "NOT", "EXISTS", "CATALOG")]
        if not rest:
            return " ".join(shown)
        name = rest[0]
        for dot, part in zip(rest[1::2], rest[2::2], strict=False):
            if dot != ".":
                break
            name += f".{part}"
        return " ".join((*shown, name))


def split_statements(text: str) -> list[Statement]:
    """Return the statements of ``text``.

    Raises :class:`ValueError` for a quote or a comment without an end. Its arguments are a message and a line from 1.

    >>> [s.title for s in split_statements("CREATE TABLE a (x INT); -- one\\nCREATE VIEW b AS SELECT ';' FROM a")]
    ['CREATE TABLE a', 'CREATE VIEW b']
    """
    found = []
    start: int | None = None
    for token in _tokens(text):
        kind = token.lastgroup
        if kind == "broken":
            raise ValueError(f"{token[0]} is never closed", _line(text, token.start()))
        if kind == "end":
            if start is not None:
                found.append(Statement(text[start : token.start()].rstrip(), _line(text, start)))
            start = None
        elif start is None and kind != "comment" and not token[0].isspace():
            start = token.start()
    if start is not None:
        found.append(Statement(text[start:].rstrip(), _line(text, start)))
    return found


def creating(statements: Iterable[Statement], table: str) -> Statement | None:
    """Return the last statement that creates a table of that name, in any catalog and database."""
    wanted = _last_name(table)
    found = [statement for statement in statements if "TABLE" in statement.title.upper().split()[:-1]]
    return next((each for each in reversed(found) if _last_name(each.title) == wanted), None)


def tables_in(statements: Sequence[Statement], text: str) -> set[str]:
    """Return the tables that a query, or the table or view of a name, reads. Views are replaced by their tables.

    >>> tables_in(split_statements("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT x FROM a"), "SELECT * FROM b")
    {'a'}
    """
    created = {_last_name(of.title): of for of in statements if {"TABLE", "VIEW"} & {*of.title.upper().split()[:-1]}}
    found: set[str] = set()
    todo = [text]
    while todo:
        for token in _tokens(todo.pop()):
            name = _last_name(token[0]) if token.lastgroup in ("word", "name") else ""
            if name in created and name not in found:
                found.add(name)
                if "VIEW" in created[name].title.upper().split()[:-1]:
                    todo.append(created[name].text)
    return {name for name in found if "VIEW" not in created[name].title.upper().split()[:-1]}


def _last_name(text: str) -> str:
    """Return the last part of the name at the end of ``text``, without backticks."""
    found = re.search(r"`((?:[^`]|``)*)`$|([^\s.`]*)$", text)
    return (found[1] or found[2] or "").replace("``", "`") if found is not None else text


def refusal(statement: Statement) -> str | None:
    """Return why a job cannot have a statement. Return None if it can."""
    words = [(m[0].upper(), m) for m in _tokens(statement.text) if m.lastgroup == "word"]
    first = words[0][0] if words else ""
    if first == "USE":
        return None
    if first != "CREATE":
        near = near_misses(first, ("CREATE", "USE"))
        fix = _FIXES.get(first) or (f"did you mean {near[0]}?" if near else "")
        shown = first or statement.text.split(maxsplit=1)[0][:40]
        return f"a job has CREATE statements and USE, not {shown}" + (f": {fix}" if fix else "")
    kind = next((word for word, _ in words[1:] if word not in _BEFORE), "")
    if kind not in _CREATED:
        near = near_misses(kind, _CREATED)
        hint = f": did you mean CREATE {near[0]}?" if near else ""
        return f"a job can CREATE {', '.join(_CREATED[:-1])} or {_CREATED[-1]}, not {kind or 'nothing'}{hint}"
    if kind == "TABLE" and _selects(statement.text):
        return "CREATE TABLE … AS would run a separate job: create a VIEW, and name it under 'input'"
    return None


def in_literals(text: str, replace: Callable[[str, int], str], outside: Callable[[str, int], None]) -> str:
    """``text`` with ``replace`` over the content of each '…' literal, given and taken without doubled quotes.

    Both functions get a line as well, from 1; ``outside`` gets every line without its literals and comments.
    """
    parts = []
    for token in _tokens(text):
        if token.lastgroup == "literal":
            content = replace(token[0][1:-1].replace("''", "'"), _line(text, token.start()))
            parts.append("'" + content.replace("'", "''") + "'")
            continue
        parts.append(token[0])
    bare = _TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m.lastgroup in ("literal", "comment") else m[0], text)
    for number, line in enumerate(bare.split("\n"), 1):
        outside(line, number)
    return "".join(parts)


def _tokens(text: str) -> Iterator[re.Match[str]]:
    return _TOKEN.finditer(text)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _selects(text: str) -> bool:
    """Return True if a CREATE TABLE has an AS SELECT: an AS outside of all parentheses."""
    depth = 0
    for token in _tokens(text):
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if depth == 0 and token.lastgroup == "word" and token[0].upper() == "AS":
            return True
    return False
