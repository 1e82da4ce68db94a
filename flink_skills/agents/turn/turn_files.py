"""The files of the event of a turn, and the workspace of its key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from flink_skills.agents.state.files import EventFile
from flink_skills.errors import ExecutionError

if TYPE_CHECKING:
    from flink_skills.agents.open.open_agent import OpenAgent
    from flink_skills.agents.turn.steps import Steps
    from flink_skills.execution import Workspace


class TurnFiles:
    """Reads the files of the event of a turn, and opens the workspace of its key when something needs it.

    Args:
        agent: The open agent of the turn.
        key: The text of the key.
        owner: The owner of the artifacts of the key.
    """

    __slots__ = ("_agent", "_closed", "_files", "_key", "_owner", "_versions", "_workspace", "event", "staged_inputs")

    def __init__(self, agent: OpenAgent, key: str, owner: str) -> None:
        self._agent = agent
        self._key = key
        self._owner = owner
        self._closed = False
        self._workspace: asyncio.Future[Workspace] | None = None
        self._files: Sequence[EventFile] = ()
        self._versions: Mapping[str, str] = {}
        #: The event as models and commands read it: without the contents of its files.
        self.event: Any = None
        #: A record for each file in the workspace.
        self.staged_inputs: Sequence[Mapping[str, Any]] = ()

    def begin(self) -> None:
        """Forget the files of an attempt at the turn that was given up."""
        self._files, self._versions = (), {}

    def close(self) -> None:
        """Reject further requests for the workspace, and start to count its age in a background thread."""
        self._closed = True
        opened, self._workspace = self._workspace, None
        if opened is not None and opened.done() and not opened.cancelled() and opened.exception() is None:
            asyncio.get_running_loop().run_in_executor(None, opened.result().release)

    async def read(self, steps: Steps, artifacts: Callable[[], Mapping[str, str]]) -> None:
        """Take the files out of the event, and store which versions of artifacts it means.

        ``artifacts`` returns the newest version of each artifact that the conversation saved.
        """
        agent = self._agent
        self.event, files = await asyncio.to_thread(agent.files.read, self.event)
        self._files = agent.named_files.allowed(files)
        self.event = agent.files.with_names(self.event, self._files)
        if any(file.ref is not None and not file.ref.version for file in self._files):
            known = dict(artifacts())
            look_up = partial(asyncio.to_thread, agent.files.versions, self._files, self._owner, known)
            # Before the turn saves anything, and the same after a failover.
            self._versions = await steps.durable("files#0", look_up)
        if agent.workspaces is not None and any(file.url for file in self._files):
            workspace, call_id = agent.workspaces.for_key(self._key), steps.call_id("files#1")
            await agent.named_files.stage(self._files, workspace, steps.durable, call_id, self._place)

    async def _place(self, files: Sequence[EventFile]) -> None:
        """Put fetched files into the workspace. A turn that restarts does it again."""
        self._files, self._workspace = files, None
        self.event = self._agent.files.with_names(self.event, files)
        await self.workspace()

    async def workspace(self) -> Workspace:
        """Return the workspace of the key, with the event and its files in it. A turn opens it once.

        Raises :class:`ExecutionError` if the job has none, if it cannot be used, and after the end of the turn.
        """
        if self._closed:
            raise ExecutionError("the turn has ended")
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
        agent = self._agent
        if agent.workspaces is None:
            raise ExecutionError("this job has no workspaces: set skills.shell.enabled to true")
        workspace: Workspace = agent.workspaces.for_key(self._key)
        # In a thread: a disk may be slow, and all other turns run on this loop.
        self.staged_inputs = await asyncio.to_thread(
            agent.files.write, workspace, self.event, self._files, self._owner, self._versions
        )
        return workspace
