"""A run that is ready to start: its directories, its output files and the time span of its command."""

from __future__ import annotations

import asyncio
import codecs
import os
import posixpath
import stat
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace
from flink_skills.execution.workspace import WRITABLE, CollectedFile, WorkspacePathError
from flink_skills.execution.workspace.globs import Globs
from flink_skills.execution.workspace.safe_files import Ownership, folder_in, pinned, remove_tree, replace_file
from flink_skills.execution.workspace.workspace_paths import has_invalid_characters, split_variable
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.commands.folders import copy_of, real_path
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.commands.runner import ShellRunner
from flink_skills.tools.runs.run_arguments import RunArguments, RunOutputs


@dataclass(frozen=True)
class Places:
    """The directories of a run.

    ``home`` is the default working directory, the skill's copy. ``output_dir`` is the output directory of the run.
    ``originals`` maps the original directories of skills, which their texts name, to the copies.
    """

    workspace: Workspace
    home: Path
    run_dir: Path
    output_dir: Path
    originals: Mapping[str, Path] = field(default_factory=dict)

    def expand(self, what: str, text: str) -> str:
        """Return ``text`` with its leading variable replaced. Raises :class:`ArgumentError` for an unknown variable.

        >>> places.expand("cwd", "${WORK_DIR}/a")
        '/tmp/job/ws_1/work/a'
        """
        if has_invalid_characters(text):
            raise ArgumentError(f"{what} {text!r} holds characters that no path can have: write it without them.")
        name, rest = split_variable(text)
        if not name:
            return text
        roots = {
            "WORK_DIR": self.workspace.work_dir,
            "OUTPUT_DIR": self.output_dir,
            "SKILLS_DIR": self.workspace.skills_dir,
            "WORKSPACE_DIR": self.workspace.root,
            "RUN_DIR": self.run_dir,
        }
        if name not in roots:
            known = ", ".join(f"${root}" for root in roots)
            raise ArgumentError(f"{what} {text!r} begins with a variable that is not known here: use one of {known}.")
        return str(roots[name]) + rest

    def cwd(self, text: str | None) -> tuple[Path, str]:
        """Return the folder that ``cwd`` names, and a warning or an empty text.

        A path that leads out of the skill or the workspace stands for the skill's folder. Reads the disk. Raises
        :class:`ArgumentError` for a folder that does not exist.
        """
        asked = (text or "").strip()
        if asked in ("", "."):
            return self.home, ""
        path = self.expand("cwd", asked)
        if not path.startswith("/"):
            path = posixpath.normpath(posixpath.join(str(self.home), path))
            inside = Path(path).is_relative_to(self.home)
        else:
            path = copy_of(path, self.originals)
            inside = True
        try:
            real = real_path(path)
            # Compared on real paths: a link that leads out of the workspace is no way out of it.
            if not inside or not real.is_relative_to(os.path.realpath(self.workspace.root)):
                return self.home, f"cwd {asked!r} leads out of the skill, so the command ran in the skill's folder"
            mode = real.stat().st_mode
        except OSError as error:  # also what a command has closed, or made deeper than a path can be long
            raise ArgumentError(
                f"cwd {asked!r} cannot be entered ({error.strerror}). Leave cwd out for the skill's folder, or make "
                "the folder first."
            ) from None
        if not stat.S_ISDIR(mode):
            raise ArgumentError(f"cwd {asked!r} is not a folder. Leave cwd out for the skill's folder.")
        return real, ""

    def relative(self, what: str, text: str) -> str | None:
        """Return ``text`` as a path or pattern relative to the workspace. Return None if it is outside."""
        path = self.expand(what, text.strip().removeprefix("workspace://").replace("\\", "/"))
        root = str(self.workspace.root)
        if path.startswith("/"):
            path = copy_of(path, self.originals)
            if path != root and not path.startswith(f"{root}/"):
                return None
            path = path[len(root) :].lstrip("/")
        path = posixpath.normpath(path) if path else "."
        return None if path.split("/", 1)[0] == ".." else path


_OWN = ".flink_skills"
_TEXT, _EDITOR = "editor-text", "editor"
# The file to edit is the last argument. Programs such as "crontab -e" and "git commit" put options before it.
_SCRIPT = f"""#!/bin/sh
for target; do :; done
cat -- "${{0%/*}}/{_TEXT}" > "${{target:?no file to edit}}"
"""


def write_editor(workspace: Workspace, run: str, text: str) -> Path:
    """Create an editor program for ``run`` that writes ``text`` to the edited file. Return its path.

    Each run has a separate program, because calls of one response may run at the same time. Raises
    :class:`ExecutionError`.
    """
    ownership = Ownership(workspace.user)
    with (
        _failing(workspace, "the text for the editor"),
        pinned(workspace.root) as root,
        _opened(workspace, ("work", _OWN, run)) as folder,
    ):
        replace_file(root, folder, _TEXT, text.encode("utf-8", "replace"), ownership.handed)
        replace_file(root, folder, _EDITOR, _SCRIPT.encode(), ownership.open)
    return workspace.work_dir / _OWN / run / _EDITOR


