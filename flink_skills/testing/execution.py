"""What every execution backend must do, as tests to inherit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import CommandRequest, CommandResult, ExecutionBackend, Limits, WorkspaceManager
from flink_skills.execution.execution_backend import LiveProcess
from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.execution.request import CommandUser
from flink_skills.execution.workspace import Workspace

_Result = TypeVar("_Result")
_PATH = "/usr/local/bin:/usr/bin:/bin"
_AT_ONCE = 16
_MIB = 1 << 20
_DAEMON = "setsid sh -c 'setsid sleep 300 & exit' > /dev/null 2>&1 < /dev/null &"
# A limit, its value, a shell text that goes past it, and one that stays below.
_PAST_LIMITS = {
    "cpu_time": (1, "while :; do :; done", "true"),
    "processes": (
        16,
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 60 & done; wait",
        "true | cat",
    ),
    "memory": (64 * _MIB, "head -c 300000000 /dev/zero | tail -c 299999999 | (sleep 3; cat)", "echo fits"),
    "file_size": (_MIB, "exec head -c 5000000 /dev/zero > big", "exec head -c 500000 /dev/zero > small"),
    "workspace_bytes": (
        2 * _MIB,
        "for i in 1 2 3 4 5 6 7 8; do head -c 700000 /dev/zero > part$i; done; sleep 60",
        "head -c 700000 /dev/zero > part",
    ),
    "workspace_files": (50, "i=0; while [ $i -lt 200 ]; do : > f$i; i=$((i + 1)); done; sleep 60", ": > one"),
}


class ExecutionBackendContract:
    """Inherit from this in a test module and say how to make the backend; pytest finds the tests.

    Commands are ``/bin/sh`` with the usual small programs (``cat``, ``head``, ``seq``, ``setsid``, ``sleep``). The
    tests of :meth:`~ExecutionBackend.start_process` are for backends that have it.

    Attributes:
        user: The user that the backend's settings name for commands, if they name one.
        limits: The names of the limits that the backend keeps, besides those that it has to keep: time and output.
        local: Whether commands are processes of this machine, so that what is left of them can be looked for.

    The fixture ``backend`` gives a new backend that is not started:

        class TestMyBackend(ExecutionBackendContract):
            @pytest.fixture
            def backend(self) -> ExecutionBackend:
                return MyBackend(BackendSettings())
    """

    user: CommandUser | None = None
    limits: frozenset[str] = frozenset(_PAST_LIMITS)
    local: bool = True

    @pytest.fixture
    def backend(self) -> ExecutionBackend:
        """A new backend, not started."""
        raise NotImplementedError("say how to make the backend")

    @pytest.fixture
    def workspace(self) -> Iterator[Workspace]:
        """The workspace that commands run in."""
        # Not the folder that pytest gives: another user cannot get there.
        folder = Path(tempfile.mkdtemp(prefix="contract-"))
        folder.chmod(0o711)
        manager = WorkspaceManager(folder / "job", user=self.user)
        workspace = manager.for_key("contract")
        workspace.ensure()
        yield workspace
        manager.close()
        shutil.rmtree(folder, ignore_errors=True)

    def test_it_says_what_it_is(self, backend: ExecutionBackend) -> None:
        assert backend.name.strip(), "name is empty: reports and errors need it"
        assert isinstance(backend.level, IsolationLevel)
        assert isinstance(backend.version, str)

    def test_it_gives_exit_codes(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        codes = [0, 1, 3, 126, 127, 137, 255]
        requests = [_request(workspace, "/bin/sh", "-c", f"exit {code}") for code in codes]
        for code, result in zip(codes, self._all(backend, requests), strict=True):
            assert (result.exit_code, result.signal, result.error) == (code, None, None)
            assert (result.timed_out, result.limit, result.truncated) == (False, None, False)

    def test_it_tells_signals_from_exit_codes(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        numbers = [9, 11, 15]
        requests = [_request(workspace, "/bin/sh", "-c", f"kill -{number} $$") for number in numbers]
        for number, result in zip(numbers, self._all(backend, requests), strict=True):
            assert (result.exit_code, result.signal, result.error) == (None, number, None)

    def test_it_keeps_both_outputs_apart_and_as_they_are(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        result = self._shell(backend, workspace, r"printf 'a\0b\377\n'; printf 'err\200' >&2; exit 3")
        assert (result.stdout, result.stderr) == (b"a\0b\xff\n", b"err\x80")
        assert result.duration > 0

    def test_a_program_that_is_not_there_is_named(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        result = self._one(backend, _request(workspace, "/no/such/program"))
        assert result.exit_code == 127 or result.error is not None
        assert "/no/such/program" in (result.error or result.stderr.decode())

    def test_a_folder_that_is_not_there_is_an_error(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        folder = str(workspace.work_dir / "missing")
        result = self._one(backend, _request(workspace, "/bin/true", cwd=folder))
        assert (result.exit_code, result.signal) == (None, None), "what could not be started has no exit code"
        assert result.error is not None
        assert folder in result.error

    def test_it_passes_the_arguments_as_they_are(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        words = ("", " a  b ", "$HOME", "*", "'\"\\", "\n", "ü")
        request = _request(workspace, "/bin/sh", "-c", 'printf "%s|" "$@"', "sh", *words)
        assert self._one(backend, request).stdout.decode() == "".join(f"{word}|" for word in words)

    def test_it_passes_stdin(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        data = bytes(range(256)) * 1024
        result = self._one(backend, _request(workspace, "/bin/sh", "-c", "cat", stdin=data, limits=Limits(output=_MIB)))
        assert result.stdout == data
        assert self._shell(backend, workspace, "cat; echo end").stdout == b"end\n"

    def test_a_command_need_not_read_its_stdin(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        result = self._shell(backend, workspace, "exec <&-; echo done", stdin=b"x" * (2 * _MIB))
        assert (result.exit_code, result.stdout) == (0, b"done\n")

    def test_it_passes_the_environment_and_nothing_of_the_workers(
        self, backend: ExecutionBackend, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CONTRACT_SECRET", "of-the-worker")
        result = self._shell(backend, workspace, 'env; echo "[$ODD]"', env={"ODD": "a b\n="})
        assert b"[a b\n=]" in result.stdout
        assert b"CONTRACT_SECRET" not in result.stdout

    def test_it_works_in_the_folder_that_is_asked_for(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        result = self._one(backend, _request(workspace, "/bin/sh", "-c", "pwd", cwd=str(workspace.out_dir)))
        assert Path(result.stdout.decode().strip()).name == workspace.out_dir.name

    def test_files_stay_for_the_next_command(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        async def check(started: ExecutionBackend) -> CommandResult:
            written = await started.run(_request(workspace, "/bin/sh", "-c", "mkdir d && echo kept > d/file"))
            assert written.exit_code == 0, written
            return await started.run(_request(workspace, "/bin/sh", "-c", "cat d/file"))

        assert self._started(backend, check).stdout == b"kept\n"

    @pytest.mark.parametrize("text", ["sleep 60", "trap '' TERM INT HUP; while :; do sleep 0.1; done"])
    def test_it_ends_a_command_in_time(self, backend: ExecutionBackend, workspace: Workspace, text: str) -> None:
        result = self._shell(backend, workspace, f"echo up; {text}", limits=Limits(wall_time=0.7))
        assert result.timed_out
        assert result.error is None
        assert result.limit is None or result.limit == "wall_time"
        assert result.stdout == b"up\n", "the output before the termination is lost"
        assert result.duration < 0.7 + 1 + 4, "a second after the time is up it has to be over, even on a busy machine"

    @pytest.mark.parametrize("end", ["exit 0", "exit 5", "kill -9 $$", "sleep 60"])
    def test_nothing_outlives_the_command(self, backend: ExecutionBackend, workspace: Workspace, end: str) -> None:
        mark = self._mark()
        self._shell(backend, workspace, f"{_DAEMON} sleep 0.2; {end}", env=mark, limits=Limits(wall_time=1))
        assert _processes(mark) == []

    def test_a_child_that_keeps_the_output_open_does_not_delay_the_result(
        self, backend: ExecutionBackend, workspace: Workspace
    ) -> None:
        started = time.monotonic()
        result = self._shell(backend, workspace, "sleep 300 & echo done")
        assert (result.exit_code, result.stdout) == (0, b"done\n")
        assert time.monotonic() - started < 30

    def test_cancelling_ends_the_command(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        mark = self._mark()

        async def check(started: ExecutionBackend) -> None:
            text = f"{_DAEMON} echo > up; sleep 300"
            task = asyncio.create_task(started.run(_request(workspace, "/bin/sh", "-c", text, env=mark)))
            await _until(lambda: len(_processes(mark)) >= 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert _processes(mark) == []
            again = await started.run(_request(workspace, "/bin/sh", "-c", "echo on"))
            assert again.stdout == b"on\n"

        self._started(backend, check)

    def test_closing_ends_all_commands_and_refuses_more(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        mark = self._mark()

        async def check(started: ExecutionBackend) -> None:
            request = _request(workspace, "/bin/sh", "-c", f"{_DAEMON} sleep 300", env=mark)
            running = [asyncio.create_task(started.run(request)) for _ in range(3)]
            await _until(lambda: len(_processes(mark)) >= 9)
            await started.close()
            assert _processes(mark) == []
            for result in await asyncio.gather(*running):
                assert result.exit_code is None
            late = await started.run(_request(workspace, "/bin/true"))
            assert late.error, "a backend that is closed says so"
            await started.close()

        self._started(backend, check)

    def test_starting_twice_is_harmless(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        async def check(started: ExecutionBackend) -> CommandResult:
            await started.start()
            return await started.run(_request(workspace, "/bin/true"))

        assert self._started(backend, check).exit_code == 0

    def test_it_keeps_the_beginning_and_the_end_of_much_output(
        self, backend: ExecutionBackend, workspace: Workspace
    ) -> None:
        result = self._shell(backend, workspace, "seq 100000; seq 5 >&2", limits=Limits(output=10_000))
        assert result.truncated
        assert result.stdout.startswith(b"1\n2\n3\n")
        assert result.stdout.endswith(b"\n99999\n100000\n")
        assert str(result.stdout_dropped).encode() in result.stdout, "the gap says how much is missing"
        assert (result.stderr, result.stderr_dropped) == (b"1\n2\n3\n4\n5\n", 0)

    def test_output_of_the_size_of_the_limit_is_whole(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        result = self._shell(backend, workspace, "head -c 10000 /dev/zero", limits=Limits(output=10_000))
        assert (len(result.stdout), result.truncated) == (10_000, False)

    def test_endless_output_ends_with_the_time(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        result = self._shell(backend, workspace, "yes & yes >&2", limits=Limits(wall_time=1, output=10_000))
        assert result.timed_out
        assert result.stdout_dropped > 0
        assert result.stderr_dropped > 0
        assert len(result.stdout) + len(result.stderr) < 20_400

    @pytest.mark.parametrize("name", _PAST_LIMITS)
    def test_it_ends_a_command_at_its_limits(self, backend: ExecutionBackend, workspace: Workspace, name: str) -> None:
        if name not in self.limits:
            pytest.skip(f"this backend does not keep the limit {name}")
        value, past, _ = _PAST_LIMITS[name]
        limits = replace(Limits(wall_time=45), **{name: value})
        mark = self._mark()
        result = self._shell(backend, workspace, past, limits=limits, env=mark)
        assert result.limit == name, result
        assert not result.timed_out
        assert result.exit_code != 0
        assert _processes(mark) == []

    def test_a_command_below_its_limits_is_left_alone(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        requests = [
            _request(workspace, "/bin/sh", "-c", below, limits=replace(Limits(), **{name: value}))
            for name, (value, _, below) in _PAST_LIMITS.items()
        ]
        for name, result in zip(_PAST_LIMITS, self._all(backend, requests), strict=True):
            assert (result.exit_code, result.limit, result.error) == (0, None, None), (name, result)

    def test_commands_side_by_side_do_not_mix(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        async def check(started: ExecutionBackend) -> list[CommandResult]:
            texts = [
                f"for i in $(seq 100); do echo o{number}; echo e{number} >&2; done; cat; exit {number}"
                for number in range(_AT_ONCE)
            ]
            requests = [
                _request(workspace, "/bin/sh", "-c", text, stdin=f"i{number}".encode())
                for number, text in enumerate(texts)
            ]
            return list(await asyncio.gather(*map(started.run, requests)))

        for number, result in enumerate(self._started(backend, check)):
            assert result.exit_code == number
            assert result.stdout == f"o{number}\n".encode() * 100 + f"i{number}".encode()
            assert result.stderr == f"e{number}\n".encode() * 100

    def test_a_slow_command_does_not_hold_up_a_quick_one(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        async def check(started: ExecutionBackend) -> None:
            slow = asyncio.create_task(started.run(_request(workspace, "/bin/sh", "-c", "sleep 300")))
            quick = await started.run(_request(workspace, "/bin/sh", "-c", "echo quick"))
            assert quick.stdout == b"quick\n"
            assert not slow.done()
            slow.cancel()
            await asyncio.wait([slow])

        self._started(backend, check)

    def test_a_backend_without_live_processes_says_so(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        if _has_live_processes(backend):
            pytest.skip("this backend has them")

        async def check(started: ExecutionBackend) -> None:
            with pytest.raises(ExecutionError, match=re.escape(backend.name)):
                await started.start_process(_request(workspace, "/bin/cat"), on_output=_Output())

        self._started(backend, check)

    def test_a_process_answers_what_is_written(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        async def check(process: LiveProcess, output: _Output) -> CommandResult:
            await _until(partial(output.is_, 1, b"before\n"))
            for number in range(3):
                expected = output.streams[1] + b"%d\n" % number
                await process.write(b"%d\n" % number)
                await _until(partial(output.is_, 1, expected))
            assert not process.ended
            process.close_stdin()
            result = await process.wait()
            assert process.ended
            assert output.streams[2] == b"end\n"
            with pytest.raises(ExecutionError):
                await process.write(b"too late")
            return result

        result = self._live(backend, workspace, "cat; echo end >&2; exit 3", check, stdin=b"before\n")
        assert (result.exit_code, result.signal, result.error) == (3, None, None)
        assert (result.stdout, result.stderr) == (b"", b""), "on_output has got all of it"

    def test_all_output_of_a_process_comes_before_its_end(
        self, backend: ExecutionBackend, workspace: Workspace
    ) -> None:
        async def check(process: LiveProcess, output: _Output) -> CommandResult:
            process.pause_output()
            process.resume_output()
            result = await process.wait()
            assert output.streams[1] == b"".join(b"%d\n" % number for number in range(1, 200_001))
            return result

        assert self._live(backend, workspace, "seq 200000", check).exit_code == 0

    def test_a_terminal_is_one(self, backend: ExecutionBackend, workspace: Workspace) -> None:
        async def check(process: LiveProcess, output: _Output) -> CommandResult:
            await process.write(b"typed\n")
            await _until(lambda: b"ready" in output.streams[1])
            assert b"got typed\r\n" in output.streams[1]
            assert output.streams[2] == b""
            return await _interrupted(process)

        text = "test -t 0 && test -t 1 && test -t 2 && read line && echo got $line > /dev/tty && echo ready && sleep 60"
        result = self._live(backend, workspace, text, check, tty=True)
        assert (result.exit_code, result.signal) in ((None, 2), (130, None)), result

    @pytest.mark.parametrize("tty", [False, True])
    @pytest.mark.parametrize("way", ["exit", "terminate", "kill", "close", "wall_time", "backend"])
    def test_nothing_outlives_a_process(
        self, backend: ExecutionBackend, workspace: Workspace, way: str, tty: bool
    ) -> None:
        mark = self._mark()
        deaf = "trap '' TERM; " if way == "kill" else ""

        async def check(process: LiveProcess, output: _Output) -> CommandResult:
            await _until(lambda: b"up" in output.streams[1] and len(_processes(mark)) >= 2)
            if way == "exit":
                await process.write(b"go\n")
            elif way in ("terminate", "kill"):
                result = await process.terminate(0.2 if way == "kill" else 20)
                assert result.signal == (9 if way == "kill" else 15)
            elif way == "close":
                process.close()
            elif way == "backend":
                await backend.close()
            result = await process.wait()
            assert _processes(mark) == []
            assert result.timed_out == (way == "wall_time")
            return result

        text = f"{deaf}{_DAEMON} echo up; read line"
        limits = Limits(wall_time=3 if way == "wall_time" else 60)
        result = self._live(backend, workspace, text, check, tty=tty, env=mark, limits=limits)
        assert (result.exit_code == 0) == (way == "exit")

    def _shell(self, backend: ExecutionBackend, workspace: Workspace, text: str, **more: Any) -> CommandResult:
        return self._one(backend, _request(workspace, "/bin/sh", "-c", text, **more))

    def _one(self, backend: ExecutionBackend, request: CommandRequest) -> CommandResult:
        return self._all(backend, [request])[0]

    def _all(self, backend: ExecutionBackend, requests: list[CommandRequest]) -> list[CommandResult]:
        """Run the commands one after another in one start of the backend."""

        async def run(started: ExecutionBackend) -> list[CommandResult]:
            return [await started.run(request) for request in requests]

        results = self._started(backend, run)
        for result in results:
            outcomes = [value for value in (result.exit_code, result.signal, result.error) if value is not None]
            assert len(outcomes) == 1, f"one of exit code, signal and error says how it ended: {result}"
        return results

    def _live(
        self,
        backend: ExecutionBackend,
        workspace: Workspace,
        text: str,
        use: Callable[[LiveProcess, _Output], Awaitable[_Result]],
        *,
        tty: bool = False,
        **more: Any,
    ) -> _Result:
        if not _has_live_processes(backend):
            pytest.skip("this backend has no processes that live on")

        async def run(started: ExecutionBackend) -> _Result:
            output = _Output()
            request = _request(workspace, "/bin/sh", "-c", text, **more)
            return await use(await started.start_process(request, tty=tty, on_output=output), output)

        return self._started(backend, run)

    def _started(self, backend: ExecutionBackend, use: Callable[[ExecutionBackend], Awaitable[_Result]]) -> _Result:
        async def run() -> _Result:
            await backend.start()
            try:
                return await use(backend)
            finally:
                await backend.close()

        return asyncio.run(run())

    def _mark(self) -> dict[str, str]:
        if not self.local:
            pytest.skip("what is left of commands cannot be looked for: they run elsewhere")
        return {"CONTRACT_MARK": uuid.uuid4().hex}


class _Output:
    """What came so far, by stream."""

    def __init__(self) -> None:
        self.streams = {1: b"", 2: b""}

    def __call__(self, stream: int, data: bytes) -> None:
        self.streams[stream] += data

    def is_(self, stream: int, expected: bytes) -> bool:
        return self.streams[stream] == expected


def _has_live_processes(backend: ExecutionBackend) -> bool:
    return type(backend).start_process is not ExecutionBackend.start_process


def _request(workspace: Workspace, *argv: str, env: Mapping[str, str] | None = None, **more: Any) -> CommandRequest:
    given: dict[str, Any] = {
        "cwd": str(workspace.work_dir),
        "limits": Limits(wall_time=60),
        "root": str(workspace.root),
        "writable": workspace.writable,
        "readable": workspace.readable,
        **more,
    }
    usual = {"PATH": _PATH, "HOME": str(workspace.home_dir), "TMPDIR": str(workspace.tmp_dir)}
    return CommandRequest(argv, env={**usual, **(env or {})}, **given)


def _processes(mark: dict[str, str]) -> list[int]:
    """Living processes (zombies have no environment any more) that inherited ``mark``."""
    ((name, value),) = mark.items()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if f"{name}={value}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


async def _interrupted(process: LiveProcess) -> CommandResult:
    """How it ended after Ctrl-C at its terminal, pressed again while it goes on: a shell that is between two commands
    may miss one."""
    ended = asyncio.ensure_future(process.wait())
    while not ended.done():
        with contextlib.suppress(ExecutionError):  # it has ended just now
            await process.write(b"\x03")
        await asyncio.wait([ended], timeout=1)
    return ended.result()


async def _until(condition: Callable[[], object], within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "the command does not come up"
        await asyncio.sleep(0.01)
