"""What the file tools have in common: their folder, the key's workspace, and the form of their results."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from weakref import WeakKeyDictionary

from flink_skills.errors import SkillsError
from flink_skills.execution import Limits, Workspace
from flink_skills.execution.workspace import folder_name
from flink_skills.tools.argument_model import ArgumentModel
from flink_skills.tools.arguments import ArgumentError, Arguments
from flink_skills.tools.base import CheckedTool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.commands.folders import stage_skills
from flink_skills.tools.files.file_paths import Area, cwd_parts

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
