"""What a command gets and what comes back."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import BackendSettings, CommandRequest, Limits
from flink_skills.execution.backends import HygieneBackend, LocalBackend
from tests.kit.dispositions import SHOW, ignored_or_blocked
from tests.kit.waiting import MARGIN

from .conftest import Shell, processes_with

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_exit_code_and_both_outputs(sh: Shell) -> None:
    result = await sh("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.signal, result.error) == (3, None, None)
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert not result.timed_out
    assert not result.truncated
    assert 0 < result.duration < MARGIN


@pytest.mark.parametrize("code", [0, 1, 126, 127, 255])
async def test_exit_codes_of_commands_are_never_taken_for_a_failed_set_up(sh: Shell, code: int) -> None:
    result = await sh(f"exit {code}")
    assert (result.exit_code, result.error) == (code, None)


async def test_a_signal_is_kept_apart_from_an_exit_code(sh: Shell) -> None:
    result = await sh("kill -SEGV $$")
    assert (result.exit_code, result.signal) == (None, 11)
    shell_style = await sh("exit 137")
    assert (shell_style.exit_code, shell_style.signal) == (137, None)


async def test_a_set_up_that_fails_is_an_error_that_names_the_step(backend: LocalBackend) -> None:
    result = await backend.run(CommandRequest(("/bin/true",), cwd="/no/such/folder"))
    assert (result.exit_code, result.signal) == (None, None)
    assert result.error is not None
    assert "/no/such/folder" in result.error


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("/no/such/program",), 127, b"/no/such/program: not found"),
        (("no-such-program",), 127, b"no-such-program: not found"),
        (("/etc/passwd",), 126, b"/etc/passwd: Permission denied"),
    ],
)
async def test_programs_that_are_not_there_or_are_none_end_as_in_a_shell(
    backend: LocalBackend, argv: tuple[str, ...], code: int, said: bytes
) -> None:
    result = await backend.run(CommandRequest(argv, cwd="/"))
    assert (result.exit_code, result.error) == (code, None)
    assert said in result.stderr


async def test_program_is_looked_up_in_the_path_of_the_command(backend: LocalBackend, tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\necho hello $1\n")
    program.chmod(0o755)
    result = await backend.run(
        CommandRequest(("greet", "you"), cwd="/", env={"PATH": str(tmp_path)}, readable=(str(tmp_path),))
    )
    assert result.stdout == b"hello you\n"


async def test_large_stdin_and_large_stdout_at_once(sh: Shell) -> None:
    data = os.urandom(1 << 20) * 8
    result = await sh("tee /dev/stderr | sha256sum", stdin=data)
    assert result.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert result.stderr_dropped == len(data) - sh.request("true").limits.output


async def test_a_command_that_does_not_read_its_stdin(sh: Shell) -> None:
    result = await sh("exec <&-; echo done", stdin=b"x" * (4 << 20))
    assert (result.exit_code, result.stdout) == (0, b"done\n")
    slow = await sh("sleep 0.1; head -c 3", stdin=b"x" * (4 << 20))
    assert (slow.exit_code, slow.stdout) == (0, b"xxx")


async def test_stdin_is_empty_without_input(sh: Shell) -> None:
    assert (await sh("cat; echo end")).stdout == b"end\n"


async def test_environment_is_exactly_what_was_given(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "secret-of-the-worker")
    fresh = HygieneBackend()
    await fresh.start()
    try:
        request = CommandRequest(("/usr/bin/env",), cwd="/", env={"ONE": "1", "ODD": "\udcff=\n"})
        result = await fresh.run(request)
        assert fresh.launcher_pid is not None
        launcher = psutil.Process(fresh.launcher_pid).environ()
    finally:
        await fresh.close()
    assert result.stdout == b"ONE=1\nODD=\xff=\n\n"
    assert set(launcher) == {"PATH", "LANG"}


async def test_no_descriptor_of_the_worker_is_open_in_a_command(sh: Shell, tmp_path: Path) -> None:
    secret = tmp_path / "canary"
    secret.write_text("secret-of-the-worker")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        fresh = HygieneBackend()
        await fresh.start()
        try:
            script = (
                "import os\n"
                "for fd in range(256):\n"
                "    try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n"
                "    except OSError: pass\n"
            )
            result = await fresh.run(CommandRequest((sys.executable, "-c", script), cwd="/"))
        finally:
            await fresh.close()
    lines = result.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    assert "canary" not in result.stdout.decode()


async def test_signals_have_their_default_effect(sh: Shell) -> None:
    # Python ignores SIGPIPE; a pipeline in a command relies on it.
    result = await sh("yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert result.stdout == b"y\n141\n"


async def test_signals_that_the_worker_ignores_or_blocks_have_their_default_effect() -> None:
    ignored, blocked = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1), {signal.SIGQUIT, signal.SIGCHLD}
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    fresh = HygieneBackend()
    try:
        await fresh.start()
        result = await fresh.run(CommandRequest(SHOW, cwd="/"))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        await fresh.close()
    assert ignored_or_blocked(result.stdout.decode()) == set()


async def test_files_of_a_command_are_private(sh: Shell, tmp_path: Path) -> None:
    await sh("echo x > made")
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


async def test_a_shell_text_of_a_megabyte_of_variables(sh: Shell) -> None:
    env = {f"BIG_{n}": "v" * 100_000 for n in range(8)}
    assert (await sh("echo ${#BIG_7}", env=env)).stdout == b"100000\n"


async def test_not_started_with_too_large_arguments(backend: LocalBackend) -> None:
    result = await backend.run(CommandRequest(("/bin/true", "x" * 10_000_000), cwd="/"))
    assert result.error is not None
    assert "Argument list too long" in result.error


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": ()},
        {"argv": ("",)},
        {"cwd": "relative"},
        {"limits": Limits(wall_time=0.0)},
        {"limits": Limits(wall_time=float("nan"))},
        {"argv": ("a\0b",)},
        {"env": {"A": "\0"}},
        {"env": {"A=B": "c"}},
        {"writable": ("relative",)},
    ],
)
async def test_requests_that_nothing_could_run_are_refused(wrong: dict[str, object]) -> None:
    good: dict[str, object] = {"argv": ("/bin/true",), "cwd": "/"}
    CommandRequest(**good)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        CommandRequest(**{**good, **wrong})  # type: ignore[arg-type]


async def test_an_interpreter_that_is_no_interpreter_is_named() -> None:
    for python in ("/no/such/python", "/bin/false"):
        backend = HygieneBackend(BackendSettings(python=python))
        with pytest.raises(ExecutionError, match=python):
            await backend.start()
        result = await backend.run(CommandRequest(("/bin/true",), cwd="/"))
        assert result.error is not None
        assert python in result.error
        await backend.close()


async def test_after_close_a_command_is_refused(tmp_path: Path) -> None:
    backend = HygieneBackend()
    await backend.start()
    await backend.start()
    await backend.close()
    await backend.close()
    result = await backend.run(CommandRequest(("/bin/true",), cwd="/"))
    assert result.error == "the execution backend is closed"


UNPRIVILEGED = """
import asyncio, os
from flink_skills.execution import CommandRequest, create_backend

