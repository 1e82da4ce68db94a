"""Finding the first command and the first paragraph in a skill's instructions."""

from __future__ import annotations

import re

__all__ = ["first_command", "first_paragraph"]

_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<label>[^\s`{]*)[^\n`]*\n"
    r"(?P<body>.*?)"
    r"^[ \t]*(?P=fence)[`~]*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_SHELLS = frozenset({"bash", "sh", "shell", "zsh", "console", "shell-session", "shellsession", "terminal"})
_SESSIONS = frozenset({"console", "shell-session", "shellsession", "terminal"})
_COMMAND_WORDS = """
awk bash bzip2 cat curl cut date df diff docker du echo env export find flink git go grep gunzip
gzip head java jq kubectl ls make node npm npx perl pip pip3 printf python python3 ruby sed sh sort
tail tar tee test tr uniq unzip uv uvx wc wget xargs zcat zip
"""
_COMMANDS = frozenset(_COMMAND_WORDS.split())
_PROMPT = re.compile(r"^\s*[$%]\s+")
_ASSIGNMENTS = re.compile(r"^(?:[A-Za-z_][A-Za-z0-9_]*=\S*\s+)+")
_SCRIPT = re.compile(r"^(?:\.{0,2}/|[\w.-]+/|\$\{?[A-Z_]+\}?/)[\w./-]*(?:\s|$)")
_NOT_PROSE = re.compile(r"^\s*(?:#|<|```|~~~|---|\|)")


def first_command(text: str) -> str | None:
    """The first fenced block of ``text`` that holds a command: one labelled as a shell, or without a label
    when its first line looks like a command. None without one.

    >>> first_command("Run this:\\n```bash\\npython3 scripts/x.py\\n```\\n")
    'python3 scripts/x.py'
    """
    for block in _FENCE.finditer(text.replace("\r\n", "\n")):
        label = block["label"].lower().strip("{}.")
        body = _dedent(block["body"], block["indent"])
        if label in _SHELLS or (not label and looks_like_command(body)):
            command = _without_prompts(body, label in _SESSIONS).strip()
            if command:
                return command
    return None


def looks_like_command(block: str) -> bool:
    """Whether the first line that is neither empty nor a comment starts as a command does."""
    for line in block.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if _PROMPT.match(stripped):
            return True
        stripped = _ASSIGNMENTS.sub("", stripped)
        word = stripped.split(maxsplit=1)[0] if stripped else ""
        return word in _COMMANDS or bool(_SCRIPT.match(stripped))
    return False


def first_paragraph(text: str) -> str:
    """The first paragraph of prose: no headings, tags, tables or code."""
    prose = _FENCE.sub("\n", text)
    for paragraph in re.split(r"\n\s*\n", prose):
        lines = [line.strip() for line in paragraph.splitlines() if not _NOT_PROSE.match(line)]
        joined = " ".join(line for line in lines if line)
        if joined:
            return joined
    return text.strip()


def _dedent(body: str, indent: str) -> str:
    if not indent:
        return body
    return "\n".join(line.removeprefix(indent) for line in body.split("\n"))


def _without_prompts(body: str, session: bool) -> str:
    """Commands of a terminal transcript: lines with a prompt, without it. Other lines are output."""
    lines = body.splitlines()
    prompted = [line for line in lines if _PROMPT.match(line)]
    if not prompted:
        return body
    if session:
        return "\n".join(_PROMPT.sub("", line) for line in prompted)
    return "\n".join(_PROMPT.sub("", line) for line in lines)
