"""``Grep``: lines of files that match a regular expression."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import closing
from typing import Annotated, Any

from pydantic import Field

from flink_skills.execution.workspace.workspace_paths import WorkspacePathError, is_sealed
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.base import ToolContext
from flink_skills.tools.files.area import Area, Target
from flink_skills.tools.files.expressions import LineSearch, load_re2
from flink_skills.tools.files.file_tool import MAX_SEARCHES, StoredTool
from flink_skills.tools.files.lines import MAX_BYTES, load
from flink_skills.tools.files.names import Parts
from flink_skills.tools.files.text import is_binary
from flink_skills.tools.files.walking import Walk
from flink_skills.tools.given import Also, Given

__all__ = ["Grep"]

_SECONDS = 20.0
_MAX_RESULTS = 1000
_SHOWN_CHARS = 500
# Beside all whose names begin with a dot.
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "dist", "build", "target"})


class _GrepArguments(Given):
    pattern: Annotated[str, Field(min_length=1, description="A regular expression, without look-around.")]
    path: Annotated[str, Also("file_path", "folder", "dir"), Field(description="A file or folder.")] = "."
    case_sensitive: bool = True
    max_results: Annotated[int, Field(ge=1, le=_MAX_RESULTS), Also("limit")] = 50


class Grep(StoredTool[_GrepArguments]):
    """Finds lines that match a regular expression, in a file or in all text files below a folder.

    ``{success, matches, total_matches}``, each match a ``{file, line, content}``. Hidden files and folders, folders of
    packages and of builds, binary files, files above 10 MB and links are left out, unless a file is named itself. The
    expression is one of RE2: no look-around, no back-references. Of a line the first 32 KiB are searched and 500
    characters are given. Looks for 20 s at the most; ``note`` says what was left out for that.

    Raises :class:`~flink_skills.errors.ConfigError` where google-re2 is not installed.
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
        self, asked: _GrepArguments, area: Area, root: int, context: ToolContext, stop: threading.Event
    ) -> dict[str, Any]:
        search = LineSearch(asked.pattern, case_sensitive=asked.case_sensitive)
        target = area.locate(root, asked.path)
        kind = area.kind(root, target)
        if not kind:
            raise ArgumentError(f"{asked.path!r} does not exist: list the files first, with Glob.")
        walk: Walk[bool] = Walk(area, _entered, seconds=_SECONDS, stop=stop)
        matches: list[dict[str, Any]] = []
        total = 0
        texts = _one(area, root, target) if kind == "file" else _below(area, root, target, walk)
        with closing(texts):
            for parts, text in texts:
                for number, found in search.lines(text.encode("utf-8", "replace"), walk.goes_on):
                    total += 1
                    if len(matches) < asked.max_results:
                        line = found.decode()
                        shown = line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "…"
                        matches.append({"file": area.names.shown(parts), "line": number, "content": shown})
                if not walk.goes_on():
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


def _entered(name: str, position: bool) -> bool | None:
    return None if name.startswith(".") or name in _SKIPPED else True


def _one(area: Area, root: int, target: Target) -> Generator[tuple[Parts, str], None, None]:
    """The file that was named itself."""
    with area.file(root, target) as descriptor:
        if os.fstat(descriptor).st_size > MAX_BYTES:
            raise ArgumentError(f"The file has more than {MAX_BYTES} bytes: search it by Bash (grep -n).")
        text, _ = load(descriptor)
    yield target.asked, text.removesuffix("\n")


def _below(area: Area, root: int, target: Target, walk: Walk[bool]) -> Generator[tuple[Parts, str], None, None]:
    """The text files below a folder."""
    start = target.asked if target.granted else target.parts
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
                continue  # gone since it was listed, or no text after all
            yield entry.parts, text.removesuffix("\n")
