"""The backend ``bwrap``, beyond the contract of all backends.

Examines the internals of execution.backends.bwrap on purpose.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from flink_skills.errors import ExecutionError
from flink_skills.execution import BackendSettings, CommandRequest, CommandResult, CommandUser, Limits
from flink_skills.execution.backends import BwrapBackend, bwrap
from tests.kit.waiting import MARGIN, until

from .conftest import processes_with

_USER = CommandUser(65534, 65534) if os.geteuid() == 0 else None
_FOLDERS = ("work", "out", "tmp")

# The tests share a backend, which lives in the event loop of the module.
pytestmark = pytest.mark.asyncio(loop_scope="module")
# In the second a private /tmp cannot be the workspace's.
in_both_places = pytest.mark.parametrize("root", ["/var/tmp", "/tmp"], indirect=True)


class Sandbox:
    """A workspace and a backend to run shell texts in it."""

    def __init__(self, backend: BwrapBackend, root: Path) -> None:
        self.backend = backend
        self.root = root
        self.mark = f"TEST_MARK={root.name}"

    def request(self, text: str, *, limits: Limits | None = None, **more: object) -> CommandRequest:
        name, _, value = self.mark.partition("=")
        request = CommandRequest(
            ("/bin/sh", "-c", text),
            cwd=str(self.root / "work"),
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", name: value},
            limits=limits or Limits(wall_time=30),
            root=str(self.root),
            writable=tuple(str(self.root / name) for name in _FOLDERS),
            readable=(str(self.root / "skills"),),
        )
        return replace(request, **more)  # type: ignore[arg-type]

    async def __call__(self, text: str, **more: object) -> CommandResult:
        return await self.backend.run(self.request(text, **more))  # type: ignore[arg-type]

    async def says(self, text: str) -> str:
        result = await self(text)
        assert (result.exit_code, result.error) == (0, None), result
        return result.stdout.decode().strip()


async def started(backend: BwrapBackend) -> BwrapBackend:
    try:
        await backend.start()
    except ExecutionError as error:
        pytest.skip(f"bwrap does not work here: {error}")
    return backend


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend() -> AsyncIterator[BwrapBackend]:
    # As in a worker, which inherits it from the JVM.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGQUIT])
    try:
        backend = await started(BwrapBackend(BackendSettings(user=_USER)))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    yield backend
    await backend.close()


@pytest.fixture
def root(request: pytest.FixtureRequest) -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="bwrap-", dir=getattr(request, "param", "/tmp")))
    found.chmod(0o711)
    for name in (*_FOLDERS, "skills"):
        (found / name).mkdir(mode=0o755)
        if _USER is not None and name in _FOLDERS:
            os.chown(found / name, _USER.uid, _USER.gid)
    (found / "skills" / "note").write_text("of a skill")
    yield found
    shutil.rmtree(found)


@pytest.fixture
def sh(backend: BwrapBackend, root: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(backend, root)
    yield sandbox
    assert processes_with(sandbox.mark) == []


@pytest.mark.parametrize(
    ("text", "exit_code", "signal"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("exit 127", 127, None),
        ("exit 137", 137, None),
        ("kill -9 $$", None, 9),
        ("kill -TERM $$", None, 15),
        ("kill -QUIT $$", None, 3),
        ("kill -SEGV $$", None, 11),
    ],
)
async def test_exit_codes_and_signals_are_the_commands_own(
    sh: Sandbox, text: str, exit_code: int | None, signal: int | None
) -> None:
    result = await sh(text)
    assert (result.exit_code, result.signal, result.error) == (exit_code, signal, None)


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("/no/such/program",), 127, b"/no/such/program: not found"),
        (("no-such-program",), 127, b"no-such-program: not found"),
        (("/etc/passwd",), 126, b"/etc/passwd: Permission denied"),
        (("/etc/shadow",), 127, b"/etc/shadow: not found"),
    ],
)
async def test_a_program_that_is_not_there_is_no_failed_set_up(
    sh: Sandbox, argv: tuple[str, ...], code: int, said: bytes
) -> None:
    result = await sh("", argv=argv)
    assert (result.exit_code, result.error) == (code, None)
    assert said in result.stderr


async def test_a_folder_that_is_not_visible_is_a_failed_set_up(sh: Sandbox) -> None:
    result = await sh("true", cwd="/home")
    assert result.exit_code is None
    assert result.error is not None
    assert "/home" in result.error


async def test_what_bubblewrap_says_is_the_error_of_a_failed_set_up(sh: Sandbox) -> None:
    broken = False

    class Breakable(BwrapBackend):
        def _operations(self) -> tuple[tuple[str, ...], ...]:
            return (*super()._operations(), *((("--no-such-option",),) if broken else ()))

    backend = await started(Breakable(sh.backend.settings))
    try:
        forged = await backend.run(sh.request("echo bwrap: forged >&2; exit 1"))
        broken = True
        result = await backend.run(sh.request("echo bwrap: forged >&2; exit 1"))
    finally:
        await backend.close()
    assert result.error is not None
    assert "no-such-option" in result.error
    assert (result.stdout, result.stderr) == (b"", b"")
    assert (forged.exit_code, forged.error, forged.stderr) == (1, None, b"bwrap: forged\n")


async def test_input_output_and_variables(sh: Sandbox) -> None:
    result = await sh("cat; echo err >&2; echo $ODD", stdin=b"in" * 500_000, env={"PATH": "/bin", "ODD": "\udcff="})
    assert result.exit_code == 0
    assert result.stderr == b"err\n"
    assert result.stdout.startswith(b"inin")
    assert result.stdout.endswith(b"\xff=\n")


async def test_a_command_may_clean_up_when_its_time_is_over(sh: Sandbox) -> None:
    text = "trap 'echo cleaned; exit 5' TERM; while :; do sleep 0.02; done"
    result = await sh(text, limits=Limits(wall_time=0.5))
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 5, b"cleaned\n")


async def test_a_command_that_takes_no_notice_of_its_time_is_ended(sh: Sandbox) -> None:
    result = await sh("trap '' TERM; (trap '' TERM; sleep 300) & sleep 300", limits=Limits(wall_time=1.0))
    assert (result.timed_out, result.signal) == (True, 9)
    assert result.duration < 1.0 + MARGIN


async def test_daemons_end_with_the_command(sh: Sandbox) -> None:
    result = await sh("for n in 1 2 3; do setsid sh -c 'sleep 300 & sleep 300' & done; sleep 0.1; echo done")
    assert (result.exit_code, result.stdout) == (0, b"done\n")
    assert processes_with(sh.mark) == []


async def test_cancelling_ends_all(sh: Sandbox) -> None:
    task = asyncio.create_task(sh("sleep 300 & setsid sleep 300"))
    await until(lambda: len(processes_with(sh.mark)) >= 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_with(sh.mark) == []


async def test_to_kill_everybody_ends_the_command_and_nothing_outside(sh: Sandbox) -> None:
    assert (await sh("kill -9 -1; echo still here")).error is None
    assert (await sh("trap '' TERM; kill -TERM -1; kill -TERM 0; echo still here")).stdout == b"still here\n"
    assert (await sh("exit 4")).exit_code == 4


async def test_processes_are_counted_without_those_of_bubblewrap(sh: Sandbox) -> None:
    five = "for n in 1 2 3 4; do sleep 0.5 & done; wait; echo ok"
    assert (await sh(five, limits=Limits(processes=5))).stdout == b"ok\n"
    six = "for n in 1 2 3 4 5; do sleep 30 & done; wait"
    assert (await sh(six, limits=Limits(processes=5))).limit == "processes"


async def test_a_fork_bomb_is_ended_at_once(sh: Sandbox) -> None:
    # One that goes on when the kernel refuses it more: a shell's gives up, on a busy machine between two looks.
    bomb = "import os, signal\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        signal.pause()"
    result = await sh(f"exec python3 -c '{bomb}'", limits=Limits(processes=64))
    assert result.limit == "processes"
    assert processes_with(sh.mark) == []


@pytest.mark.parametrize(
    ("text", "limits", "limit"),
    [
        ("x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 30", Limits(memory=100 << 20), "memory"),
        ("while :; do :; done", Limits(cpu_time=0.3), "cpu_time"),
        ("head -c 2000000 /dev/zero > big", Limits(file_size=1 << 20), "file_size"),
        ("n=0; while :; do n=$((n+1)); : > f$n; done", Limits(workspace_files=50), "workspace_files"),
        ("head -c 9000000 /dev/zero > big; sleep 30", Limits(workspace_bytes=4 << 20), "workspace_bytes"),
    ],
)
@in_both_places
async def test_limits_hold(sh: Sandbox, text: str, limits: Limits, limit: str) -> None:
    assert (await sh(text, limits=limits)).limit == limit


async def test_a_workspace_that_is_full_can_be_emptied(sh: Sandbox) -> None:
    limits = Limits(workspace_bytes=1 << 20)
    assert (await sh("head -c 3000000 /dev/zero > big", limits=limits)).limit == "workspace_bytes"
    assert (await sh("rm big", limits=limits)).exit_code == 0
    assert (await sh("echo x > small", limits=limits)).exit_code == 0


@in_both_places
async def test_what_is_there_and_what_is_not(sh: Sandbox, root: Path) -> None:
    assert set((await sh.says("ls /")).split()) <= {
        *("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "proc", "sbin", "srv", "sys", "tmp", "usr"),
        # Where this workspace and this Python are.
        *(Path(path).resolve().parts[1] for path in (root, sys.prefix, sys.base_prefix)),
    }
    for path in ("/etc/shadow", "/home", "/run", "/var/run", "/var/lib", "/etc/hosts", "/etc/resolv.conf"):
        assert (await sh(f"ls -d {path}")).exit_code == 2, path
    assert await sh.says("ls /dev") == "\n".join(
        sorted(("fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"))
    )
    assert sorted((await sh.says(f"ls {root}")).split()) == sorted([*_FOLDERS, "skills"])
    assert await sh.says("cat ../skills/note") == "of a skill"


async def test_links_of_the_system_are_the_same_inside(sh: Sandbox) -> None:
    for path in ("/bin", "/lib", "/lib64", "/sbin", "/etc/localtime"):
        if Path(path).is_symlink():
            assert await sh.says(f"readlink {path}") == os.readlink(path)


@in_both_places
async def test_nothing_outside_of_the_workspace_can_be_written(sh: Sandbox, root: Path) -> None:
    for path in ("/new", "/dev/new", "/etc/new", "/usr/new", f"{root}/new", f"{root}/skills/new", "/proc/new"):
        assert (await sh(f": > {path}")).exit_code == 2, path
    assert (await sh("echo x > ../out/result; echo x > /dev/null; echo x > /dev/shm/x")).exit_code == 0
    assert (root / "out" / "result").read_text() == "x\n"


@in_both_places
async def test_temporary_files_are_private_and_few_or_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This Python, which may be somewhere in /tmp itself, is left out.
    monkeypatch.setattr(bwrap, "system_paths", lambda network: ("/usr", "/bin", "/lib", "/lib64"))
    backend = await started(BwrapBackend(BackendSettings(user=_USER)))
    sh = Sandbox(backend, root)
    name = f"/tmp/{root.name}-file"
    try:
        assert (await sh(f"echo x > {name}")).exit_code == 0
        assert not Path(name).exists()
        if root.is_relative_to("/tmp"):
            # Memory of the machine, and therefore little of it.
            assert (await sh("head -c 100000000 /dev/zero > /tmp/big")).exit_code != 0
        else:
            assert (root / "tmp" / f"{root.name}-file").exists()
            result = await sh("head -c 9000000 /dev/zero > /tmp/big", limits=Limits(workspace_bytes=4 << 20))
            assert result.limit == "workspace_bytes"
    finally:
        await backend.close()


@in_both_places
async def test_links_that_a_command_leaves_lead_nowhere(sh: Sandbox, root: Path) -> None:
    outside = Path(tempfile.mkdtemp(dir=root.parent))
    try:
        outside.chmod(0o777)
        (outside / "secret").write_text("secret")
        await sh(
            f"ln -s {outside} link; ln -s /oldroot{outside} ../tmp/link; rmdir ../tmp/x ; ln -s /oldroot/etc ../tmp/var"
        )
        assert (await sh("cat link/secret ../tmp/link/secret /tmp/link/secret /tmp/var/shadow")).stdout == b""
        assert [path.name for path in outside.iterdir()] == ["secret"]
    finally:
        shutil.rmtree(outside)


async def test_the_first_process_tells_nothing(sh: Sandbox) -> None:
    found = await sh("cat /proc/[12]/environ; for n in 1 2; do tr '\\0' ' ' < /proc/$n/cmdline; echo; done")
    assert b"=" not in found.stdout
    assert str(sh.root).encode() not in found.stdout
    assert len([name for name in (await sh.says("ls /proc")).split() if name.isdigit()]) == 4


async def test_namespaces_privileges_and_the_filter(sh: Sandbox) -> None:
    for name in ("user", "pid", "net", "ipc", "uts", "mnt"):
        assert await sh.says(f"readlink /proc/self/ns/{name}") != os.readlink(f"/proc/self/ns/{name}"), name
    status = dict(line.split(":", 1) for line in (await sh.says("cat /proc/self/status")).splitlines())
    assert {status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")
    uid = str(_USER.uid if _USER else os.geteuid())
    assert status["Uid"].split() == [uid] * 4
    assert (await sh("unshare -U true")).exit_code != 0


async def test_no_descriptor_but_the_three(sh: Sandbox) -> None:
    assert (await sh.says("exec ls /proc/self/fd")).split() == ["0", "1", "2", "3"]  # the last is that of ls


@in_both_places
async def test_what_may_be_read_besides(root: Path) -> None:
    shared = root / "shared"
    (shared / "data").mkdir(parents=True)
    shared.chmod(0o755)
    (shared / "data" / "file").write_text("granted")
    (shared / "other").write_text("not granted")
    (root / "link").symlink_to("shared/data")
    missing = str(root / "missing")
    settings = BackendSettings(user=_USER, readable=(str(root / "link"), missing))
    backend = await started(BwrapBackend(settings))
    try:
        sh = Sandbox(backend, root)
        assert await sh.says(f"cat {root}/link/file {root}/shared/data/file") == "grantedgranted"
        assert (await sh(f"cat {root}/shared/other")).exit_code == 1
        assert (await sh(f": > {root}/link/file")).exit_code == 2
    finally:
        await backend.close()


async def test_with_network_a_listener_of_the_machine_is_reached_and_without_it_is_not(sh: Sandbox, root: Path) -> None:
    allowed = await started(BwrapBackend(BackendSettings(user=_USER, network=True)))
    text = "/usr/bin/perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0) or die; "
    text += 'connect(S,pack_sockaddr_in($ARGV[0],inet_aton("127.0.0.1"))) or die\' '
    if not Path("/usr/bin/perl").exists():
        pytest.skip("there is no perl to connect with")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert (await allowed.run(sh.request(text + str(port)))).exit_code == 0
            assert (await sh(text + str(port))).exit_code != 0
        net = await allowed.run(sh.request("readlink /proc/self/ns/net"))
        assert net.stdout.decode().strip() == os.readlink("/proc/self/ns/net")
    finally:
        await allowed.close()


async def test_many_at_once_are_not_mixed_up(sh: Sandbox) -> None:
    results = await asyncio.gather(*(sh(f"echo {n}; exit {n}") for n in range(24)))
    assert [(result.exit_code, result.stdout) for result in results] == [(n, f"{n}\n".encode()) for n in range(24)]
