"""Sandbox of a job for one command or one tool, in a temporary workspace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from flink_skills.cli.shared_options import LIMITS, cap_notes, parse_limits, skill_sources
from flink_skills.cli.signal_guard import SignalGuard
from flink_skills.cli.terminal_output import diagnostic_line, print_note
from flink_skills.errors import ConfigError, SkillsError, UnknownNameError
from flink_skills.execution import IsolationLevel, IsolationReport, Workspace, WorkspaceManager
from flink_skills.execution.backend_registry import limits_from
from flink_skills.execution.workspace.job_workspaces import check_commands, scratch_workspaces
from flink_skills.manager import AgentSkillManager
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import ShellRunner
from flink_skills.tools.arguments import ArgumentError

_MAX_LISTED = 20_000
_LISTED_DIRECTORIES = (b"out", b"work")
# Each level of the recursion keeps a descriptor open.
_MAX_DEPTH = 64
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class ExecRequest:
    """Arguments of ``flink-skills exec`` for the sandbox.

    Attributes:
        config: Options of the job. Limits of the request are set in it.
        skill: Name of the skill. None selects the only skill of ``sources``.
        sources: Sources of the skill. Without sources, no skill is opened.
        limits: Values of ``--limit NAME=VALUE``.
        timeout: Value of ``--timeout``.
        inputs: Paths of ``--input``.
    """

    config: SkillConfig
    skill: str | None = None
    sources: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    timeout: str | None = None
    inputs: tuple[str, ...] = ()


@dataclass
class Outcome:
    """Outcome of a command or a tool.

    Attributes:
        result: Result. None if there is no result.
        error: Reason why the command did not run or did not finish.
        files: Files in ``work`` and ``out`` that were added or changed.
    """

    result: Any = None
    error: str | None = None
    report: IsolationReport | None = None
    files: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fail(self, error: SkillsError | ArgumentError | str) -> None:
        """Record an error as ``error``, or as a note if there is a result already."""
        report = getattr(error, "report", None)
        if isinstance(report, IsolationReport):
            self.report = report
        if self.result is None:
            self.error = str(error)
        else:
            self.notes.append(str(error))

    def to_json(self) -> dict[str, Any]:
        """Return the error, the isolation, the files and the notes as JSON data."""
        return {
            "error": self.error,
            "level": self.report.level.name if self.report else IsolationLevel.NONE.name,
            "backend": (self.report.backend or None) if self.report else None,
            "files": self.files,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class Sandbox:
    """Shell, workspace and skill of one command. ``skill`` is None if the request names none."""

    config: SkillConfig
    shell: ShellRunner
    workspace: Workspace
    skill: AgentSkill | None


def run_in_sandbox(request: ExecRequest, outcome: Outcome, work: Callable[[Sandbox], Awaitable[None]]) -> int:
    """Run ``work`` in the sandbox of a job, and store isolation, files and errors in ``outcome``.

    Returns:
        The exit code that shells report for a signal that interrupted ``work``, or 0.

    Raises:
        SkillsError: An argument is invalid.
    """
    config = request.config
    check_commands(config)
    limits = parse_limits(request.limits, request.timeout)
    job = limits_from(config)
    outcome.notes += cap_notes(limits, job)
    for name, value in asdict(replace(job, **limits).capped_by(job)).items():  # type: ignore[arg-type]
        if name in limits:
            config.set(LIMITS[name].option, value)
    inputs = _parse_inputs(request.inputs)
    with _open_skill(request) as skill:

        async def run(workspaces: WorkspaceManager) -> None:
            shell = await ShellRunner.start(config, workspaces)
            outcome.report = shell.report
            outcome.notes += shell.remarks()
            try:
                workspace = workspaces.for_key("flink-skills exec")
                # Blocking calls are safe: no other task runs in this loop.
                workspace.ensure()
                _copy_inputs(inputs, workspace)
                before = _FileListing.of(workspace.root)
                await work(Sandbox(config, shell, workspace, skill))
                _list_changes(before, _FileListing.of(workspace.root), outcome, shell)
            finally:
                await shell.close()

        return run_in_scratch(config, run, outcome.fail)


def run_in_scratch(
    config: SkillConfig,
    work: Callable[[WorkspaceManager], Awaitable[None]],
    fail: Callable[[SkillsError | str], None],
) -> int:
    """Run ``work`` with workspaces in a temporary directory, which is removed afterwards.

    Args:
        config: Options of the job.
        work: Coroutine function that uses the workspaces. A signal such as Ctrl-C cancels it.
        fail: Receives the error of ``work``, or a message about the signal.

    Returns:
        The exit code that shells report for the signal, or 0 without a signal.

    Raises:
        ConfigError: The options are invalid for a job.
        UnknownNameError: An argument names something that does not exist.
    """
    with SignalGuard() as guard:
        try:
            # Remove the directory after the loop is closed, because its threads can write while it is open.
            with scratch_workspaces(config) as workspaces:
                asyncio.run(guard.run_cancellable(work(workspaces)))
        except asyncio.CancelledError:
            if not guard.number:
                raise
            fail(f"the command was terminated because {guard.name} arrived before it finished")
        except (ConfigError, UnknownNameError):
            raise
        except SkillsError as error:
            fail(error)
    return guard.exit_code if guard.number else 0


def _list_changes(before: _FileListing, after: _FileListing, outcome: Outcome, shell: ShellRunner) -> None:
    """Store the files that were added or modified, sorted by path, in ``outcome``."""
    files = after.changes_since(before)
    # A command can use a secret value as a file name.
    redact = shell.hidden.in_text
    outcome.files = [
        {name: redact(value) if isinstance(value, str) else value for name, value in file.items()}
        for file in files[:_MAX_LISTED]
    ]
    outcome.notes += map(redact, after.problems)
    if len(files) > _MAX_LISTED:
        outcome.notes.append(f"{len(files) - _MAX_LISTED:,} more files are not listed")


@contextlib.contextmanager
def _open_skill(request: ExecRequest) -> Iterator[AgentSkill | None]:
    """Open the skill of the request as a job loads it. Yield None if the request has no sources.

    Errors of skipped skills are printed on stderr if the skill is missing.

    Raises:
        SkillsError: A source cannot be read, or no source contains the skill.
        ConfigError: The request names no skill and there are several, or the job does not support the skill.
    """
    if not request.sources:
        yield None
        return
    paths, urls = skill_sources(request.sources)
    with AgentSkillManager(paths, urls=urls, config=request.config) as manager:
        manager.check_sources()
        name = _select(request.skill, [skill.name for skill in manager.get_skills()], request.sources, manager)
        if name in manager.hidden:
            raise ConfigError(f"{manager.hidden[name]}")
        manager.inspect([name])  # Records the digest. Files that change later are rejected.
        skill = manager.view([name]).get(name)
        if skill is None:
            raise UnknownNameError("skill", name, manager.view().names)
        yield skill


def _select(name: str | None, names: list[str], sources: Sequence[str], manager: AgentSkillManager) -> str:
    """Return ``name`` if it exists, or the only skill if ``name`` is None."""
    if name is None and len(names) > 1:
        raise ConfigError(f"{sources[0]} contains {len(names)} skills. Select one, for example --skill {names[0]}")
    selected = name if name is not None else next(iter(names), "")
    if selected in names:
        return selected
    for diagnostic in manager.diagnostics:
        if diagnostic.severity == "error":
            print_note(*diagnostic_line(diagnostic))
    if name is None:
        raise ConfigError(f"{sources[0]} contains no skill. A skill is a folder with a SKILL.md.")
    raise UnknownNameError("skill", name, names)


def _parse_inputs(paths: Sequence[str]) -> dict[str, str]:
    """Return the paths of ``--input`` by their name in ``work/inputs``, which is the last component.

    Raises:
        ConfigError: A path is not a readable file, or two paths have the same name.
    """
    inputs: dict[str, str] = {}
    for path in paths:
        name = os.path.basename(path)
        with _open_regular_file("--input", path):
            pass  # Check that the file can be read.
        if name in inputs:
            raise ConfigError(
                f"--input {path}: {inputs[name]} has the same name, and both are copied to one directory. Rename one."
            )
        inputs[name] = path
    return inputs


def _copy_inputs(inputs: Mapping[str, str], workspace: Workspace) -> None:
    """Copy files to ``work/inputs`` of a workspace and make the user of the commands their owner.

    No command may have run in the workspace before.

    Raises:
        ConfigError: A file cannot be copied.
    """
    for name, path in inputs.items():
        with _open_regular_file("--input", path) as source:
            try:
                with (workspace.inputs_dir / name).open("xb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                    os.fchmod(copy.fileno(), 0o700 if os.fstat(source.fileno()).st_mode & 0o111 else 0o600)
                    if workspace.user is not None:
                        os.fchown(copy.fileno(), workspace.user.uid, workspace.user.gid)
            except FileExistsError:
                raise ConfigError(
                    f"--input {path}: skills.workspace.inputs also contains a file of this name. Rename one."
                ) from None
            except OSError as error:
                raise ConfigError(f"--input {path}: the file cannot be copied: {error.strerror or error}") from error


def read_stdin(path: str | None) -> bytes:
    """Return the content that ``--stdin`` names: a file, or ``-`` for the stdin of this process.

    Raises:
        ConfigError: The file cannot be read.
    """
    if path is None:
        return b""
    if path == "-":
        return sys.stdin.buffer.read()
    with _open_regular_file("--stdin", path) as file:
        return file.read()


@contextlib.contextmanager
def _open_regular_file(option: str, path: str) -> Iterator[BinaryIO]:
    try:
        # Do not block on a FIFO that has no writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{option} {path}: the file cannot be read: {reason}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{option} {path}: the path is a directory. Name each file.")
        raise ConfigError(f"{option} {path}: the path is not a regular file. Save the content to a file.")
    with os.fdopen(descriptor, "rb") as file:
        yield file


@dataclass
class _FileListing:
    """Files in ``work`` and ``out`` of a workspace, and the problems of the listing.

    Links are not followed, and files are not opened. An entry has ``path``, ``bytes`` and ``kind``: ``file``, ``link``
    (with its ``target``, which is not resolved) or ``other`` (a FIFO, a socket, a device). Paths are relative to the
    workspace. Bytes of a name that are not valid UTF-8 are written as ``\\\\xNN``.
    """

    problems: list[str] = field(default_factory=list)
    # The values that change when a file is modified, and the entry of the file.
    _entries: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> _FileListing:
        """Return the listing of the workspace at ``root``."""
        listing = cls()
        for name in _LISTED_DIRECTORIES:
            listing._add_directory(os.path.join(os.fsencode(root), name), None, name, 1)
        return listing

    def changes_since(self, before: _FileListing) -> list[dict[str, Any]]:
        """Return the files that were added or modified since ``before``, sorted by path."""
        return [
            entry
            for path, (stamp, entry) in sorted(self._entries.items())
            if path not in before._entries or before._entries[path][0] != stamp
        ]

    def _add_directory(self, name: bytes, parent: int | None, shown: bytes, depth: int) -> None:
        try:
            descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
        except OSError as error:
            self.problems.append(f"{_to_str(shown)} cannot be listed: {error.strerror}")
            return
        try:
            for each in sorted(map(os.fsencode, os.listdir(descriptor))):
                self._add(each, descriptor, os.path.join(shown, each), depth)
        except OSError as error:
            self.problems.append(f"{_to_str(shown)} cannot be listed: {error.strerror}")
        finally:
            os.close(descriptor)

    def _add(self, name: bytes, parent: int, path: bytes, depth: int) -> None:
        shown = _to_str(path)
        try:
            status = os.lstat(name, dir_fd=parent)
            target = os.readlink(name, dir_fd=parent) if stat.S_ISLNK(status.st_mode) else None
        except OSError as error:
            self.problems.append(f"{shown} cannot be listed: {error.strerror}")
            return
        if stat.S_ISDIR(status.st_mode):
            if depth < _MAX_DEPTH:
                self._add_directory(name, parent, path, depth + 1)
            else:
                self.problems.append(f"{shown} is nested too deeply to be listed")
            return
        kind = "file" if stat.S_ISREG(status.st_mode) else "other" if target is None else "link"
        entry: dict[str, Any] = {"path": shown, "bytes": status.st_size, "kind": kind}
        if target is not None:
            entry["target"] = _to_str(target)
        self._entries[shown] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns), entry


def _to_str(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