async def main():
    backend = create_backend("hygiene")
    await backend.start()
    text = "id -u; (setsid sleep 60 &); sleep 60 & ulimit -c; ulimit -n 1000 || echo no"
    env = {"PATH": os.defpath, "TEST_MARK": os.environ["TEST_MARK"]}
    print(await backend.run(CommandRequest(("/bin/sh", "-c", text), cwd="/", env=env)))
    await backend.close()

asyncio.run(main())
"""


def interpreter_for_everybody() -> str | None:
    """This interpreter, or the system's of the same version, if other users may run it."""
    for name in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        path = Path(name).resolve()
        if path.exists() and all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents)):
            return name
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_works_for_an_unprivileged_user() -> None:
    python = interpreter_for_everybody()
    if python is None:
        pytest.skip("no interpreter that other users may run")
    package = str(Path(__file__).parents[2])
    mark = os.urandom(8).hex()
    process = await asyncio.create_subprocess_exec(
        python,
        "-c",
        UNPRIVILEGED,
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        env={
            "PYTHONPATH": os.pathsep.join([package, *(path for path in sys.path if "site-packages" in path)]),
            "PATH": os.defpath,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TEST_MARK": mark,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    if b"Permission denied" in err:
        pytest.skip("the packages are not readable for other users")
    assert b"exit_code=0" in out, err.decode()
    assert b"stdout=b'65534\\n0\\nno\\n'" in out, out.decode()
    assert processes_with(f"TEST_MARK={mark}") == []


async def test_folders_of_the_path_that_are_closed_do_not_make_what_is_missing_forbidden(
    sh: Shell, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    own = tmp_path / "own"
    closed.mkdir()
    own.mkdir()
    path = f"{closed}:{os.environ['PATH']}:{own}"
    text = "python3 -c 'import subprocess; subprocess.run([\"no-such-program\"])'"
    result = await sh(f"{text}; echo $PATH", env={"PATH": path}, writable=(str(own),))
    assert b"FileNotFoundError" in result.stderr
    kept = result.stdout.decode().strip().split(":")
    assert "/usr/bin" in kept
    assert str(own) in kept
    assert (str(closed) in kept) == isinstance(sh.backend, HygieneBackend)
