"""What the file tools have in common: their folder, the key's workspace, and the form of their results."""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import posixpath
import re
import stat
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from weakref import WeakKeyDictionary

from flink_skills.errors import ConfigError, SkillsError
from flink_skills.execution import Limits, Workspace
from flink_skills.execution.workspace import folder_name
from flink_skills.execution.workspace.safe_files import Reach, closing, pinned
from flink_skills.execution.workspace.workspace_paths import (
    FOLDER_VARIABLES,
    MAX_NAME,
    MAX_PARTS,
    MAX_PATH,
    WorkspacePathError,
    has_invalid_characters,
    is_sealed,
    split_variable,
)
from flink_skills.tools.argument_model import ArgumentModel
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import CheckedTool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.commands.folders import stage_skills

Parts = tuple[str, ...]

#: The folders in a workspace that file tools change, and those that they read.
WRITE_ROOTS = ("work", "out", "runs", "tmp", "home")
ROOTS = (*WRITE_ROOTS, "skills")

_MAX_LINKS = 40
_ADVICE = "Give a path relative to the working folder, or one that begins with $WORK_DIR, $OUTPUT_DIR or $SKILLS_DIR."


@dataclass(frozen=True)
class Target:
    """A resolved path, as parts below the workspace, or below ``granted``: a path of the machine that the job lets
    commands read. ``requested`` are the parts before links were resolved."""

    parts: Parts
    requested: Parts
    granted: str = ""


