"""Scripts that cannot run: with a syntax error, or run directly by the instructions and not executable.

No script is executed. Python is parsed by this interpreter, and shells read a script with the option ``-n``, without
running its commands.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from flink_skills.errors import ResourceError
from flink_skills.skill.agent_skill import AgentSkill
from flink_skills.skill.diagnostic import Diagnostic, Report
from flink_skills.skill.skill_body import code_texts, read_body
from flink_skills.skill.skill_limits import Limits
from flink_skills.skill.text import is_utf16

_FOLDERS = ("scripts/", "bin/")
_MAX_BYTES = 1 << 20
_TIMEOUT = 10.0
# Before Python 3.12, the parser searches an f-string from its start for each of its expressions. This product of the
# size and the number of braces takes 2 s.
_MAX_SEARCH = 4_000_000_000
# As much of a first line as Linux reads. The expression takes cubic time.
_FIRST_LINE = 256
_SHEBANG = re.compile(rb"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-S[ \t]+)?(?:\S+=\S+[ \t]+)*)?(?:\S*/)?([A-Za-z]+)([0-9.]*)")
_TEXT_SUFFIXES = frozenset({".md", ".txt", ".py", ".sh", ".json", ".yaml", ".yml", ".toml", ".csv", ".xml", ".html"})
_LANGUAGES = {".py": "python", ".sh": "sh", ".bash": "bash"}
_SHELL_ERROR = re.compile(r"line ([0-9]+): *(.*)|: ([0-9]+): *(.*)")
_SEPARATOR = re.compile(r"\|\||&&|[;|&(]")
# Prefix of a command: a prompt, variables, words that run the next word.
_BEFORE = re.compile(r"(?:\$[ \t]+|[A-Za-z_][A-Za-z0-9_]*=\S*[ \t]+|(?:sudo|exec|time|nohup|then|do|else)[ \t]+)*")
_FROM_HERE = re.compile(r"\./|\.\./|~?/|\$|__BASE_DIR__/")


class _Problem(NamedTuple):
    message: str
    line: int


def check_scripts(skill: AgentSkill, limits: Limits, *, strict: bool = False) -> list[Diagnostic]:
    """Return a diagnostic for each script of ``skill`` that cannot run. Nothing of the skill is executed.

    >>> skill = AgentSkill("a", "Does it.", resources={"scripts/a.py": "def f(:"})
    >>> [(found.code, found.line) for found in check_scripts(skill, Limits())]
    [('X02', 1)]
    """
    report = Report(strict=strict, skill=skill.name)
    try:
        run_directly = _run_directly(skill, limits)
        for path in skill.files.paths():
            place = f"{skill.path}/{path}" if skill.path else ""
            if path != skill.files.skill_file and is_utf16(skill.files.read(path, 0, 64).data) and _is_text(path):
                report.add("L16", f"{path!r} is in UTF-16 instead of UTF-8", path=place, severity="warning")
                continue
            is_run = path in run_directly
            if not (is_run or path.startswith(_FOLDERS)):
                continue
            data = skill.files.read(path, 0, _MAX_BYTES).data
            if is_run and data.startswith(b"#!") and not skill.is_program(path):
                message = f"{path!r} is not executable, and the instructions run it directly"
                report.add("X01", message, path=place, line=0)
            if line := _carriage_return(path, data):
                report.add("X03", f"{path!r} has line ends of Windows (CRLF)", path=place, line=line)
            if len(data) < _MAX_BYTES and (problem := _syntax_error(path, data)):
                report.add("X02", f"{path!r} has a syntax error: {problem.message}", path=place, line=problem.line)
    except (ResourceError, OSError) as error:
        report.add("D05", str(error), path=skill.path or "")
    return report.diagnostics


def _is_text(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in _TEXT_SUFFIXES or path.startswith(_FOLDERS)


def _carriage_return(path: str, data: bytes) -> int:
    """Return the first line that ends so that no interpreter starts, or a shell fails. Return 0 if there is none."""
    end = data.find(b"\r\n")
    is_first = data.startswith(b"#!") and end >= 0 and data.find(b"\n", 0, end) < 0
    if end < 0 or not (is_first or _language(path, data)[0] in ("sh", "dash", "bash")):
        return 0
    return data.count(b"\n", 0, end) + 1


def _run_directly(skill: AgentSkill, limits: Limits) -> frozenset[str]:
    """Return the files that commands in the instructions begin with."""
    paths = frozenset(path for path in skill.files.paths() if not path.endswith((".md", ".txt")))
    if not paths:
        return paths
    body = read_body(skill.files, limits.skill_file).text
    return frozenset(path for text in code_texts(body) for path in _commands(text) if path in paths)


def _commands(code: str) -> Iterator[str]:
    """Yield relative paths that run as commands in a line of code.

    A path alone names a file, for example in a listing. A command has arguments, or begins with a folder.
    """
    for part in _SEPARATOR.split(code) if "/" in code else ():
        text = part.strip()
        words = text[_BEFORE.match(text).end() :].split(None, 1)  # type: ignore[union-attr]
        if not words:
            continue
        word, more = words[0].strip("\"'"), words[1] if len(words) > 1 else ""
        is_command = _FROM_HERE.match(word) or re.match(r"--?[A-Za-z]|[\w\"'$<\[{./]", more)
        for folder in _FOLDERS if is_command else ():
            at = word.find(folder)
            if at == 0 or (at > 0 and word[at - 1] == "/"):
                yield word[at:]
                break
        else:
            if is_command and word.startswith("./"):
                yield word[2:]


def _syntax_error(path: str, data: bytes) -> _Problem | None:
    language, version = _language(path, data)
    if language == "python" and not version.startswith("2"):
        return _python_error(path, data)
    if language in ("sh", "dash", "bash"):
        return _shell_error(language, data)
    return None


def _language(path: str, data: bytes) -> tuple[str, str]:
    """Return the language by the first line, else by the suffix, and the version in the first line."""
    if match := _SHEBANG.match(data[:_FIRST_LINE]):
        return match[1].decode(), match[2].decode()
    return _LANGUAGES.get(os.path.splitext(path)[1].lower(), ""), ""


def _python_error(path: str, data: bytes) -> _Problem | None:
    if len(data) * data.count(b"{") > _MAX_SEARCH:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as escapes that a later release rejects
            ast.parse(data, filename=path)
    except SyntaxError as error:
        return _Problem(f"{error.msg} (Python {sys.version_info[0]}.{sys.version_info[1]})", error.lineno or 0)
    except ValueError as error:  # a NUL
        return _Problem(str(error), 0)
    except (RecursionError, MemoryError):
        return None  # too deep for this check, which does not make it wrong
    return None


def _shell_error(shell: str, data: bytes) -> _Problem | None:
    program = shutil.which(shell) or shutil.which("sh" if shell == "dash" else shell)
    if program is None:
        return None
    # Without -O extglob a script that sets it is rejected, because its "shopt" does not run.
    words = [program, *(["--noprofile", "--norc", "-O", "extglob"] if shell == "bash" else []), "-n"]
    try:
        # An empty environment: BASH_ENV and ENV name files that a shell runs first.
        done = subprocess.run(
            words, input=data, capture_output=True, timeout=_TIMEOUT, env={"LC_ALL": "C"}, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return None
    text = done.stderr.decode(errors="replace")
    match = _SHELL_ERROR.search(text)
    if match is None:
        return None
    return _Problem((match[2] or match[4] or "").strip()[:200], int(match[1] or match[3]))
