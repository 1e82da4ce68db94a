"""One attempt at a turn: what all of its agents share."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flink_skills.agents.declare.subagent import NOTHING_SPENT, Budget, Spent
from flink_skills.agents.state.files import EventFile
from flink_skills.agents.state.session import KeptConversation
from flink_skills.agents.turn.steps import Steps
from flink_skills.errors import ExecutionError
from flink_skills.telemetry import TurnScope
from flink_skills.tools.base import AgentAnswer

if TYPE_CHECKING:
    from flink_skills.agents.open.generation import Generation
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


# Maximum pause for permits after an error, in seconds.
_LONGEST_PAUSE = 60.0


class Identity(NamedTuple):
    """The identity of a turn.

    ``key`` is the value of the key, ``owner`` the owner of its artifacts and processes. ``timestamp`` is in
    milliseconds since 1970.
    """

    key: Any
    owner: str
    session_id: str
    number: int
    timestamp: int | None


@dataclass
class NestedCall:
    """The call of an agent that is a tool.

    ``state`` is the state with which the agent begins. ``prefix`` precedes the ids of its steps. ``spent`` is what it
    has spent, even if it failed. ``kept`` are its conversations before, if later calls continue them.
    """

    agent: OpenAgent
    event: Any
    state: Any
    prefix: str
    budget: Budget
    kept: KeptConversation | None = None
    spent: Spent = NOTHING_SPENT


class TurnClock:
    """Deadline and last model error, which all attempts at a turn share.

    Times are those that the event loop counts, in seconds.
    """

    __slots__ = ("_failed", "begun", "due")

    def __init__(self) -> None:
        self.begun = -math.inf
        self.due = math.inf
        self._failed: tuple[float, str, str] | None = None

    @property
    def rest(self) -> float:
        """The seconds until the turn ends at its time limit."""
        return self.due - asyncio.get_running_loop().time()

    def note(self, model: str, error: str) -> None:
        """Keep a model error for records about time limits."""
        self._failed = asyncio.get_running_loop().time(), model, error

    def note_other(self, model: str, error: str, at: float) -> None:
        """Keep an error that another turn received at a time, if it can be the reason why this one waits."""
        if self._failed is None and at >= self.begun - _LONGEST_PAUSE:
            self._failed = at, model, error

    def last_error(self) -> str:
        """Return the last model error as a part for messages. Return an empty string if there is none."""
        if self._failed is None:
            return ""
        at, model, error = self._failed
        ago = asyncio.get_running_loop().time() - at
        return f"; the last error of chat model {model!r}, {ago:.0f} s before: {error}"


#: Runs an agent that is a tool, in an attempt at the turn of its caller.
CallAgent = Callable[["Attempt", NestedCall], Awaitable[AgentAnswer]]


class Attempt:
    """One attempt at a turn. A turn that restarts has another one.

    Args:
        identity: Whose turn it is.
        steps: The durable steps, with those of agents that are tools.
        files: The files of the event and the workspace of the key.
        scope: What observers receive about the turn.
        clock: The time of the turn.
        generations: Models, skills and tools of each agent when the turn began, by the id of its open agent.
        call_agent: Runs an agent that is a tool.
    """

    __slots__ = ("_generations", "call_agent", "clock", "files", "identity", "outputs", "scope", "steps")

    def __init__(
        self,
        identity: Identity,
        steps: Steps,
        files: TurnFiles,
        *,
        scope: TurnScope,
        clock: TurnClock,
        generations: Mapping[int, Generation],
        call_agent: CallAgent,
    ) -> None:
        self.identity = identity
        self.steps = steps
        self.files = files
        self.scope = scope
        self.clock = clock
        self.call_agent = call_agent
        self._generations = generations
        #: Pairs of side-output tag (empty: main output) and value that leave when the turn ends.
        self.outputs: list[tuple[str, Any]] = []

    def generation_of(self, agent: OpenAgent) -> Generation:
        """Return models, skills and tools of an open agent as they were when the turn began."""
        return self._generations[id(agent)]

    def emit(self, tag: str, output: Any) -> None:
        """Let ``output`` leave when the turn ends. Raises :class:`TurnInterruptedError` after the end."""
        self.steps.check_open()
        self.outputs.append((tag, output))
