"""Programs that run bundled tools in sandboxes. A worker keeps a few for the next request.

The program is an argument of ``python3 -c`` instead of a file: commands cannot change it, and the skill's directory
stays as it is.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pydantic

from flink_skills.errors import ExecutionError
from flink_skills.execution import CommandResult
from flink_skills.execution.execution_backend import LiveProcess, OnOutput
from flink_skills.execution.process_streams import gap_text

#: Exit code of a program whose interpreter is too old or has no pydantic. Its stderr has the reason and the fix.
UNUSABLE_PYTHON = 3

# Each imports those before it only.
_MODULES = ("hints", "tools.arguments", "tools.function_arguments", "tools.dynamic.sandbox_program")

# An interpreter of the same version that is not the worker's, such as that of a skill's .venv, can use the worker's
# pydantic. The modules are removed from sys.modules, so that tools can import an installed flink_skills.
_BOOT = """\
import sys
def refuse(reason):
    sys.stderr.write("the tools of a skill need " + reason + chr(10))
    sys.exit({code})
if sys.version_info < (3, 10):
    refuse("Python 3.10, and this is " + sys.version.split()[0])
if sys.version_info[:2] == {version!r}:
    sys.path.append({packages!r})
try:
    from pydantic import TypeAdapter
except ImportError as error:
    refuse("the package pydantic 2, and " + sys.executable + " does not have it (" + str(error) + "): install "
           "pydantic for the python3 of commands, for example in the image of the sandbox")
def boot(sources):
    for name, source in sources:
        module = sys.modules[name] = type(sys)(name)
        exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
    for name, source in sources:
        del sys.modules[name]
    module.serve()
