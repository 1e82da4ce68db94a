"""The troubleshooting pages quote messages that users can search for: each one is in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = (ROOT / "docs/troubleshooting.md", ROOT / "docs/troubleshooting-commands.md")
HEADER = "| Message | Cause | Fix |"
#: Stands for a part of a message that differs, on the page and in the strings of the code.
GAP = "…"
_PLACEHOLDER = re.compile(r"%(?:\.\d+)?[sdrgfi]|\{\w*\}|%0?\d*x")
_JAVA_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def lines_of_pages() -> list[str]:
    return [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]


def quoted_messages() -> list[str]:
    """Return the messages in the first column of the tables of messages."""
    messages: list[str] = []
    in_table = False
    for line in lines_of_pages():
        in_table = line == HEADER or (in_table and line.startswith("|"))
        if in_table and line != HEADER and not line.startswith("|---"):
            messages += re.findall(r"`([^`]+)`", line.split(" | ")[0])
    return messages


def python_strings(source: str) -> Iterator[str]:
    """Yield the strings of a module except docstrings, with a gap for each value in them."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield _PLACEHOLDER.sub(GAP, node.value)


def java_strings(source: str) -> Iterator[str]:
    """Yield the strings of a class. Concatenated literals are one string, with a gap for each value between them."""
    joined = re.sub(r'"\s*\+\s*"', "", source)
    joined = re.sub(r'"\s*\+\s*[\w.()]+\s*\+\s*"', GAP, joined)
    for string in _JAVA_STRING.findall(joined):
        yield _PLACEHOLDER.sub(GAP, string)


@cache
def strings_of_code() -> tuple[str, ...]:
    found: list[str] = []
    for folder, pattern, strings in (
        ("flink_skills", "*.py", python_strings),
        ("java-bridge/src/main", "*.java", java_strings),
    ):
        for path in sorted(Path(ROOT, folder).rglob(pattern)):
            found += strings(path.read_text(encoding="utf-8"))
    return tuple(found)


def is_in_code(message: str) -> bool:
    """Return True if one string of the code has all parts of ``message``, in this order."""
    parts = [re.escape(part.strip()) for part in message.split(GAP) if part.strip()]
    wanted = re.compile(".*".join(parts))
    return any(wanted.search(string) for string in strings_of_code())


@pytest.mark.parametrize("message", quoted_messages())
def test_quoted_message_is_in_the_code(message: str) -> None:
    assert is_in_code(message), f"no string of the code has {message!r}: quote the message that users see"


def test_pages_have_messages() -> None:
    assert len(quoted_messages()) > 50
    assert not is_in_code("the flux capacitor of … is empty")


def test_pages_have_every_exit_code_of_a_worker() -> None:
    source = (ROOT / "flink_skills/worker/watchdog.py").read_text(encoding="utf-8")
    codes = set(re.findall(r"^[A-Z][A-Z_]* = (\d+)$", source, re.MULTILINE))
    rows = re.findall(r"^\| (\d+)\b", "\n".join(lines_of_pages()), re.MULTILINE)
    assert codes
    assert codes <= set(rows)
