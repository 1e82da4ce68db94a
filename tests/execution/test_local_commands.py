"""What a command gets and what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import BackendSettings, CommandRequest, Limits
from flink_skills.execution.backends import HygieneBackend, LocalBackend
from flink_skills.execution.command_variables import base_environment, is_blocked, name_problem, passed_on
from tests.execution.conftest import Shell, processes_with
from tests.kit.dispositions import SHOW, ignored_or_blocked
from tests.kit.waiting import MARGIN, until


@pytest.mark.asyncio(loop_scope="module")
async def test_exit_code_and_both_outputs(sh: Shell) -> None:
    result = await sh("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.signal, result.error) == (3, None, None)
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert not result.timed_out
    assert not result.truncated
    assert 0 < result.duration < MARGIN


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("code", [0, 1, 126, 127, 255])
async def test_exit_codes_of_commands_are_never_taken_for_a_failed_set_up(sh: Shell, code: int) -> None:
    result = await sh(f"exit {code}")
    assert (result.exit_code, result.error) == (code, None)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_signal_is_kept_apart_from_an_exit_code(sh: Shell) -> None:
    result = await sh("kill -SEGV $$")
    assert (result.exit_code, result.signal) == (None, 11)
    shell_style = await sh("exit 137")
    assert (shell_style.exit_code, shell_style.signal) == (137, None)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_set_up_that_fails_is_an_error_that_names_the_step(backend: LocalBackend) -> None:
    result = await backend.run(CommandRequest(("/bin/true",), cwd="/no/such/folder"))
    assert (result.exit_code, result.signal) == (None, None)
    assert result.error is not None
    assert "/no/such/folder" in result.error


@pytest.mark.asyncio(loop_scope="module")
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


@pytest.mark.asyncio(loop_scope="module")
async def test_program_is_looked_up_in_the_path_of_the_command(backend: LocalBackend, tmp_path: Path) -> None:
    program = tmp_path / "greet"
    program.write_text("#!/bin/sh\necho hello $1\n")
    program.chmod(0o755)
    result = await backend.run(
        CommandRequest(("greet", "you"), cwd="/", env={"PATH": str(tmp_path)}, readable=(str(tmp_path),))
    )
    assert result.stdout == b"hello you\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_large_stdin_and_large_stdout_at_once(sh: Shell) -> None:
    data = os.urandom(1 << 20) * 8
    result = await sh("tee /dev/stderr | sha256sum", stdin=data)
    assert result.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert result.stderr_dropped == len(data) - sh.request("true").limits.output


@pytest.mark.asyncio(loop_scope="module")
async def test_a_command_that_does_not_read_its_stdin(sh: Shell) -> None:
    result = await sh("exec <&-; echo done", stdin=b"x" * (4 << 20))
    assert (result.exit_code, result.stdout) == (0, b"done\n")
    slow = await sh("sleep 0.1; head -c 3", stdin=b"x" * (4 << 20))
    assert (slow.exit_code, slow.stdout) == (0, b"xxx")


@pytest.mark.asyncio(loop_scope="module")
async def test_stdin_is_empty_without_input(sh: Shell) -> None:
    assert (await sh("cat; echo end")).stdout == b"end\n"


@pytest.mark.asyncio(loop_scope="module")
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


@pytest.mark.asyncio(loop_scope="module")
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


@pytest.mark.asyncio(loop_scope="module")
async def test_signals_have_their_default_effect(sh: Shell) -> None:
    # Python ignores SIGPIPE; a pipeline in a command relies on it.
    result = await sh("yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert result.stdout == b"y\n141\n"


@pytest.mark.asyncio(loop_scope="module")
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


@pytest.mark.asyncio(loop_scope="module")
async def test_files_of_a_command_are_private(sh: Shell, tmp_path: Path) -> None:
    await sh("echo x > made")
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_a_shell_text_of_a_megabyte_of_variables(sh: Shell) -> None:
    env = {f"BIG_{n}": "v" * 100_000 for n in range(8)}
    assert (await sh("echo ${#BIG_7}", env=env)).stdout == b"100000\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_not_started_with_too_large_arguments(backend: LocalBackend) -> None:
    result = await backend.run(CommandRequest(("/bin/true", "x" * 10_000_000), cwd="/"))
    assert result.error is not None
    assert "Argument list too long" in result.error


@pytest.mark.asyncio(loop_scope="module")
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


@pytest.mark.asyncio(loop_scope="module")
async def test_an_interpreter_that_is_no_interpreter_is_named() -> None:
    for python in ("/no/such/python", "/bin/false"):
        backend = HygieneBackend(BackendSettings(python=python))
        with pytest.raises(ExecutionError, match=python):
            await backend.start()
        result = await backend.run(CommandRequest(("/bin/true",), cwd="/"))
        assert result.error is not None
        assert python in result.error
        await backend.close()


@pytest.mark.asyncio(loop_scope="module")
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


@pytest.mark.asyncio(loop_scope="module")
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


@pytest.mark.asyncio(loop_scope="module")
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


LIMIT = Limits(output=10_000)


@pytest.mark.asyncio(loop_scope="module")
async def test_flood_is_capped_with_flat_memory(sh: Shell) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    result = await sh("yes & yes >&2", timeout=1.0)
    grown = process.memory_info().rss - before
    assert result.timed_out
    for text, dropped in ((result.stdout, result.stdout_dropped), (result.stderr, result.stderr_dropped)):
        assert text.startswith(b"y\ny\n")
        assert text.endswith(b"y\n")
        assert f"[... {dropped} bytes left out ...]".encode() in text
        assert len(text) < 65_536 + 100
        assert dropped > 10 << 20
    assert grown < 10 << 20


@pytest.mark.asyncio(loop_scope="module")
async def test_flood_leaves_the_event_loop_free(sh: Shell) -> None:
    flood = asyncio.create_task(sh("yes", timeout=1.0))
    beats = 0
    while not flood.done():
        await asyncio.sleep(0.001)
        beats += 1
    assert beats > 50


@pytest.mark.asyncio(loop_scope="module")
async def test_head_and_tail_are_kept(sh: Shell) -> None:
    result = await sh("seq 100000", limits=LIMIT)
    whole = b"".join(b"%d\n" % n for n in range(1, 100_001))
    head, tail = whole[:5000], whole[-5000:]
    assert result.stdout_dropped == len(whole) - 10_000
    assert result.stdout == head + b"\n[... %d bytes left out ...]\n" % result.stdout_dropped + tail
    assert result.truncated


@pytest.mark.asyncio(loop_scope="module")
async def test_output_of_exactly_the_limit_is_whole(sh: Shell) -> None:
    result = await sh("head -c 10000 /dev/zero", limits=LIMIT)
    assert (result.stdout, result.truncated) == (bytes(10_000), False)
    more = await sh("head -c 10001 /dev/zero", limits=LIMIT)
    assert more.stdout_dropped == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_one_line_of_twenty_megabytes(sh: Shell) -> None:
    result = await sh("head -c 20971520 /dev/zero | tr '\\0' x", limits=LIMIT)
    assert result.exit_code == 0
    assert result.stdout_dropped == 20_971_520 - 10_000
    assert set(result.stdout.partition(b"\n")[0]) == {ord("x")}


@pytest.mark.asyncio(loop_scope="module")
async def test_bytes_are_bytes(sh: Shell) -> None:
    result = await sh(r"printf 'a\0b\377\376c'")
    assert result.stdout == b"a\0b\xff\xfec"


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_kept_with_a_limit_of_zero(sh: Shell) -> None:
    result = await sh("echo hello", limits=Limits(output=0))
    assert result.stdout_dropped == 6
    assert b"hello" not in result.stdout


@pytest.mark.asyncio(loop_scope="module")
async def test_sixty_four_at_once_do_not_mix(sh: Shell) -> None:
    async def one(number: int) -> None:
        word = f"w{number:03d}"
        text = f"for i in $(seq 300); do echo {word}-out; echo {word}-err >&2; done; cat; exit {number}"
        result = await sh(text, stdin=f"{word}-in".encode())
        assert result.stdout == f"{word}-out\n".encode() * 300 + f"{word}-in".encode()
        assert result.stderr == f"{word}-err\n".encode() * 300
        assert result.exit_code == number

    await asyncio.gather(*(one(number) for number in range(64)))


@pytest.mark.asyncio(loop_scope="module")
async def test_pipe_kept_open_by_a_stranger_does_not_hold_the_result(sh: Shell) -> None:
    # Somebody outside its tree may hold a command's stdout; nobody can close it there.
    running = asyncio.create_task(sh("echo up; exec sleep 3"))
    await until(lambda: any(names_of(pid) == "sleep" for pid in sh.processes()))
    kept = os.open(f"/proc/{sh.processes()[0]}/fd/1", os.O_WRONLY)
    try:
        assert (await asyncio.wait_for(running, 20)).stdout == b"up\n"
    finally:
        os.close(kept)


def names_of(pid: int) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).name()
    return ""


BLOCKED = [
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GCONV_PATH", "MALLOC_TRACE"),
    *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHON_ANYTHING", "GLIBC_TUNABLES"),
    *("BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "IFS", "PROMPT_COMMAND", "BASH_FUNC_ls%%"),
    *("GIT_SSH_COMMAND", "GIT_EXEC_PATH", "GIT_CONFIG_COUNT", "PERL5LIB", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS"),
    *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "OPENSSL_CONF", "LUA_INIT", "LESSOPEN"),
]


@pytest.mark.parametrize("name", BLOCKED)
def test_names_that_are_never_passed_on(name: str) -> None:
    assert is_blocked(name)
    assert name not in base_environment({name: "x"})
    assert re.search(r"is (never passed on|not a valid name)", name_problem(name))


@pytest.mark.parametrize("name", ["API_TOKEN", "AWS_REGION", "NODE_ENV", "LDAP_URL", "MY_PYTHONPATH", "lower_case"])
def test_other_names_are_passed_on_when_asked_for(name: str) -> None:
    assert name_problem(name) == ""
    assert passed_on({name: "x", "OTHER": "y"}, [name]) == {name: "x"}
    assert name not in base_environment({name: "x"})


def test_what_is_not_set_is_left_out() -> None:
    assert passed_on({}, ["REGION"]) == {}


def test_the_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"option skills\.shell\.env: 'LD_PRELOAD' is never passed on"):
        passed_on({}, ["REGION", "LD_PRELOAD"])
    with pytest.raises(ConfigError, match=r"option skills\.shell\.env: 'A=B' is not a valid name of a variable"):
        passed_on({}, ["A=B"])


def test_all_names_are_reported_together() -> None:
    with pytest.raises(ConfigError, match=r"'LD_PRELOAD' is never passed on.*; 'A=B' is not a valid name"):
        passed_on({}, ["LD_PRELOAD", "REGION", "A=B"])


def test_the_language_and_the_time_zone_are_always_there() -> None:
    source = {"LANG": "de_DE.UTF-8", "LC_ALL": "C", "TZ": "UTC", "HOME": "/root", "USER": "root", "FLINK_HOME": "/opt"}
    assert base_environment(source) == {"LANG": "de_DE.UTF-8", "LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
    assert base_environment({})["LANG"] == "C.UTF-8"


def test_the_interpreters_folder_ends_the_path() -> None:
    assert base_environment({"PATH": "/bin"}, "/opt/py/bin/python")["PATH"] == "/bin:/opt/py/bin"
    assert base_environment({"PATH": "/opt/py/bin:/bin"}, "/opt/py/bin/python")["PATH"] == "/opt/py/bin:/bin"
