"""Notes for a model on what a command could not do: closed files, the closed network, scripts of other systems.

Programs report a denied access in different words and do not mention the sandbox. The notes are derived from the end
of their output, and only if the level of isolation makes them true.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flink_skills.execution import CommandRequest, CommandResult, IsolationLevel
from flink_skills.execution.host import is_within
from flink_skills.options import SkillOptions

_STDERR_TAIL = 8_192
# Printed text is data. Only the last lines of a failed command may be about the failure.
_STDOUT_TAIL = 2_048
_STDIN_HEAD = 65_536
_MAX_PATH = 200
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_BEFORE = 12  # lines of a traceback that precede its message

_WHERE = "write results to $OUTPUT_DIR, scratch files to $WORK_DIR"
_VIEW = "which see the workspace and the system's programs only"
_INPUTS = "read inputs from $WORK_DIR/inputs"
_NO_NETWORK = (
    f"the network is closed to commands ({SkillOptions.SHELL_NETWORK.key} is deny), so no address can be reached and "
    "no name resolves: use the event and the files of the workspace"
)
_UNREACHABLE = re.compile(
    r"could(?: not|n't) (?:resolve|connect)|name or service not known|nodename nor servname|no address associated with|"
    r"temporary failure (?:in name resolution|resolving)|name resolution|unable to (?:resolve|connect)|"
    r"failed to (?:resolve|connect|establish a new connection)|could not translate host name|"
    r"can(?:'t|not) (?:resolve|connect)|getaddrinfo|gaierror|no such host\b|dns error|\bEAI_AGAIN\b|\bENOTFOUND\b|"
    r"unknownhost|unresolvedaddress|network (?:is )?unreachable|\bENETUNREACH\b|/dev/(?:tcp|udp)/",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read-only file system|\bEROFS\b", re.IGNORECASE)
_DENIED = re.compile(r"permission denied|permissionerror|access ?denied|\bEACCES\b", re.IGNORECASE)
_NOT_PERMITTED = re.compile(r"operation not permitted|\bEPERM\b", re.IGNORECASE)
_MISSING = re.compile(
    r"no such file or directory|\bENOENT\b|nosuchfileexception",  # prose: allow M01: output of programs
    re.IGNORECASE,
)
_FAILURE = re.compile("|".join(part.pattern for part in (_READ_ONLY, _DENIED, _NOT_PERMITTED, _MISSING)), re.IGNORECASE)
_SOCKET = re.compile(r"\bsockets?\b|socketexception|bindexception|connect|\bdial\b|\burlopen\b", re.IGNORECASE)
_READING = re.compile(
    r"^(?:cat|ls|find|head|tail|grep|rg|wc|less|more|du|file|stat|sort|diff): |"
    r"cannot (?:read|access|list|open directory)|failed to fopen",
    re.IGNORECASE,
)
_CHANGES_FOLDER = re.compile(r"\bcd\b|\bpushd\b|\bchdir\b|\s-C\b")
_LOGIN = re.compile(r"publickey|password|authentication", re.IGNORECASE)
_TEMPORARY = re.compile(r"/tmp|/dev/shm")  # noqa: S108 - searched for in commands
_PATH = r"/[^\s'\"\u2019`:,;()<>]*"
# "sh: line 1:", "/bin/sh: 1:", and the location of a frame are not what was denied.
_PROGRAM = re.compile(rf"^\s*(?:at |File )?\"?{_PATH}\"?(?:: (?:line )?\d+)?(?=: |, line)|\([^()\s]+:\d+(?::\d+)?\)")
_QUOTED = re.compile(r"['\"\u2018`]([^'\"\u2018\u2019`]*)['\"\u2019`]")
_ABSOLUTE = re.compile(rf"(?:^|(?<=[\s:=(]))({_PATH})")
# Below these a missing file is one that the machine does not have.
_SYSTEM = frozenset({"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/etc", "/proc", "/sys"})
_SYSTEM_OR_DEVICE = _SYSTEM | {"/dev"}


_NO_INTERPRETER = re.compile(r"bad interpreter|required file not found|\\r['\u2019]|\^M", re.IGNORECASE)
_SEPARATOR = re.compile(r"\|\||&&|[;|&(\n]")
# The word that a command runs, behind variables and words that run the next word.
_PROGRAM_WORD = re.compile(
    r"\s*(?:[A-Za-z_]\w*=\S*\s+|(?:exec|time|nohup|then|do|else)\s+)*((?:\"[^\"]*\"|'[^']*'|[^\s\"'<>])+)"
)
_FIRST_LINE = 256
_ENTERED = re.compile(r"\b(?:cd|pushd)\s+([^\s;&|]+)")
_MAX_FOLDERS = 10


Temporary = Callable[[], tuple[str, ...]]


def _nothing() -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Denials:
    """Notes on denied accesses of commands at one level.

    Attributes:
        level: The verified isolation of the commands.
        network: Whether commands can use the network.
        readable: Paths that the job grants besides the system's own.

    >>> denials = Denials(IsolationLevel.LANDLOCK)
    >>> result = CommandResult(exit_code=1, stderr=b"touch: cannot touch '/opt/x': Permission denied")
    >>> denials.notes(request, result)
    ('/opt/x is closed to commands: write results to $OUTPUT_DIR, scratch files to $WORK_DIR',)
    """

    level: IsolationLevel
    network: bool = False
    readable: tuple[str, ...] = ()

    def notes(self, request: CommandRequest, result: CommandResult, temporary: Temporary = _nothing) -> tuple[str, ...]:
        """Return the notes on a finished command.

        ``temporary`` returns the folders of the command whose files do not last. It is called only if a note may need
        them.
        """
        if result.error is not None:
            return ()
        found: dict[str, str] = {}
        for text in _outputs(result):
            lines = text.splitlines()
            for number, line in enumerate(lines):
                kind, note = self._note(line, lines[max(0, number - _BEFORE) : number], request, result, temporary)
                if kind:
                    found[kind] = note
        texts = [*request.argv, request.stdin[:_STDIN_HEAD].decode("utf-8", "replace")]
        if script := _script_note(texts, request, result):
            found["script"] = script
        if "temporary" not in found and any(map(_TEMPORARY.search, texts)):
            mentioned = _mentioned(texts, request, temporary())
            if mentioned:
                found["temporary"] = _does_not_last(mentioned)
        return tuple(found.values())

    def _note(
        self, line: str, before: list[str], request: CommandRequest, result: CommandResult, temporary: Temporary
    ) -> tuple[str, str]:
        """Return the kind of denial that ``line`` reports and the note on it, or two empty texts."""
        if self._is_network(line, before):
            return ("network", _NO_NETWORK) if not self.network else ("", "")
        if not _FAILURE.search(line) or _LOGIN.search(line):
            return "", ""
        path = _path_in(line)
        if path and is_within(path, frozenset(request.writable)):
            return "", ""
        if _READ_ONLY.search(line):
            return "files", f"{path or 'this file system'} is read-only: {_WHERE}"
        if _MISSING.search(line):
            return self._missing(path, request, temporary)
        if _NOT_PERMITTED.search(line) and not path:
            return "", ""
        return self._denied(line, path, request, result)

    def _denied(self, line: str, path: str, request: CommandRequest, result: CommandResult) -> tuple[str, str]:
        closes_files = self.level >= IsolationLevel.LANDLOCK_PARTIAL
        if result.exit_code == _NOT_EXECUTABLE or not (path or closes_files):
            return "", ""
        if not path:
            # A name without a folder is in the folder where the command started, unless it went elsewhere.
            stays = is_within(request.cwd, frozenset(request.writable))
            if _READING.search(line) or (stays and not any(map(_CHANGES_FOLDER.search, request.argv))):
                return "", ""
            return "files", f"commands can only write to folders of the workspace: {_WHERE}"
        if is_within(path, {request.root}):
            return "files", f"{path} is read-only: {_WHERE}"
        if not _READING.search(line):
            return "files", f"{path} is closed to commands: {_WHERE}"
        if not closes_files or is_within(path, _SYSTEM):
            return "", ""
        return "reading", f"{path} is closed to commands, {_VIEW}: {_INPUTS}"

    def _is_network(self, line: str, before: list[str]) -> bool:
        if _UNREACHABLE.search(line):
            return True
        if not (_DENIED.search(line) or _NOT_PERMITTED.search(line)):
            return False
        if _SOCKET.search(_ABSOLUTE.sub("", _QUOTED.sub("", line))):
            return True
        return not _path_in(line) and line.startswith("PermissionError") and any(map(_SOCKET.search, before))

    def _missing(self, path: str, request: CommandRequest, temporary: Temporary) -> tuple[str, str]:
        if not path.startswith("/") or is_within(path, {request.root}):
            return "", ""
        for folder in temporary():
            if is_within(path, {folder}):
                return "temporary", _does_not_last(folder)
        granted = {*_SYSTEM_OR_DEVICE, *request.readable, *self.readable}
        if self.level != IsolationLevel.NAMESPACE or is_within(path, granted):
            return "", ""
        return "files", (f"{path} does not exist for commands, {_VIEW}: {_INPUTS}, {_WHERE}")


def _outputs(result: CommandResult) -> Iterator[str]:
    yield result.stderr[-_STDERR_TAIL:].decode("utf-8", "replace")
    if result.exit_code != 0:
        yield result.stdout[-_STDOUT_TAIL:].decode("utf-8", "replace")


def _script_note(texts: list[str], request: CommandRequest, result: CommandResult) -> str:
    """Return how to run a script without an execute bit, or with line ends of Windows, that did not start."""
    stderr = result.stderr[-_STDERR_TAIL:].decode("utf-8", "replace")
    is_denied = result.exit_code == _NOT_EXECUTABLE or _DENIED.search(stderr) is not None
    is_missing = result.exit_code in (_NOT_EXECUTABLE, _NOT_FOUND) or _NO_INTERPRETER.search(stderr) is not None
    if not (is_denied or is_missing):
        return ""
    entered = [match[1].strip("\"'") for text in texts for match in _ENTERED.finditer(text)]
    for word in dict.fromkeys(_programs(texts)):
        file = _script(word, request, entered)
        if file is None:
            continue
        try:
            with open(file, "rb") as opened:
                status, first = os.fstat(opened.fileno()), opened.readline(_FIRST_LINE)
        except OSError:
            continue
        runner = _runner(word, first)
        if is_missing and first.startswith(b"#!") and first.endswith(b"\r\n"):
            how = f"{runner} {word}"
            if runner.endswith("sh"):  # others read such line ends
                name = f"$WORK_DIR/{os.path.basename(word)}"
                how = f"tr -d '\\r' < {word} > {name} && {runner} {name}"
            return f"{word} has line ends of Windows (CRLF), so its interpreter is not found: run it with {how}"
        if is_denied and not status.st_mode & 0o111:
            return f"{word} is not executable: run it with {runner} {word}"
    return ""


def _programs(texts: list[str]) -> Iterator[str]:
    """Yield the first word of each command in ``texts``."""
    for text in texts:
        for part in _SEPARATOR.split(text):
            if match := _PROGRAM_WORD.match(part):
                yield match[1].strip("\"'")


def _script(word: str, request: CommandRequest, entered: list[str]) -> str | None:
    """Return the file in the workspace that a command means by ``word``. Return None if there is no such file.

    ``entered`` are the folders that the command changes to.
    """
    if "/" not in word:
        return None  # found on the PATH
    root = os.path.realpath(request.root or request.cwd)
    for folder in ("", *entered[:_MAX_FOLDERS]):
        parts = (_expanded(folder, request), _expanded(word, request))
        file = os.path.realpath(os.path.join(request.cwd, *parts))
        if is_within(file, {root}) and os.path.isfile(file):
            return file
    return None


def _expanded(word: str, request: CommandRequest) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: request.env.get(match[1], ""), word).replace('"', "")


def _runner(word: str, first: bytes) -> str:
    """Return the interpreter of a script by its first line, else by its suffix."""
    named = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if named and os.path.basename(named[0]) == "env":
        named = [part for part in named[1:] if not part.startswith("-") and "=" not in part]
    if named:
        return os.path.basename(named[0])
    return {".py": "python3", ".bash": "bash", ".js": "node", ".rb": "ruby", ".pl": "perl"}.get(
        os.path.splitext(word)[1], "sh"
    )


def _path_in(line: str) -> str:
    """Return the absolute path that a line about a failure names, or an empty text."""
    text = _PROGRAM.sub("", line)
    named = [name for name in _QUOTED.findall(text) if name.startswith("/")] or _ABSOLUTE.findall(text)
    path = os.path.normpath(named[-1]) if named else ""
    return path if len(path) <= _MAX_PATH else ""


def _mentioned(texts: list[str], request: CommandRequest, folders: tuple[str, ...]) -> str:
    """Return the first of ``folders`` that the command names apart from paths that it is granted in there."""
    granted = tuple(path for path in (request.root, *request.writable, *request.readable) if path)
    for folder in folders:
        named = re.compile(rf"(?<![\w./-]){re.escape(folder)}(?![\w.-])[^\s'\"`;|&<>()]*")
        for text in texts:
            if any(not match.startswith(granted) for match in named.findall(text)):
                return folder
    return ""


def _does_not_last(folder: str) -> str:
    return (
        f"files in {folder} are removed when their command ends: keep files for later commands in $WORK_DIR or $TMPDIR"
    )