class Area:
    """The workspace of one call, as its file tool sees it. Methods that take ``root``, the open workspace, block.

    Args:
        workspace: The workspace of the key.
        cwd: Parts of the folder that relative paths start at.
        originals: Copies of loaded skills in the workspace, by the folders that the skills' texts name.
        skills: Folders for the model's skills.
        limits: The job's limits.
    """

    def __init__(
        self, workspace: Workspace, cwd: Parts, originals: Mapping[str, Path], skills: Collection[str], limits: Limits
    ) -> None:
        self.workspace = workspace
        self.skills = skills
        self.limits = limits
        self.reach = Reach(workspace.user)
        self._cwd = cwd
        # A model can have either from a command: "pwd" and "realpath ." differ if a link leads to the workspace.
        tops = dict.fromkeys((str(workspace.root), os.path.realpath(workspace.root)), Parts())
        copies = {original: Path(copy).relative_to(workspace.root).parts for original, copy in originals.items()}
        self._absolute = {**tops, **copies}

    def parts(self, text: str, what: str = "path") -> Parts:
        """Return the parts of a path below the workspace, () for the workspace. Raises :class:`ArgumentError`.

        >>> area.parts("../out/a.csv")
        ('out', 'a.csv')
        """
        check_path(text, what)
        return self._inside(self._joined(text.replace("\\", "/"), text), text, what)

    def pattern(self, text: str) -> str:
        """Return a pattern relative to the workspace. Wildcards in the tool's own folder are literal."""
        check_path(text, "pattern")
        path = text.replace("\\", "/")
        if path.startswith(("/", "~", "$")):
            parts = self._joined(path, path)
        else:
            literal = (re.sub(r"[*?\[{]", lambda sign: f"[{sign[0]}]", part) for part in self._cwd)
            parts = (*literal, *path.split("/"))
        return "/".join(self._inside(parts, text, "pattern"))

    def shown(self, parts: Parts) -> str:
        """Return a path for the model, which tools and shell commands accept. It names no folder of the machine.

        >>> area.shown(("work", "a", "b.txt")), area.shown(("out", "c.csv"))
        ('a/b.txt', '$OUTPUT_DIR/c.csv')
        """
        if parts[: len(self._cwd)] == self._cwd:
            return "/".join(parts[len(self._cwd) :]) or "."
        for name, root in FOLDER_VARIABLES.items():
            if root and parts[:1] == root:
                return "/".join((f"${name}", *parts[1:]))
        return "/".join(("$WORKSPACE_DIR", *parts))

    def quoted(self, target: Target) -> str:
        """Return the requested path in quotes, for messages."""
        return repr(self.shown(target.requested))

    def _joined(self, path: str, text: str) -> Parts:
        if path == "~" or path.startswith("~/"):
            return ("home", *path[2:].split("/"))
        variable, rest = split_variable(path)
        if variable:
            return (*_folder_of(variable, text), *rest.split("/"))
        if not path.startswith("/"):
            return (*self._cwd, *path.split("/"))
        path = posixpath.normpath(path)
        for top, parts in self._absolute.items():
            if path == top or path.startswith(f"{top}/"):
                return (*parts, *path[len(top) :].split("/"))
        raise ArgumentError(f"{text!r} is outside the workspace, and nothing is read or written there. {_ADVICE}")

    def _inside(self, parts: Parts, text: str, what: str) -> Parts:
        found: list[str] = []
        for part in parts:
            if part == "..":
                if not found:
                    raise ArgumentError(f"{what} {text!r} leads out of the workspace by '..'. {_ADVICE}")
                found.pop()
            elif part not in ("", "."):
                found.append(part)
        return tuple(found)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Hold the workspace open. Raises :class:`~flink_skills.errors.ExecutionError`."""
        self.workspace.ensure()
        with pinned(self.workspace.root) as root:
            yield root

    def locate(self, root: int, path: str, what: str = "path") -> Target:
        """Resolve ``path``, even if nothing is there yet. Raises :class:`ArgumentError`."""
        requested = self.parts(path, what)
        with self.explained(requested):
            target = self._follow(root, requested)
        if not target.granted:
            parts = target.parts
            if parts and parts[0] not in ROOTS:
                raise ArgumentError(f"{path!r} is in none of the folders of the workspace: {', '.join(ROOTS)}.")
            if len(parts) > 1 and parts[0] == "skills" and parts[1] not in self.skills:
                raise ArgumentError(f"{path!r}: there is no skill {parts[1]!r} here. Load it first.")
        return target

    def check_writable(self, target: Target, path: str) -> None:
        """Raise :class:`ArgumentError` if file tools cannot change the target."""
        parts = target.parts
        if target.granted or parts[:1] == ("skills",):
            raise ArgumentError(f"{path!r} is read-only: write to $WORK_DIR or $OUTPUT_DIR.")
        if len(parts) < 2 or parts[0] not in WRITE_ROOTS:
            raise ArgumentError(f"{path!r} is a folder: name a file in it.")
        if parts[:2] == ("work", "inputs") and len(parts) > 2 and parts[2] in self.workspace.input_names:
            raise ArgumentError(f"{path!r} is the event or an input of the job, and read-only: choose another name.")

    @contextmanager
    def folder(self, root: int, target: Target) -> Iterator[int]:
        """Hold the folder open for reading. Raises :class:`ArgumentError`."""
        with (
            self.explained(target.requested),
            self._base(root, target) as base,
            self.reach.below(base, target.parts) as folder,
        ):
            if target.parts:
                yield folder
                return
            # A folder that is open for its path cannot be listed.
            with closing(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)) as descriptor:
                yield descriptor

    @contextmanager
    def file(self, root: int, target: Target) -> Iterator[int]:
        """Hold the regular file open for reading. Raises :class:`ArgumentError`."""
        shown = self.quoted(target)
        with self.explained(target.requested), ExitStack() as stack:
            parts, granted = target.parts, target.granted
            if parts:
                base = stack.enter_context(self._base(root, target))
            elif granted:
                above, _, name = granted.rpartition("/")
                base, parts = stack.enter_context(_granted_folder(above or "/", shown)), (name,)
            else:
                raise WorkspacePathError(f"{shown} is a folder. Name a file in it.", "no-file")
            folder = stack.enter_context(self.reach.below(base, parts[:-1]))
            trusted = bool(granted) or is_sealed(parts)
            yield stack.enter_context(self.reach.file(parts[-1], folder, shown=shown, trusted=trusted))

    def kind(self, root: int, target: Target) -> str:
        """Return ``file``, ``folder``, or an empty string if nothing is there. Raises :class:`ArgumentError`."""
        if not target.parts and not target.granted:
            return "folder"
        try:
            with self.explained(target.requested):
                if not target.parts:
                    mode = os.lstat(target.granted).st_mode
                else:
                    with self._base(root, target) as base, self.reach.below(base, target.parts[:-1]) as folder:
                        mode = os.stat(target.parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
        except _MissingError:
            return ""
        return "folder" if stat.S_ISDIR(mode) else "file"

    @contextmanager
    def explained(self, requested: Parts) -> Iterator[None]:
        """Turn errors of an operation on a path into an :class:`ArgumentError` that a model can act on."""
        shown = self.shown(requested)
        try:
            yield
        except WorkspacePathError as error:
            raise ArgumentError(str(error)) from None
        except FileNotFoundError:
            raise _MissingError(f"{shown!r} does not exist: list the files first, with Glob.") from None
        except NotADirectoryError:
            raise _MissingError(
                f"{shown!r} is not a folder, or has a file or a link in place of a folder above it."
            ) from None
        except OSError as error:
            raise ArgumentError(f"{shown!r} cannot be used: {error.strerror or error}.") from None

    @contextmanager
    def _base(self, root: int, target: Target) -> Iterator[int]:
        if not target.granted:
            yield root
            return
        with _granted_folder(target.granted, self.quoted(target)) as base:
            yield base

    def _follow(self, root: int, requested: Parts) -> Target:
        base, top, granted = root, str(self.workspace.root), ""
        shown = repr(self.shown(requested))
        waiting, done = list(reversed(requested)), list[str]()
        links = 0
        with ExitStack() as stack:
            while waiting:
                part = waiting.pop()
                if part in ("", "."):
                    continue
                if part == "..":
                    if not done:
                        message = f"{shown} leads out of the workspace through '..' of a link"
                        raise WorkspacePathError(message, "invalid")
                    done.pop()
                    continue
                text = self._link(base, done, part)
                if text is None:
                    done.append(part)
                    continue
                links += 1
                if links > _MAX_LINKS:
                    raise WorkspacePathError(f"{shown} leads through more than {_MAX_LINKS} links", "invalid")
                if text.startswith("/"):
                    if not granted and [*done, part][:2] == ["work", "inputs"] and text in self.workspace.readable[1:]:
                        granted = top = text
                        done = []
                        if stat.S_ISDIR(os.lstat(text).st_mode):
                            base = stack.enter_context(_granted_folder(text, shown))
                        elif any(waiting):
                            raise NotADirectoryError(text)
                        continue
                    if text != top and not text.startswith(f"{top}/"):
                        raise WorkspacePathError(
                            f"{shown} leads out of the workspace through a link. Such links are not followed.",
                            "invalid",
                        )
                    text, done = text[len(top) :], []
                waiting += reversed(text.split("/"))
        return Target(tuple(done), requested, granted)

    def _link(self, base: int, folders: list[str], name: str) -> str | None:
        """Return the target of the link ``name``. Return None for anything else, and if nothing is there."""
        with suppress(FileNotFoundError, NotADirectoryError), self.reach.below(base, folders) as folder:
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return os.readlink(name, dir_fd=folder)
        return None


class _MissingError(ArgumentError):
    """Nothing is there."""


@contextmanager
def _granted_folder(path: str, shown: str) -> Iterator[int]:
    """Hold a folder of the machine open that the job grants, by its real path."""
    with pinned(path) as descriptor:
        # Check what was opened: a link on the way can be new.
        if os.readlink(f"/proc/self/fd/{descriptor}") != path:
            raise WorkspacePathError(f"the path to {shown} changed: one of its folders is now a link", "invalid")
        yield descriptor


def cwd_parts(cwd: str | None, tool: str) -> Parts:
    """Return the folder that a tool is declared with, below the workspace. Raises :class:`ConfigError`.

    >>> cwd_parts("reports", "Read"), cwd_parts("$OUTPUT_DIR", "Read")
    (('work', 'reports'), ('out',))
    """
    text = cwd or ""
    if text.startswith(("/", "~")) or "\0" in text:
        raise ConfigError(
            f"{tool}(cwd={cwd!r}): expected a directory of the workspace, which every key has for itself: write it "
            "relative to the work directory, or start with $WORK_DIR, $OUTPUT_DIR or $SKILLS_DIR"
        )
    variable, rest = split_variable(text)
    try:
        start = _folder_of(variable, text) if variable else ("work",)
    except ArgumentError as error:
        raise ConfigError(f"{tool}(cwd={cwd!r}): {error}") from None
    parts = (*start, *(part for part in rest.split("/") if part not in ("", ".")))
    if ".." in parts or (parts and parts[0] not in ROOTS):
        raise ConfigError(f"{tool}(cwd={cwd!r}): expected a directory below one of {', '.join(ROOTS)}")
    return parts


def check_path(text: str, what: str) -> None:
    """Raise :class:`ArgumentError` for a string that cannot be a path."""
    if not text.strip():
        raise ArgumentError(f"{what} is empty: name a file or a folder.")
    if has_invalid_characters(text):
        raise ArgumentError(f"{what} {text[:80]!r} holds characters that no path can have: write it without them.")
    parts = text.split("/")
    if len(text) > MAX_PATH or len(parts) > MAX_PARTS or any(len(part.encode()) > MAX_NAME for part in parts):
        raise ArgumentError(
            f"{what} {text[:80]!r}… is too long: at most {MAX_PATH} characters, {MAX_PARTS} folders, and "
            f"{MAX_NAME} bytes for a name."
        )


def _folder_of(variable: str, text: str) -> Parts:
    if variable not in FOLDER_VARIABLES:
        names = ", ".join(f"${name}" for name in FOLDER_VARIABLES)
        raise ArgumentError(f"{text!r} begins with a variable that is not known here: use one of {names}.")
    return FOLDER_VARIABLES[variable]


M = TypeVar("M", bound=ArgumentModel)
T = TypeVar("T")

_MAX_OF_KEY = 2
#: Maximum number of threads that search files in a worker.
MAX_SEARCHES = 2


class FileTool(CheckedTool, Generic[M]):
    """A tool on the workspace of the key.

    ``cwd`` is the folder that relative paths start at: relative to the workspace's work folder, which is the default,
    or beginning with ``$WORK_DIR``, ``$OUTPUT_DIR`` or ``$SKILLS_DIR``. Raises
    :class:`~flink_skills.errors.ConfigError` for any other.

    Its results are objects with ``success``, and ``error`` where that is false; the text for the model is their JSON.
    """

    uses_workspace = True
    runs_in = "sandbox"
    tool_name: ClassVar[str]
    description: ClassVar[str]
    model: type[M]

    def __init__(self, cwd: str | None = None) -> None:
        self._cwd = cwd_parts(cwd, self.tool_name)
        self._arguments: Arguments[M] = Arguments(self.tool_name, self.model)
        self._spec = ToolSpec(self.tool_name, self.description, self._arguments.schema)

    def rejected(self, arguments: Mapping[str, Any], error: Exception) -> ToolResult:
        return _result({"success": False, "error": str(error)})

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            value = await self._answer(self._arguments.read(arguments), context)
        except (ArgumentError, SkillsError) as error:
            value = {"success": False, "error": str(error)}
        except OSError as error:  # of the machine, where no place in the workspace is at fault
            value = {"success": False, "error": f"{self.tool_name} failed: {error.strerror or error}. Try again later."}
        if context.shell is not None:
            # A file may hold what a command wrote down of its secrets.
            value = context.shell.hidden.in_data(value)
        return _result(value)

    @abstractmethod
    async def _answer(self, request: M, context: ToolContext) -> dict[str, Any]:
        """Return the result. Raises :class:`ArgumentError` and :class:`SkillsError` with messages for the model."""

    def _area(self, workspace: Workspace, context: ToolContext) -> tuple[Area, dict[str, tuple[str, Path]]]:
        """Return the workspace as the tool sees it, and its loaded skills (see :func:`stage_skills`). Blocks."""
        view = context.skills
        workspace.ensure()
        staged = stage_skills(workspace, context.skill_state or (), view) if view is not None else {}
        originals = {original: copy for original, copy in staged.values() if original}
        skills = frozenset(folder_name(name) for name in view.names) if view is not None else frozenset()
        limits = context.shell.limits if context.shell is not None else Limits()
        return Area(workspace, self._cwd, originals, skills, limits), staged


def _result(value: dict[str, Any]) -> ToolResult:
    return ToolResult(json.dumps(value, ensure_ascii=False), is_error=not value["success"], value=value)


class _ThreadSlots:
    """Slots for concurrent calls to file tools in a worker.

    Their threads compete with the event loop, which all keys share, for Python's lock. A call waits first behind
    other calls for its key.
    """

    def __init__(self) -> None:
        self._of_keys: WeakKeyDictionary[Workspace, asyncio.Semaphore] = WeakKeyDictionary()
        self._of_worker: dict[int, asyncio.Semaphore] = {}

    async def run(self, workspace: Workspace, limit: int, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread and return its result. At most ``limit`` such threads run in the worker."""
        of_key = self._of_keys.setdefault(workspace, asyncio.Semaphore(_MAX_OF_KEY))
        of_worker = self._of_worker.setdefault(limit, asyncio.Semaphore(limit))
        await of_key.acquire()
        try:
            await of_worker.acquire()
        except BaseException:
            of_key.release()
            raise
        # As asyncio.to_thread does. The future outlives the call.
        running = asyncio.get_running_loop().run_in_executor(None, partial(contextvars.copy_context().run, work))

        def leave(ended: asyncio.Future[T]) -> None:
            of_worker.release()
            of_key.release()
            if not ended.cancelled():
                ended.exception()  # Otherwise asyncio logs an error if the turn has ended.

        # A thread whose turn has ended keeps its slot until it ends.
        running.add_done_callback(leave)
        return await asyncio.shield(running)


_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, _ThreadSlots] = WeakKeyDictionary()


class StoredTool(FileTool[M]):
    """A file tool that works in a thread. ``max_threads`` is its limit for a worker."""

    max_threads: ClassVar[int] = 16

    async def _answer(self, request: M, context: ToolContext) -> dict[str, Any]:
        workspace = await context.get_workspace()
        stop = threading.Event()

        def work() -> dict[str, Any]:
            area, _ = self._area(workspace, context)
            with area.opened() as root:
                return self._work(request, area, root, context, stop)

        slots = _slots.setdefault(asyncio.get_running_loop(), _ThreadSlots())
        try:
            return await slots.run(workspace, self.max_threads, work)
        finally:
            # The turn can end before the thread, whose result is then dropped.
            stop.set()

    @abstractmethod
    def _work(self, request: M, area: Area, root: int, context: ToolContext, stop: threading.Event) -> dict[str, Any]:
        """Return the result. It runs in a thread, and ends soon after ``stop`` is set."""