def remove_editor(workspace: Workspace, run: str) -> None:
    """Remove the files of :func:`write_editor`. Files that a command protected stay, because only it uses them."""
    with suppress(OSError), ExitStack() as stack:
        folder = stack.enter_context(pinned(workspace.root))
        work = stack.enter_context(pinned("work", folder))
        own = stack.enter_context(pinned(_OWN, work))
        remove_tree(run, dir_fd=own)


def make_output_dir(workspace: Workspace, parts: Sequence[str]) -> Path:
    """Create the directory ``parts`` of the workspace. Raises :class:`ArgumentError` if it is not a directory."""
    path = "/".join(parts)
    for end in range(1, len(parts) + 1):
        with suppress(FileNotFoundError):
            found = workspace.root.joinpath(*parts[:end]).lstat()
            if not stat.S_ISDIR(found.st_mode):
                raise ArgumentError(f"OUTPUT_DIR {path!r}: {'/'.join(parts[:end])!r} is not a folder: name another.")
    with _failing(workspace, f"the folder {path!r}"), _opened(workspace, parts):
        return workspace.root.joinpath(*parts)


@contextmanager
def _opened(workspace: Workspace, parts: Sequence[str]) -> Iterator[int]:
    """Open a directory below the workspace. Missing directories are created, and links are replaced."""
    rights = Ownership(workspace.user).open
    with ExitStack() as stack:
        folder = stack.enter_context(pinned(workspace.root))
        for part in parts:
            folder = stack.enter_context(folder_in(folder, part, rights))
        yield folder


