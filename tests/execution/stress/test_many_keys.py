"""Many keys run commands at once: nothing is mixed up, and nothing is used up."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, IsolationError
from flink_skills.execution import CommandResult, IsolationLevel, Workspace, WorkspaceManager
from flink_skills.execution.backends import LocalBackend
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner
from tests.kit.waiting import until

from .figures import Figures
from .ground import COMMAND_USER
from .marked import Mark, descendants, zombies_below

SLOTS = 8


@pytest.fixture(params=["landlock", "bwrap"])
async def shell(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[ShellRunner]:
    """What the turns of a job share, at whatever level this machine gives to the backend."""
    await _fill_pool()
    workspaces = WorkspaceManager(folder / "job", user=COMMAND_USER)
    options = {
        "skills.shell.backend": request.param,
        "skills.shell.min-isolation": "HYGIENE",
        "skills.shell.max-concurrent": SLOTS,
        "skills.shell.max-timeout": "1 min",
    }
    try:
        shell = await ShellRunner.start(SkillConfig(options), workspaces)
    except IsolationError as error:
        pytest.skip(str(error))
    yield shell
    await shell.close()
    workspaces.close()
    assert not (folder / "job").exists()


async def _fill_pool() -> None:
    """Let the event loop have all threads that it keeps for calls that block, so that none looks like a leak."""
    loop, count = asyncio.get_running_loop(), 4
    loop.set_default_executor(ThreadPoolExecutor(count))
    together = threading.Barrier(count)
    await asyncio.gather(*(asyncio.to_thread(together.wait) for _ in range(count)))


class Key:
    """One key with its workspace, whose commands run one after another."""

    def __init__(self, number: int, shell: ShellRunner, mark: Mark) -> None:
        self.number = number
        self.name = f"key-{number:02d}"
        self.workspace: Workspace = shell.workspaces.for_key(self.name)
        self.neighbour: Key | None = None
        self.shell = shell
        self.mark = mark
        self.chance = random.Random(number)
        self.done: Counter[str] = Counter()

    async def run(self, text: str, **more: object) -> CommandResult:
        text = f": {self.mark.text}; {text}"
        return await self.shell.run(text, workspace=self.workspace, **more)  # type: ignore[arg-type]

    async def move_in(self) -> None:
        result = await self.run(f"echo {self.name} >identity; echo 0 >count; cat identity")
        assert result.stdout == f"{self.name}\n".encode(), result

    async def until(self, end: float) -> None:
        turns: list[Callable[[], Awaitable[None]]] = [
            *(self.counts, self.counts, self.echoes, self.floods, self.fails, self.leaves_a_daemon),
            *(self.takes_too_long, self.is_cancelled, self.cannot_be_run, self.looks_over_the_fence),
        ]
        turn = turns[self.number % len(turns)]  # so that each kind has a turn however slow the machine is
        while time.monotonic() < end:
            await turn()
            self.done[turn.__name__] += 1
            turn = self.chance.choice(turns)

    async def counts(self) -> None:
        result = await self.run('read n <count; n=$((n + 1)); echo $n >count; echo "$(cat identity) $n"')
        assert result.stdout == f"{self.name} {self.done['counts'] + 1}\n".encode(), result

    async def echoes(self) -> None:
        text = f"for i in {{1..200}}; do echo {self.name} out; echo {self.name} err >&2; done; cat"
        result = await self.run(text, stdin=f"{self.name} in".encode())
        assert result.stdout == f"{self.name} out\n".encode() * 200 + f"{self.name} in".encode()
        assert result.stderr == f"{self.name} err\n".encode() * 200

    async def floods(self) -> None:
        result = await self.run(f"yes {self.name} | head -c 1000000")
        assert result.stdout_dropped == 1_000_000 - 65_536
        head, _, _ = result.stdout.partition(b"\n[")
        assert head == (f"{self.name}\n".encode() * len(head))[: len(head)]

    async def fails(self) -> None:
        code = self.chance.randrange(1, 120)
        result = await self.run(f"cat identity >&2; exit {code}")
        assert (result.exit_code, result.stderr) == (code, f"{self.name}\n".encode())

    async def leaves_a_daemon(self) -> None:
        result = await self.run(f"setsid {self.mark.sleep} & cat identity")
        assert (result.exit_code, result.stdout) == (0, f"{self.name}\n".encode())

    async def takes_too_long(self) -> None:
        result = await self.run(f"cat identity; {self.mark.sleep}", timeout=0.3)
        assert result.timed_out
        assert result.stdout in (b"", f"{self.name}\n".encode())

    async def is_cancelled(self) -> None:
        # While it waits for a slot, starts, or runs.
        task = asyncio.ensure_future(self.run(f"setsid {self.mark.sleep} & {self.mark.sleep}"))
        await asyncio.wait([task], timeout=self.chance.uniform(0, 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def cannot_be_run(self) -> None:
        with pytest.raises(ConfigError, match="NUL"):
            await self.run("echo \0")
        result = await self.shell.run(("no-such-program",), workspace=self.workspace)
        assert result.exit_code == 127

    async def looks_over_the_fence(self) -> None:
        assert self.neighbour is not None
        result = await self.run(f"cat identity {self.neighbour.workspace.work_dir / 'identity'}")
        own, theirs = f"{self.name}\n".encode(), f"{self.neighbour.name}\n".encode()
        if self.shell.level >= IsolationLevel.LANDLOCK_PARTIAL:
            assert (result.exit_code, result.stdout) == (1, own)
        else:
            assert (result.exit_code, result.stdout) == (0, own + theirs)


@pytest.mark.parametrize(
    ("count", "seconds"),
    [pytest.param(16, 3.0, id="sixteen"), pytest.param(64, 60.0, id="sixty-four", marks=pytest.mark.nightly)],
)
async def test_many_keys_at_once(shell: ShellRunner, count: int, seconds: float) -> None:
    mark = Mark()
    keys = [Key(number, shell, mark) for number in range(count)]
    for key, neighbour in zip(keys, keys[1:] + keys[:1], strict=True):
        key.neighbour = neighbour
    await asyncio.gather(*(key.move_in() for key in keys))
    backend = shell.backend
    assert isinstance(backend, LocalBackend)
    launcher = backend.launcher_pid
    assert launcher is not None
    backend.end_idle()
    await until(lambda: descendants(launcher) == [], "the supervisors to end", within=5)
    before = Figures.now(launcher)

    end = time.monotonic() + seconds
    # Without slots it would wait forever.
    await asyncio.wait_for(asyncio.gather(*(key.until(end) for key in keys)), seconds + 60)

    left = mark.processes()
    mark.end_all()
    assert left == []
    assert backend.launcher_pid == launcher, "the launcher died under it"
    backend.end_idle()
    await until(lambda: descendants(launcher) == [], "the supervisors to end", within=5)
    assert zombies_below(os.getpid()) == []
    await until(
        lambda: Figures.now(launcher).within(before),
        lambda: f"not more than {before}: {Figures.now(launcher)}",
        within=5,
    )
    done = sum((key.done for key in keys), Counter[str]())
    print(f"{sum(done.values())} commands: {dict(done)}")
    assert all(key.done for key in keys), "a key had no turn"
    assert len(done) == 9
    for key in keys:
        assert (key.workspace.work_dir / "count").read_text() == f"{key.done['counts']}\n"
        assert (key.workspace.work_dir / "identity").read_text() == f"{key.name}\n"
    await check_slots(keys)


async def check_slots(keys: list[Key]) -> None:
    """No slot was lost, or there would never be as many commands at once; none was made up, or there would be more."""
    text = "echo >here; while ! [ -e go ]; do sleep 0.05; done; rm go here"
    running = [asyncio.create_task(key.run(text)) for key in keys[: SLOTS + 4]]

    def here() -> list[Key]:
        return [key for key in keys if (key.workspace.work_dir / "here").exists()]

    await until(lambda: len(here()) >= SLOTS, lambda: f"{SLOTS} commands at once; there are {len(here())}", within=20)
    # One slot is free for each that goes, and only then.
    for _ in range(SLOTS + 4):
        at_once = here()
        assert len(at_once) <= SLOTS
        (at_once[0].workspace.work_dir / "go").touch()
        await until(lambda gone=at_once[0]: gone not in here(), "a command to end", within=20)  # type: ignore[misc]
        await until(lambda: here() or all(task.done() for task in running), "the next command", within=20)
    results = await asyncio.gather(*running)
    assert [result.exit_code for result in results] == [0] * len(running)
