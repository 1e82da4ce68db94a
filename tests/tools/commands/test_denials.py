"""Notes on what the sandbox denied, from the wording of several programs and from real commands at each level."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import IsolationError
from flink_skills.execution import CommandRequest, CommandResult, IsolationLevel, WorkspaceManager, command_user
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner
from flink_skills.tools.commands import Denials
from tests.kit.skills import write_skill
from tests.tools.conftest import Conversation

ROOT = "/data/ws_1"
REQUEST = CommandRequest(
    ("/bin/sh", "-c", "x"), cwd=f"{ROOT}/work", root=ROOT, writable=(f"{ROOT}/work", f"{ROOT}/out"), readable=(ROOT,)
)
TRACEBACK = """Traceback (most recent call last):
  File "/usr/lib/python3.11/socket.py", line 232, in __init__
    _socket.socket.__init__(self, family, type, proto, fileno)
PermissionError: [Errno 13] Permission denied
"""
NODE = """TypeError: fetch failed
    at node:internal/deps/undici/undici:14976:13
  [cause]: Error: connect EACCES 127.0.0.1:99 - Local (undefined:undefined)
"""


def notes(
    stderr: str = "",
    *,
    stdout: str = "",
    exit_code: int = 1,
    level: IsolationLevel = IsolationLevel.LANDLOCK,
    network: bool = False,
    request: CommandRequest = REQUEST,
) -> tuple[str, ...]:
    result = CommandResult(exit_code=exit_code, stdout=stdout.encode(), stderr=stderr.encode())
    return Denials(level, network).notes(request, result, lambda: ("/tmp", "/dev/shm"))


NETWORK = [
    "curl: (6) Could not resolve host: example.com",
    "curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect to server",
    "fatal: unable to access 'https://example.com/x.git/': Could not resolve host: example.com",
    "ssh: connect to host 1.2.3.4 port 22: Permission denied",
    "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
    "urllib.error.URLError: <urlopen error [Errno 13] Permission denied>",
    "socket.gaierror: [Errno -2] Name or service not known",
    "httpx.ConnectError: [Errno 13] Permission denied",
    TRACEBACK,
    NODE,
    "Error: getaddrinfo EAI_AGAIN example.com",
    "npm error code ENOTFOUND",
    "WARNING: Retrying after connection broken by 'NewConnectionError(': Failed to establish a new connection: "
    "[Errno -2] Name or service not known')': /simple/x/\nERROR: No matching distribution found for x",
    "java.net.SocketException: Permission denied",
    "java.net.UnknownHostException: example.com",
    "dial tcp: lookup example.com: no such host",
    "dial tcp 1.2.3.4:80: socket: operation not permitted",
    "ping: socket: Operation not permitted",
    "/bin/bash: line 1: /dev/tcp/1.2.3.4/80: Permission denied",
    "connect: Network is unreachable",
    "wget: unable to resolve host address 'a.example'",
    "E: Temporary failure resolving 'deb.debian.org'",
    'psql: error: connection to server at "1.2.3.4", port 5432 failed: could not create socket: Permission denied',
]


@pytest.mark.parametrize("stderr", NETWORK)
def test_the_closed_network_is_named(stderr: str) -> None:
    (note,) = notes(stderr)
    assert "the network is closed to commands (skills.shell.network is deny)" in note
    assert notes(stderr, network=True) == ()


@pytest.mark.parametrize(
    ("stderr", "path"),
    [
        ("touch: cannot touch '/usr/x': Read-only file system", "/usr/x"),
        ("/bin/bash: line 1: /opt/x: Permission denied", "/opt/x"),
        ("mkdir: cannot create directory \u2018/opt/x\u2019: Permission denied", "/opt/x"),
        ("cp: cannot create regular file '/var/x': Permission denied", "/var/x"),
        ("tar: /opt/x: Cannot open: Permission denied", "/opt/x"),
        ("OSError: [Errno 30] Read-only file system: '/etc/x'", "/etc/x"),
        ("  File \"<string>\", line 1\nPermissionError: [Errno 13] Permission denied: '/etc/x'", "/etc/x"),
        ("Error: EROFS: read-only file system, open '/etc/x'\n    at Object.writeFileSync (node:fs:2380:20)", "/etc/x"),
        ("Error: EACCES: permission denied, mkdir '/etc/x'", "/etc/x"),
        ("java.io.FileNotFoundException: /etc/x (Permission denied)", "/etc/x"),
        ("java.nio.file.AccessDeniedException: /etc/x", "/etc/x"),
        ("open /etc/x: permission denied", "/etc/x"),
        ("fatal: could not create work tree dir '/opt/x': Permission denied", "/opt/x"),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/usr/lib/x'",
            "/usr/lib/x",
        ),
        ("chmod: changing permissions of '/usr/bin/env': Operation not permitted", "/usr/bin/env"),
        (f"sh: 1: cannot create {ROOT}/skills/a/x: Permission denied", f"{ROOT}/skills/a/x"),
    ],
)
def test_closed_files_are_named_with_the_folder_for_results(stderr: str, path: str) -> None:
    (note,) = notes(stderr)
    assert note.startswith(f"{path} is ")
    assert "write results to $OUTPUT_DIR" in note


@pytest.mark.parametrize(
    ("stderr", "exit_code"),
    [
        (f"/bin/bash: line 1: {ROOT}/work/a.sh: Permission denied", 126),
        ("bash: line 1: scripts/run.sh: Permission denied", 126),
        (f"touch: cannot touch '{ROOT}/work/closed/a': Permission denied", 1),
        ("cat: q: Permission denied", 1),
        ("git@example.com: Permission denied (publickey).", 128),
        ("kill: (1) - Operation not permitted", 1),
        ("cat: missing.txt: No such file or directory", 1),
        ("ls: cannot access '/usr/missing': No such file or directory", 2),
        ("/bin/bash: line 1: nothing: command not found", 127),
    ],
)
def test_failures_of_the_command_itself_have_no_note(stderr: str, exit_code: int) -> None:
    for level in (IsolationLevel.HYGIENE, IsolationLevel.LANDLOCK, IsolationLevel.NAMESPACE):
        assert notes(stderr, exit_code=exit_code, level=level) == ()


def test_printed_data_of_a_command_that_succeeds_has_no_note() -> None:
    data = "\n".join([*NETWORK, "touch: cannot touch '/usr/x': Read-only file system"])
    assert notes(stdout=data, exit_code=0) == ()
    assert len(notes(stdout=data, exit_code=1)) == 2
    assert len(notes(data, exit_code=0)) == 2


def test_only_the_end_of_the_output_is_searched() -> None:
    assert notes(NETWORK[0] + "\n" + "fine\n" * 4_000) == ()
    assert len(notes("fine\n" * 4_000 + NETWORK[0])) == 1


def test_missing_folders_of_the_machine_at_namespace() -> None:
    stderr = "FileNotFoundError: [Errno 2] No such file or directory: '/opt/a/x'"
    (note,) = notes(stderr, level=IsolationLevel.NAMESPACE)
    assert note.startswith("/opt/a/x does not exist for commands") and "$OUTPUT_DIR" in note
    assert notes(stderr, level=IsolationLevel.LANDLOCK) == ()


def test_a_folder_that_does_not_last() -> None:
    (note,) = notes("cat: /tmp/a: No such file or directory", level=IsolationLevel.NAMESPACE)
    assert note.startswith("files in /tmp are removed when their command ends") and "$WORK_DIR" in note
    writing = CommandRequest(("/bin/sh", "-c", "echo a > /tmp/a"), cwd="/", root="/tmp/job/ws_1")
    assert notes(exit_code=0, request=writing) == (note,)
    own = CommandRequest(("/bin/sh", "-c", "ls /tmp/job/ws_1/work /srv/tmp tmp/a"), cwd="/", root="/tmp/job/ws_1")
    assert notes(exit_code=0, request=own) == ()


@pytest.fixture(params=["bwrap", "landlock", "hygiene"])
async def real(
    request: pytest.FixtureRequest, view: SkillView, shared_folder: Path
) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    options = {"skills.shell.backend": request.param, "skills.shell.min-isolation": "HYGIENE"}
    config = SkillConfig(options)
    workspaces = WorkspaceManager(shared_folder / "w", user=command_user(config))
    try:
        shell = await ShellRunner.start(config, workspaces)
    except IsolationError as error:
        pytest.skip(f"this machine has no such sandbox: {error}")
    talk = Conversation(view, shell)

    async def run(command: str) -> Any:
        return await talk.call("execute_shell_command", command=command)

    run.shell = shell  # type: ignore[attr-defined]
    try:
        yield run
    finally:
        await shell.close()
        workspaces.close()


async def test_real_commands_at_each_level(real: Any) -> None:
    offline = await real("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'")
    assert "note: the network is closed to commands" in offline.content
    assert offline.value["notes"][0].startswith("the network is closed to commands")
    unresolved = await real("python3 -c 'import socket; socket.getaddrinfo(\"a.example\", 80)'")
    assert "note: the network is closed to commands" in unresolved.content
    # Root that switches commands to another user cannot write there at HYGIENE either.
    written = await real("touch /usr/flink-skills-denied")
    if written.value["return_code"]:
        assert "note: /usr/flink-skills-denied is " in written.content
        assert "write results to $OUTPUT_DIR" in written.content
    skills = await real("echo a > $SKILLS_DIR/x")
    if skills.value["return_code"]:
        assert "/skills/x is read-only: write results to $OUTPUT_DIR" in skills.content
    fine = await real("echo Permission denied; echo a > $OUTPUT_DIR/a")
    assert "note:" not in fine.content
    assert "notes" not in fine.value


async def test_a_file_in_tmp_is_kept_or_explained(real: Any) -> None:
    name = "/tmp/flink-skills-denials.txt"
    try:
        first = await real(f"echo 7 > {name}")
        second = await real(f"cat {name}")
        kept = second.value["stdout"] == "7\n"
        assert kept or "$WORK_DIR" in first.content
        assert real.shell.level is not IsolationLevel.NAMESPACE or "$WORK_DIR" in second.content
        assert kept is (real.shell.level is IsolationLevel.HYGIENE)
        assert "note:" not in (await real("echo 7 > $TMPDIR/a")).content
        assert (await real("cat $TMPDIR/a")).value["stdout"] == "7\n"
    finally:
        Path(name).unlink(missing_ok=True)


SCRIPTS = {
    "scripts/run.sh": (b"#!/bin/sh\nif true; then\necho ran $1\nfi\n", 0o644),
    "scripts/windows.sh": (b"#!/bin/sh\r\nif true; then\r\necho ran $1\r\nfi\r\n", 0o755),
    "scripts/plain.py": (b"#!/usr/bin/env python3\nimport sys\nprint('ran', sys.argv[1])\n", 0o644),
    "scripts/windows.py": (b"#!/usr/bin/env python3\r\nimport sys\r\nprint('ran', sys.argv[1])\r\n", 0o755),
}


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("scripts/run.sh 7", "scripts/run.sh is not executable: run it with sh scripts/run.sh"),
        ("./scripts/run.sh 7 | cat", "./scripts/run.sh is not executable: run it with sh ./scripts/run.sh"),
        ("cd scripts && ./run.sh 7", "./run.sh is not executable: run it with sh ./run.sh"),
        ("A=1 scripts/plain.py 7", "scripts/plain.py is not executable: run it with python3 scripts/plain.py"),
        (
            "$SKILLS_DIR/tool/scripts/run.sh 7",
            "$SKILLS_DIR/tool/scripts/run.sh is not executable: run it with sh $SKILLS_DIR/tool/scripts/run.sh",
        ),
        (
            "scripts/windows.sh 7",
            "scripts/windows.sh has line ends of Windows (CRLF), so its interpreter is not found: run it with "
            r"tr -d '\r' < scripts/windows.sh > $WORK_DIR/windows.sh && sh $WORK_DIR/windows.sh",
        ),
        (
            "scripts/windows.py 7",
            "scripts/windows.py has line ends of Windows (CRLF), so its interpreter is not found: run it with "
            "python3 scripts/windows.py",
        ),
    ],
)
async def test_a_script_of_another_system_has_a_note_with_a_command_that_works(
    command: str, note: str, tmp_path: Path, shell_with: Any
) -> None:
    write_skill(tmp_path / "from/tool")
    for path, (data, mode) in SCRIPTS.items():
        file = tmp_path / "from/tool" / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)
    view = AgentSkillManager([str(tmp_path / "from")], store_dir=str(tmp_path / "store")).view()
    talk = Conversation(view, await shell_with())
    await talk.call("load_skill", name="tool")
    failed = await talk.call("execute_shell_command", command=command)
    assert failed.value["notes"] == [note]
    assert f"note: {note}" in failed.content
    before = "cd scripts && " if command.startswith("cd ") else ""
    works = await talk.call("execute_shell_command", command=f"{before}{note.partition('run it with ')[2]} 7")
    assert works.value["stdout"].split() == ["ran", "7"], works.content


async def test_a_script_that_fails_itself_has_no_note(tmp_path: Path, shell_with: Any) -> None:
    write_skill(tmp_path / "from/tool", scripts__no="#!/bin/sh\nexit 126\n", scripts__data="text\n")
    (tmp_path / "from/tool/scripts/no").chmod(0o755)
    view = AgentSkillManager([str(tmp_path / "from")], store_dir=str(tmp_path / "store")).view()
    talk = Conversation(view, await shell_with())
    await talk.call("load_skill", name="tool")
    for command in ("scripts/no", "no-such-program scripts/data", "cat scripts/missing"):
        assert "notes" not in (await talk.call("execute_shell_command", command=command)).value