@contextmanager
def _failing(workspace: Workspace, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ExecutionError(f"{what} cannot be put into workspace {workspace.root}: {error}") from error


# Occurs in no text, because it is not valid UTF-8.
_CUT = b"\xff\xff\xff"
_MAX_PRIMARY = 32 << 10
_MAX_EXPORTED = 20
_MAX_PATTERNS = 64
# The directory also has files of earlier runs, and the age of a file is unknown before it is read.
_MAX_SCANNED = 200


class OutputRequest(RunOutputs):
    """Patterns relative to the workspace, the use of the matching files, and limits (counts and bytes).

    ``exported`` is the maximum number of files that are read without a request, if only the command can have written
    them.
    """

    exported: int = 0


def requests_of(
    asked: RunArguments, places: Places, config: SkillConfig
) -> tuple[tuple[OutputRequest, ...], list[str]]:
    """Return the requested output files, and warnings about patterns that cannot match.

    The job's options can add to the request. Raises :class:`~flink_skills.tools.arguments.ArgumentError`.
    """
    save: bool = config.get(SkillOptions.RUN_SAVE_ARTIFACTS)
    omit: bool = config.get(SkillOptions.RUN_OMIT_INLINE) or asked.omit_inline_content
    named = RunOutputs(
        globs=asked.output_files, inline=True, save=asked.save_as_artifacts, name_template=asked.artifact_prefix
    )
    requests: list[OutputRequest] = []
    warnings: list[str] = []
    for argument, wanted in (("output_files", named), ("outputs", asked.outputs or RunOutputs())):
        patterns = _patterns(argument, wanted.globs, places, warnings)
        if patterns:
            changes = {"globs": patterns, "inline": wanted.inline and not omit, "save": wanted.save or save}
            requests.append(OutputRequest.model_construct(**{**dict(wanted), **changes}))
    if asked.outputs is not None and asked.outputs.model_fields_set and not requests and not warnings:
        warnings.append("outputs has no globs, so no file was looked for: name some, like out/*.txt")
    return tuple(requests), warnings


def export_request(places: Places) -> OutputRequest:
    """Return the request for the files in the output directory, for a run that names none."""
    folder = places.output_dir.relative_to(places.workspace.root).as_posix()
    most = _MAX_PRIMARY + 1
    return OutputRequest.model_construct(
        globs=[f"{folder}/**"],
        max_files=_MAX_SCANNED,
        max_file_bytes=most,
        max_total_bytes=_MAX_SCANNED * most,
        exported=_MAX_EXPORTED,
    )


def unmatched(patterns: Sequence[str], files: Sequence[CollectedFile]) -> list[str]:
    """Return the patterns without a matching file."""
    globs = {pattern: Globs([pattern], WRITABLE) for pattern in patterns}
    return [pattern for pattern in patterns if not any(_matches(globs[pattern], file.name) for file in files)]


def _matches(globs: Globs, name: str) -> bool:
    *folders, base = name.split("/")
    position = globs.start
    for folder in folders:
        position = globs.enter(folder, position)
    return globs.is_match(base, position)


def _patterns(argument: str, globs: Iterable[str], places: Places, warnings: list[str]) -> list[str]:
    found: list[str] = []
    for text in filter(str.strip, globs):
        path = places.relative(argument, text)
        # A directory means the files in it.
        pattern = f"{path}/**" if path in WRITABLE or text.rstrip().endswith("/") else path
        try:
            if pattern is None:
                raise WorkspacePathError(f"{text!r} leads out of it", "invalid")
            Globs([pattern], WRITABLE)
        except WorkspacePathError as error:
            warnings.append(f"{argument} are workspace-relative, like out/*.txt or $OUTPUT_DIR/*.txt: {error}")
        else:
            found.append(pattern)
    if len(found) > _MAX_PATTERNS:
        raise ArgumentError(f"{argument}: {len(found)} patterns are too many: give at most {_MAX_PATTERNS}.")
    return list(dict.fromkeys(found))


def text_of(data: bytes, truncated: bool, hidden: HiddenValues) -> str | None:
    """Return ``data`` as text without hidden values and without an incomplete last character. None for binary data.

    >>> text_of("grün".encode()[:3], True, HiddenValues()), text_of(bytes(4), False, HiddenValues())
    ('gr', None)
    """
    if b"\0" in data:
        return None
    if truncated:
        # A value that the limit truncated is hidden as well.
        data = hidden.in_bytes(data + _CUT, _CUT).partition(_CUT)[0]
    try:
        return hidden.in_text(codecs.getincrementaldecoder("utf-8")().decode(data, not truncated))
    except UnicodeDecodeError:
        return None


def entry_of(file: CollectedFile, content: str | None) -> dict[str, Any]:
    """Return the description of a file in the result, without ``content`` if it is empty."""
    entry: dict[str, Any] = {"name": file.name, "ref": f"workspace://{file.name}"}
    if content:
        entry["content"] = content
    entry["mime_type"] = file.mime_type
    entry["size_bytes"] = file.size
    if file.truncated:
        entry["truncated"] = True
    return entry


def primary_of(files: Sequence[CollectedFile], omit: bool, hidden: HiddenValues) -> dict[str, Any] | None:
    """Return the first small text file by name. Return None if there are only other files."""
    for file in sorted(files, key=lambda file: file.name):
        if 0 < file.size <= _MAX_PRIMARY and not file.truncated:
            content = text_of(file.data, False, hidden)
            if content:
                return entry_of(file, None if omit else content)
    return None


NO_ARTIFACTS = f"this job saves no artifacts: {SkillOptions.ARTIFACTS_DIR.key} is not set"


_known: weakref.WeakSet[RunSpan] = weakref.WeakSet()
_lock = threading.Lock()
_numbers = count(1)


class RunSpan:
    """The time of one command in the workspace ``root``: from its preparation to :meth:`end`.

    A command that is prepared and refused does not count for others, because it never starts.

    >>> one, other, refused = RunSpan(root), RunSpan(root), RunSpan(root)
    >>> one.start()
    >>> other.start()
    >>> one.end()
    >>> one.alone, refused.alone, other.covers(one.until - 1), RunSpan(Path("/elsewhere")).alone
    (False, False, True, True)
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = next(_numbers)
        self._started = False
        #: Nanoseconds since 1970. ``since`` is a time of the workspace's file system.
        self.since = 0
        self.until = 0
        with _lock:
            self._met = {span._number for span in _known if span._root == root and span._started}
            _known.add(self)

    @property
    def alone(self) -> bool:
        """Return whether no other command ran in the workspace between the preparation of this one and its end."""
        return not self._met

    def covers(self, moment: int) -> bool:
        """Return True if the command ran at ``moment``, in nanoseconds since 1970."""
        return self.since <= moment and (not self.until or moment <= self.until)

    def start(self) -> None:
        """Record that the command starts. From here on it can write files."""
        with _lock:
            self._started = True
            for span in _known:
                if span is not self and span._root == self._root:
                    span._met.add(self._number)

    def end(self) -> None:
        """Record that the command has ended, or that it was not started. Calling it again does nothing."""
        with _lock:
            if self in _known:
                _known.discard(self)
                self.until = time.time_ns()


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start: its ``command`` in ``cwd`` with the variables ``env`` and ``stdin``.

    ``span`` is its duration: the caller starts and ends it with the command. ``timeout`` is in seconds, at most the
    job's limit. ``requests`` are the output files to return, ``staged_inputs`` records of the inputs, ``effects`` those
    of the preparation. Call :meth:`close` in a ``finally``.
    """

    shell: ShellRunner
    asked: RunArguments
    command: str
    places: Places
    span: RunSpan
    skill_name: str
    cwd: Path
    env: Mapping[str, str]
    stdin: bytes
    timeout: float
    requests: tuple[OutputRequest, ...] = ()
    staged_inputs: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    effects: tuple[Mapping[str, Any], ...] = ()

    @property
    def workspace(self) -> Workspace:
        """The workspace of the run."""
        return self.places.workspace

    @property
    def run_dir(self) -> Path:
        """The directory of this run."""
        return self.places.run_dir

    async def close(self) -> None:
        """Remove the files of this run. A second call does nothing."""
        self.span.end()
        await asyncio.to_thread(remove_run, self.workspace, self.run_dir)


def remove_run(workspace: Workspace, run_dir: Path) -> None:
    """Remove the directory of a run and its editor."""
    remove_editor(workspace, run_dir.name)
    workspace.end_run(run_dir)
