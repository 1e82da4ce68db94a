"""The workspace of a turn, and the files of its event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from flink_skills.agents.files import EventFile, with_names
from flink_skills.agents.turn_ends import TurnStart
from flink_skills.errors import ExecutionError

if TYPE_CHECKING:
    from flink_skills.execution import Workspace

__all__ = ["TurnFiles", "WithFiles"]


class WithFiles(Protocol):
    """A turn, as far as its files need it."""

    runtime: Any
    main: Any
    start: TurnStart

    @property
    def owner(self) -> str:
        """Stands for agent and key."""

    def call_id(self, step: str) -> str:
        """The id of the call of a step."""

    async def durable(self, step: str, run: Callable[[], Awaitable[Any]], /) -> Any:
        """The result of a step."""


class TurnFiles:
    """Reads the files of the event of ``turn``, and opens the workspace of its key when something needs it."""

    __slots__ = ("_files", "_turn", "_versions", "_workspace", "staged_inputs")

    def __init__(self, turn: WithFiles) -> None:
        self._turn: WithFiles | None = turn
        self._workspace: asyncio.Future[Workspace] | None = None
        self._files: Sequence[EventFile] = ()
        self._versions: Mapping[str, str] = {}
        #: A record for each file in the workspace.
        self.staged_inputs: Sequence[Mapping[str, Any]] = ()

    @property
    def turn(self) -> WithFiles:
        """The turn. Raises :class:`ExecutionError` after its end."""
        if self._turn is None:
            raise ExecutionError("the turn has ended")
        return self._turn

    def begin(self) -> None:
        """Forget the files of an attempt at the turn that was given up."""
        self._files, self._versions = (), {}

    def let_go(self) -> None:
        """Cut the reference to the turn, which has ended."""
        self._turn = None

    def release(self) -> None:
        """Start to count the age of the workspace, in a thread in the background."""
        opened, self._workspace = self._workspace, None
        if opened is not None and opened.done() and not opened.cancelled() and opened.exception() is None:
            asyncio.get_running_loop().run_in_executor(None, opened.result().release)

    async def read(self) -> None:
        """Take the files out of the event, and note which versions of artifacts it means."""
        turn = self.turn
        runtime = turn.runtime
        turn.main.event_for_model, self._files = await asyncio.to_thread(runtime.read_event, turn.main.event_for_model)
        runtime.named_files.check(self._files)
        if any(file.ref is not None and not file.ref.version for file in self._files):
            known = dict(turn.main.skill_state_of(turn.main.tool_scope(None)).artifacts)
            look_up = partial(asyncio.to_thread, runtime.artifact_versions, self._files, turn.owner, known)
            # Before the turn saves anything, and the same after a failover.
            self._versions = await turn.durable("files#0", look_up)
        if runtime.workspaces is not None and any(file.url for file in self._files):
            workspace, call_id = runtime.workspaces.for_key(turn.start.key), turn.call_id("files#1")
            await runtime.named_files.stage(self._files, workspace, turn.durable, call_id, self._place)

    async def _place(self, files: Sequence[EventFile]) -> None:
        """Put fetched files into the workspace. A turn that restarts does it again."""
        self._files, self._workspace = files, None
        turn = self.turn
        turn.main.event_for_model = with_names(turn.main.event_for_model, files, turn.runtime.agent.files_field)
        await self.workspace()

    async def workspace(self) -> Workspace:
        """The key's workspace, with the event and its files in it. Opened once in a turn."""
        if self._workspace is None:
            self._workspace = asyncio.ensure_future(self._open())
        opening = self._workspace
        try:
            return await asyncio.shield(opening)
        except ExecutionError:
            # A disk that was full may have space when the model asks again.
            if self._workspace is opening:
                self._workspace = None
            raise

    async def _open(self) -> Workspace:
        turn = self.turn
        runtime = turn.runtime
        if runtime.workspaces is None:
            raise ExecutionError("this job has no workspaces: set skills.shell.enabled to true")
        workspace: Workspace = runtime.workspaces.for_key(turn.start.key)
        # In a thread: a disk may be slow, and all other turns run on this loop.
        self.staged_inputs = await asyncio.to_thread(
            runtime.hand_over, workspace, turn.main.event_for_model, self._files, turn.owner, self._versions
        )
        return workspace
