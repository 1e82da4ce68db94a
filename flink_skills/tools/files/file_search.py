"""Tools ``Glob`` and ``Grep``: files by a pattern of their paths, and lines that match a regular expression.

RE2 matches expressions in time that grows with the text. Python's ``re`` takes exponential time for some short ones,
and meanwhile no thread can run. RE2 has no look-around and no back-references, as ``rg`` has none by default.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Annotated, Any, TypeVar

from pydantic import Field

from flink_skills.errors import ConfigError
from flink_skills.execution.workspace.globs import MAX_DEPTH, MAX_ENTRIES, Globs, Position, Walk
from flink_skills.execution.workspace.workspace_paths import WorkspacePathError, is_sealed
from flink_skills.tools.argument_model import Also, ArgumentModel
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.file_tool import MAX_SEARCHES, ROOTS, Area, Parts, StoredTool, Target
from flink_skills.tools.files.text_files import MAX_BYTES, is_binary, load

P = TypeVar("P")

_SECONDS = 20.0
_MAX_PATTERN = 1000
_MAX_PATHS = 10_000
_MAX_MATCHES = 1000
_MAX_LINE_CHARS = 500
# The steps of RE2 grow with the size of the program times the text. This bounds one search to about a second.
_MAX_PROGRAM = 2000
#: Maximum number of bytes that are searched in a line, and the size that lines have together in a block.
LINE_BYTES = 32 << 10
# Anchors for a whole text, which is one line here, and a flag that disables anchors for lines.
_OF_TEXT = re.compile(rb"\\[Az]|\(\?[A-Za-z]*-[A-Za-z]*m")
# In addition to all whose names begin with a dot.
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "dist", "build", "target"})
_LIMITS = {
    "max_entries": f"there are more than {MAX_ENTRIES} files and folders",
    "max_depth": f"folders are nested deeper than {MAX_DEPTH} levels",
}


class _SearchWalk(Walk[P]):
    """Walk over the files that a model can search. It ends after a time, at a limit, and when ``stop`` is set."""

    def __init__(self, area: Area, stop: threading.Event) -> None:
        super().__init__(area.reach)
        self._area = area
        self._deadline = time.monotonic() + _SECONDS
        self._stop = stop
        self._is_late = False

    @property
    def unfinished(self) -> str:
        """The reason why the search is incomplete, or an empty string."""
        return "the search took too long" if self._is_late else next(map(_LIMITS.__getitem__, self.limits), "")

    def continues(self) -> bool:
        self._is_late |= self._stop.is_set() or time.monotonic() > self._deadline
        return not self._is_late and not self.limits

    def accepts(self, entry: os.DirEntry[str], parts: Parts, position: P) -> bool:
        if not parts and entry.name not in ROOTS:
            return False
        if parts == ("skills",) and entry.name not in self._area.skills:
            return False
        return entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)


class _PathWalk(_SearchWalk[Position]):
    def __init__(self, area: Area, globs: Globs, stop: threading.Event) -> None:
        super().__init__(area, stop)
        self._globs = globs

    def enter(self, name: str, position: Position) -> Position | None:
        return self._globs.enter(name, position) or None


class _TextWalk(_SearchWalk[bool]):
    def enter(self, name: str, position: bool) -> bool | None:
        return None if name.startswith(".") or name in _SKIPPED else position


class _GlobArguments(ArgumentModel):
    pattern: Annotated[str, Also("glob")]
    include_dirs: Annotated[bool, Also("include_folders", "dirs")] = False
    max_results: Annotated[int, Field(ge=1, le=_MAX_PATHS), Also("limit")] = 1000


class Glob(StoredTool[_GlobArguments]):
    """Lists files whose path matches a pattern, sorted. Links are not followed and not listed.

    ``{success, matches, count, truncated, pattern}``. ``*`` and ``?`` stay within a name, ``**`` is any number of
    folders, ``[a-z]`` one character and ``{a,b}`` either. One pattern stands for at most 256.
    """

    tool_name = "Glob"
    description = "List files by a pattern, such as '**/*.py' or 'src/*.{js,ts}'. Relative to the working folder."
    model = _GlobArguments
    max_threads = MAX_SEARCHES

    def _work(
        self, request: _GlobArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        if len(request.pattern) > _MAX_PATTERN:
            raise ArgumentError(f"The pattern has more than {_MAX_PATTERN} characters: split it.")
        try:
            globs = Globs([area.pattern(request.pattern)], ROOTS)
        except WorkspacePathError as error:
            raise ArgumentError(f"pattern: {error}") from None
        walk = _PathWalk(area, globs, stop)
        found: list[str] = []
        truncated = False
        with area.folder(root, area.locate(root, "$WORKSPACE_DIR")) as folder:
            for entry in walk.below(folder, (), globs.start):
                if entry.is_folder and not request.include_dirs:
                    continue
                if not globs.is_match(entry.parts[-1], entry.position):
                    continue
                if len(found) >= request.max_results:
                    truncated = True
                    break
                found.append(area.shown(entry.parts) + ("/" if entry.is_folder else ""))
        value: dict[str, Any] = {
            "success": True,
            "matches": found,
            "count": len(found),
            "truncated": truncated or bool(walk.unfinished),
            "pattern": request.pattern,
        }
        if walk.unfinished:
            value["note"] = f"the list is incomplete: {walk.unfinished}. Name a folder in the pattern."
        elif truncated:
            value["note"] = f"there are more than {request.max_results}: narrow the pattern, or raise max_results"
        return value


class _GrepArguments(ArgumentModel):
    pattern: Annotated[str, Field(min_length=1, description="A regular expression, without look-around.")]
    path: Annotated[str, Also("file_path", "folder", "dir"), Field(description="A file or folder.")] = "."
    case_sensitive: bool = True
    max_results: Annotated[int, Field(ge=1, le=_MAX_MATCHES), Also("limit")] = 50


class Grep(StoredTool[_GrepArguments]):
    """Finds lines that match a regular expression, in a file or in all text files below a folder.

    ``{success, matches, total_matches}``, each match a ``{file, line, content}``. Hidden files and folders, folders of
    packages and of builds, binary files, files above 10 MB and links are skipped, except a file that is named itself.
    The expression is one of RE2: no look-around, no back-references. Of a line the first 32 KiB are searched and 500
    characters are returned. A search takes at most 20 s; ``note`` states what was left out for that.

    Raises :class:`~flink_skills.errors.ConfigError` if google-re2 is not installed.
    """

    tool_name = "Grep"
    description = (
        "Search files for a regular expression, line by line; hidden files and node_modules and the like are skipped. "
        "Gives file, line number and text of each match, and how many there are."
    )
    model = _GrepArguments
    max_threads = MAX_SEARCHES

    def __init__(self, cwd: str | None = None) -> None:
        super().__init__(cwd)
        load_re2()

    def _work(
        self, request: _GrepArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        search = LineSearch(request.pattern, case_sensitive=request.case_sensitive)
        target = area.locate(root, request.path)
        kind = area.kind(root, target)
        if not kind:
            raise ArgumentError(f"{request.path!r} does not exist: list the files first, with Glob.")
        walk = _TextWalk(area, stop)
        matches: list[dict[str, Any]] = []
        total = 0
        with closing(_text(area, root, target) if kind == "file" else _texts(area, root, target, walk)) as texts:
            for parts, text in texts:
                for number, found in search.lines(text.encode("utf-8", "replace"), walk.continues):
                    total += 1
                    if len(matches) < request.max_results:
                        line = found.decode()
                        shown = line if len(line) <= _MAX_LINE_CHARS else line[:_MAX_LINE_CHARS] + "…"
                        matches.append({"file": area.shown(parts), "line": number, "content": shown})
                if not walk.continues():
                    break
        value: dict[str, Any] = {"success": True, "matches": matches, "total_matches": total}
        notes = []
        if total > len(matches):
            notes.append(
                f"these are the first {len(matches)} of {total}: narrow the pattern or the path, or raise max_results"
            )
        if walk.unfinished:
            notes.append(f"the search is incomplete: {walk.unfinished}. Name a folder or a file as the path.")
        if notes:
            value["note"] = "; ".join(notes)
        return value


def _text(area: Area, root: int, target: Target) -> Generator[tuple[Parts, str], None, None]:
    """Yield the text of a file that the call names."""
    with area.file(root, target) as descriptor:
        if os.fstat(descriptor).st_size > MAX_BYTES:
            raise ArgumentError(f"The file has more than {MAX_BYTES} bytes: search it by Bash (grep -n).")
        text, _ = load(descriptor)
    yield target.requested, text.removesuffix("\n")


def _texts(area: Area, root: int, target: Target, walk: _TextWalk) -> Generator[tuple[Parts, str], None, None]:
    """Yield the text files below a folder."""
    start = target.requested if target.granted else target.parts
    with area.folder(root, target) as folder:
        for entry in walk.below(folder, start, True):
            name = entry.parts[-1]
            if entry.is_folder or name.startswith("."):
                continue
            trusted = bool(target.granted) or is_sealed(entry.parts)
            try:
                with area.reach.file(name, entry.parent, shown=repr(name), trusted=trusted) as descriptor:
                    if os.fstat(descriptor).st_size > MAX_BYTES or is_binary(os.pread(descriptor, 1024, 0)):
                        continue
                    text, _ = load(descriptor)
            except (OSError, WorkspacePathError, ArgumentError):
                continue  # removed since it was listed, or not a text file
            yield entry.parts, text.removesuffix("\n")


def load_re2() -> Any:
    """The module ``re2``; raises :class:`ConfigError` where it is not installed."""
    try:
        import re2
    except ImportError as error:
        raise ConfigError(
            "the tool Grep needs google-re2, which is not installed: pip install 'flink-skills[files]'"
        ) from error
    return re2


class LineSearch:
    """Finds lines that match. Raises :class:`ArgumentError` for what is no expression, or too much of one.

    >>> list(LineSearch("err(or)?", case_sensitive=False).lines(b"no\\nan ERROR\\r\\n"))
    [(2, b'an ERROR')]
    """

    def __init__(self, pattern: str, *, case_sensitive: bool) -> None:
        re2 = load_re2()
        if len(pattern) > _MAX_PATTERN:
            raise ArgumentError(f"The pattern has more than {_MAX_PATTERN} characters: shorten it.")
        options = re2.Options()
        options.case_sensitive = case_sensitive
        options.log_errors = False
        options.never_capture = True
        try:
            encoded = pattern.encode()
            compiled = re2.compile(encoded, options)
        except re2.error as error:
            raise ArgumentError(_problem(error, pattern)) from None
        except UnicodeEncodeError:
            raise ArgumentError("The pattern holds half a character: write it without.") from None
        if compiled.programsize > _MAX_PROGRAM:
            raise ArgumentError("The pattern stands for too much: repeat less in it, or shorten it.")
        self._search = compiled.search
        self._search_lines = None
        if not _OF_TEXT.search(encoded):
            # In a block, anchors match at lines, and no match continues in the next line.
            options.never_nl = True
            self._search_lines = re2.compile(b"(?m)" + encoded, options).search

    def lines(self, text: bytes, continues: Callable[[], bool] = lambda: True) -> Iterator[tuple[int, bytes]]:
        """Yield number, from 1, and content for each line that matches in its first 32 KiB. ``text`` is UTF-8.

        The expression is applied to blocks: a call for each line would take Python's lock each time.
        ``continues`` is called before each block. The search ends if it returns False.
        """
        number, begin = 1, 0
        while begin <= len(text) and continues():
            end = text.find(b"\n", begin + LINE_BYTES)
            end = len(text) if end < 0 else end
            block = text[begin:end].replace(b"\r\n", b"\n").removesuffix(b"\r")
            lines = block.split(b"\n")
            if max(map(len, lines)) > LINE_BYTES:
                block = b"\n".join([line[:LINE_BYTES] for line in lines])
            for index in self._found(block, lines):
                yield number + index, lines[index]
            number += len(lines)
            begin = end + 1

    def _found(self, block: bytes, lines: list[bytes]) -> Iterator[int]:
        """Yield the positions at which ``lines`` match in ``block``."""
        if self._search_lines is None:
            yield from (index for index, line in enumerate(lines) if self._search(line[:LINE_BYTES]) is not None)
            return
        index = begin = 0
        while begin <= len(block) and (match := self._search_lines(block, begin)) is not None:
            index += block.count(b"\n", begin, match.start())
            yield index
            begin = block.find(b"\n", match.start()) + 1
            if not begin:
                return
            index += 1


def _problem(error: Exception, pattern: str) -> str:
    reason = error.args[0] if error.args else error
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    hint = "write \\ before a sign that is meant itself, such as \\( or \\["
    if "perl operator" in text or "escape sequence" in text:
        hint = "look-around and back-references are not supported; " + hint
    return f"The pattern {pattern[:80]!r} is not a supported regular expression ({text}): {hint}."