boot({sources!r})
"""

# The printed text arrives through another pipe than the response, and a tool can close that pipe.
_PRINTED_SECONDS = 0.5
_GRACE_SECONDS = 0.5
_HEAD_BYTES = 1_024
_TAIL_BYTES = 3_072
# More than any reader needs, and few enough for the worker to discard.
_MAX_PRINTED_BYTES = 8 << 20

# A tool of one skill that hangs must not block those of the key's other skills.
_MAX_CALLS_OF_KEY = 2
# Separate slots for descriptions: a skill that hangs while it is loaded blocks no call, and loading waits for no call.
_DESCRIBING_SHARE = 2


@cache
def program_argv() -> tuple[str, ...]:
    """Return the command that runs the program. ``-I`` ignores variables and the directory in which it starts.

    >>> program_argv()[:3]
    ('python3', '-I', '-c')
    """
    package = files("flink_skills")
    sources = [
        (f"flink_skills.{name}", package.joinpath(f"{name.replace('.', '/')}.py").read_text("utf-8"))
        for name in _MODULES
    ]
    text = _BOOT.format(
        code=UNUSABLE_PYTHON,
        version=sys.version_info[:2],
        packages=str(Path(pydantic.__file__).parent.parent),
        sources=sources,
    )
    return ("python3", "-I", "-c", text)


@dataclass(frozen=True)
class Reply:
    """Request outcome.

    Attributes:
        line: The response. None if there is none; then the other attributes have the reason.
        printed: The beginning and the end of the printed text.
        dropped: The number of bytes that are missing between them.
        timed_out: Whether the program was terminated at its time limit.
        too_long: Whether it was terminated because the response or the printed text is too long.
        ended: How the program ended, if it did.
    """

    line: bytes | None = None
    printed: bytes = b""
    dropped: int = 0
    timed_out: bool = False
    too_long: bool = False
    ended: CommandResult | None = None


class Program:
    """A running program. It handles one request at a time, in one event loop.

    It cannot be used again after its end, a limit, or output without a request: such output could pass for the
    response to another request.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.started = loop.time()
        self.timer: asyncio.TimerHandle | None = None
        self._process: LiveProcess | None = None
        self._exit: asyncio.Future[CommandResult] = loop.create_future()
        self._is_broken = self._is_too_long = False
        self._expect("", -1)

    @classmethod
    async def start(cls, start: Callable[[OnOutput], Awaitable[LiveProcess]]) -> Program:
        """Start the program by ``start``. Raise what ``start`` raises."""
        program = cls()
        program._process = process = await start(program._receive)
        program._exit = asyncio.ensure_future(process.wait())
        return program

    @property
    def is_usable(self) -> bool:
        """Whether it accepts another request."""
        return not (self._is_broken or self._exit.done() or self._process is None or self._process.ended)

    @property
    def is_asked(self) -> bool:
        """Whether a request is in progress."""
        return self._limit >= 0

    async def ask(self, request: Mapping[str, Any], *, limit: int, timeout: float) -> Reply:
        """Request a response of at most ``limit`` bytes within ``timeout`` seconds.

        A failure is part of the reply, and ends the program. So does a cancellation of the caller.
        """
        mark = secrets.token_hex(8)
        self._expect(mark, limit)
        timed_out, ended = False, None
        try:
            data = json.dumps({**request, "id": mark, "limit": limit, "mark": mark}).encode() + b"\n"
            await asyncio.wait_for(self._exchange(data), timeout)
        except asyncio.TimeoutError:
            timed_out = True
        except BaseException:
            await asyncio.shield(self.end())
            raise
        finally:
            self._limit = -1
        line = bytes(self._line) if self._response.done() and not self._is_broken and not timed_out else None
        if line is None:
            ended = await self.end()
        printed = (bytes(self._head) + gap_text(self._dropped) + bytes(self._tail)).replace(self._mark, b"")
        return Reply(line, printed, self._dropped, timed_out, self._is_too_long, ended)

    async def end(self) -> CommandResult:
        """Terminate the program and all its processes, and wait for their end."""
        self._is_broken = True
        if self._process is not None and not self._exit.done():
            await self._process.terminate(_GRACE_SECONDS)
        return await self._exit

    def close(self) -> None:
        """Terminate the program without waiting."""
        self._is_broken = True
        if self._process is not None:
            self._process.close()

    def _expect(self, mark: str, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self._limit = limit
        # Forged output can precede the response, and does not contain the id of the request.
        self._opening = f'{{"id": "{mark}", '.encode()
        self._mark = f"\0{mark}\0\n".encode()
        self._line, self._head, self._tail = bytearray(), bytearray(), bytearray()
        self._dropped = 0
        self._response: asyncio.Future[None] = loop.create_future()
        self._all_printed: asyncio.Future[None] = loop.create_future()

    async def _exchange(self, data: bytes) -> None:
        """Send the request. Wait for the response and the printed text, or for the end."""
        try:
            if self._process is not None:
                await self._process.write(data)
        except ExecutionError:
            return  # the outcome of the process has the reason
        outcomes: list[asyncio.Future[Any]] = [self._response, self._exit]
        await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
        if self._response.done() and not self._is_broken:
            await asyncio.wait([self._all_printed], timeout=_PRINTED_SECONDS)

    def _receive(self, stream: int, data: bytes) -> None:
        if stream != 1:
            self._receive_printed(data)
        elif not self.is_asked or self._response.done() or b"\n" in data[:-1]:
            self._break()
        else:
            self._line += data
            if len(self._line) > self._limit + 1:
                self._break(too_long=True)
            elif self._line.endswith(b"\n"):
                if self._line.startswith(self._opening):
                    self._response.set_result(None)
                else:
                    self._break()

    def _receive_printed(self, data: bytes) -> None:
        room = _HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (over := len(self._tail) - _TAIL_BYTES) > 0:
            del self._tail[:over]
            self._dropped += over
        if len(self._head) + self._dropped + len(self._tail) > _MAX_PRINTED_BYTES:
            self._break(too_long=True)
        elif not self._all_printed.done() and (
            self._mark in self._tail or (not self._dropped and self._mark in self._head + self._tail)
        ):
            self._all_printed.set_result(None)

    def _break(self, *, too_long: bool = False) -> None:
        self._is_too_long |= too_long
        if not self._response.done():
            self._response.set_result(None)
        self.close()


class Slots:
    """A limited number of slots. The longest waiter gets the next one. Belongs to one event loop.

    Unlike a semaphore under ``asyncio.wait_for``, it loses no slot on any Python if a waiter is cancelled.

    >>> slots = Slots(1)
    >>> await slots.take(10)
    True
    >>> await slots.take(0.01)
    False
    >>> slots.release()
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def take(self, seconds: float) -> bool:
        """Take a slot within ``seconds``. Return False if none becomes free."""
        if self._free:
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            await asyncio.wait([turn], timeout=seconds)
        except asyncio.CancelledError:
            if turn.done():
                self.release()
            else:
                self._waiters.remove(turn)
            raise
        if not turn.done():
            self._waiters.remove(turn)
        return turn.done()

    def release(self) -> None:
        """Release a slot."""
        if self._waiters:
            self._waiters.popleft().set_result(None)
        else:
            self._free += 1


@dataclass(frozen=True)
class ProgramKey:
    """Owner of a program. Each key of a stream has its own workspace, so no program serves two of them."""

    workspace: str
    skill: str
    digest: str


class Programs:
    """Starts programs on request, and ends them after a while. Belongs to one event loop.

    Half as many programs can describe their tools in addition. A key has at most two calls in progress.

    Args:
        most: Maximum number of programs that run calls or are kept. The least recently used one is ended first.
        idle: Time in seconds without a request after which a program is ended.
        life: Maximum lifetime of a program in seconds.
        wait: Maximum time in seconds that a request waits for those of other keys.
    """

    def __init__(self, *, most: int, idle: float, life: float, wait: float) -> None:
        self._most = most
        self._idle = idle
        self._life = life
        self._wait = wait
        self._programs: OrderedDict[ProgramKey, Program] = OrderedDict()
        self._calls = Slots(most)
        self._descriptions = Slots(max(1, most // _DESCRIBING_SHARE))
        # Requests hold the slots of their key, so they are removed with the last request.
        self._slots: WeakValueDictionary[Hashable, Slots] = WeakValueDictionary()
        self._starting = 0
        self._is_closed = False

    @property
    def running(self) -> int:
        """How many programs run."""
        return sum(program.is_usable for program in self._programs.values())

    async def ask(
        self,
        key: ProgramKey,
        start: Callable[[], Awaitable[Program]],
        request: Mapping[str, Any],
        *,
        limit: int,
        timeout: float,
        describes: bool = False,
    ) -> Reply:
        """Send a request to the program of ``key``. ``start`` starts it if it does not run.

        Args:
            key: The owner.
            start: Starts a program.
            request: The request.
            limit: Maximum size of the response in bytes.
            timeout: Maximum time in seconds for the response, and for the wait for other requests of the key.
            describes: Whether the request calls no tool.

        Raises:
            ExecutionError: Too many requests are in progress, or this is closed.
        """
        async with self._turn(key, timeout, describes):
            program = await self._running_program(key, start, timeout)
            try:
                return await program.ask(request, limit=limit, timeout=timeout)
            finally:
                if program.is_usable:
                    program.timer = asyncio.get_running_loop().call_later(self._idle, self._end_idle, key, program)
                elif self._programs.get(key) is program:
                    del self._programs[key]

    async def forget(self, workspace: str) -> None:
        """End the programs of a workspace."""
        await self._end(*[key for key in self._programs if key.workspace == workspace])

    async def close(self) -> None:
        """End all programs, including those with a request in progress. Calling it again does nothing."""
        self._is_closed = True
        await self._end(*self._programs)

    @asynccontextmanager
    async def _turn(self, key: ProgramKey, timeout: float, describes: bool) -> AsyncIterator[None]:
        """Wait for the slots of a request: first those of its key, while it occupies no slot of other keys."""
        loop = asyncio.get_running_loop()
        of_key = 1 if describes else min(_MAX_CALLS_OF_KEY, self._most)
        own = (
            self._slots.setdefault(key, Slots(1)),
            self._slots.setdefault((key.workspace, describes), Slots(of_key)),
        )
        until = loop.time() + timeout
        async with AsyncExitStack() as taken:
            for slots in own:
                if not await slots.take(max(0.0, until - loop.time())):
                    raise ExecutionError(
                        "busy with earlier calls of tools that skills bring: wait for their results, then try again"
                    )
                taken.callback(slots.release)
            others = self._descriptions if describes else self._calls
            if not await others.take(self._wait):
                raise ExecutionError("busy: too many tools that skills bring run in this worker: try again later")
            taken.callback(others.release)
            yield

    async def _running_program(
        self, key: ProgramKey, start: Callable[[], Awaitable[Program]], timeout: float
    ) -> Program:
        program = self._programs.get(key)
        if program is not None:
            if program.is_usable and asyncio.get_running_loop().time() - program.started + timeout <= self._life:
                self._programs.move_to_end(key)
                if program.timer is not None:
                    program.timer.cancel()
                return program
            await self._end(key)
        self._check_open()
        self._starting += 1
        try:
            await self._make_room(key)
            program = await start()
        finally:
            self._starting -= 1
        self._programs[key] = program
        if self._is_closed:
            await self._end(key)
            self._check_open()
        return program

    def _check_open(self) -> None:
        if self._is_closed:
            raise ExecutionError("the tools of skills are closed: their worker ends")

    async def _make_room(self, key: ProgramKey) -> None:
        """End programs of the skill's other versions, and idle programs if too many run."""
        idle = [other for other, program in self._programs.items() if not program.is_asked]
        stale = [other for other in idle if (other.workspace, other.skill) == (key.workspace, key.skill)]
        over = max(0, len(self._programs) + self._starting - self._most - len(stale))
        await self._end(*stale, *[other for other in idle if other not in stale][:over])

    async def _end(self, *keys: ProgramKey) -> None:
        programs = [self._programs.pop(key) for key in keys]
        for program in programs:
            if program.timer is not None:
                program.timer.cancel()
        await asyncio.gather(*(program.end() for program in programs))

    def _end_idle(self, key: ProgramKey, program: Program) -> None:
        if self._programs.get(key) is program and not program.is_asked:
            del self._programs[key]
            program.close()
