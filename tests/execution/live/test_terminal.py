"""A live process with a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import CommandResult, Limits
from tests.kit.waiting import until

from .conftest import Output, Processes, terminals

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def said(processes: Processes, text: str) -> str:
    """What ``text`` says in a terminal."""
    output = Output()
    process = await processes.start(text, tty=True, on_output=output)
    result = await process.wait()
    assert result.exit_code == 0, (result, output.out)
    assert output.err == b""
    return output.out.decode().replace("\r\n", "\n")


async def test_all_three_are_a_terminal_and_the_controlling_one(processes: Processes) -> None:
    assert await said(processes, "for i in 0 1 2; do test -t $i && echo yes; done") == "yes\n" * 3
    assert await said(processes, "stty size; echo $TERM") == "40 120\ndumb\n"
    assert await said(processes, "echo out; echo err >&2; echo also > /dev/stderr") == "out\nerr\nalso\n"
    # The session and the group in the foreground are those of the process.
    fields = "python3 -c 'import os; print(os.getsid(0) == os.tcgetpgrp(0) == os.getpgrp())'"
    assert await said(processes, f"exec {fields}") == "True\n"


async def test_its_own_term_wins(processes: Processes) -> None:
    output = Output()
    process = await processes.start("echo $TERM", tty=True, on_output=output, env={"TERM": "xterm"})
    await process.wait()
    assert output.out == b"xterm\r\n"


async def test_dev_tty_is_the_terminal(processes: Processes) -> None:
    # As password prompts do it: standard input and output are something else.
    text = "read line < /dev/tty; echo got $line > /dev/tty; stty -a < /dev/tty | grep -o icanon > /dev/tty"
    process = await processes.start(f"({text}) < /dev/null > /dev/null", tty=True)
    await process.write(b"typed\n")
    assert (await process.wait()).exit_code == 0
    assert processes.output.out == b"typed\r\ngot typed\r\nicanon\r\n"


async def test_dev_tty_is_nothing_without_a_terminal(processes: Processes) -> None:
    process = await processes.start("cat < /dev/tty")
    assert (await process.wait()).exit_code == 1
    assert b"/dev/tty" in processes.output.err


async def test_a_password_is_not_echoed(processes: Processes) -> None:
    text = "exec python3 -c 'import getpass; print(len(getpass.getpass()))'"
    process = await processes.start(text, tty=True)
    await processes.output.has(b"assword")
    await process.write(b"s3cret-word\n")
    assert (await process.wait()).exit_code == 0
    assert processes.output.out == b"Password: \r\n11\r\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo up; sleep 100", CommandResult(signal=2)),
        ("trap 'echo caught; exit 7' INT; echo up; while :; do sleep 0.05; done", CommandResult(exit_code=7)),
    ],
)
async def test_ctrl_c_interrupts_what_is_in_the_foreground(
    processes: Processes, text: str, expected: CommandResult
) -> None:
    process = await processes.start(text, tty=True)
    await processes.output.has(b"up")
    await process.write(b"\x03")
    result = await process.wait()
    assert (result.exit_code, result.signal) == (expected.exit_code, expected.signal)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_ctrl_d_and_a_closed_input_end_it(processes: Processes) -> None:
    process = await processes.start("cat; echo end", tty=True)
    await process.write(b"a\n\x04")
    await process.wait()
    assert processes.output.out == b"a\r\na\r\nend\r\n"
    output = Output()
    process = await processes.start("cat; echo end", tty=True, on_output=output)
    await process.write(b"b\n")
    process.close_stdin()
    with pytest.raises(ExecutionError, match="was closed"):
        await process.write(b"c\n")
    assert (await process.wait()).exit_code == 0
    assert output.out == b"b\r\nb\r\nend\r\n"


async def test_an_interactive_shell_has_job_control(processes: Processes) -> None:
    process = await processes.backend.start_process(
        processes.request("/bin/bash", "--norc", "-i", env={"PS1": "ready> "}), tty=True, on_output=processes.output
    )
    await processes.output.has(b"ready> ")
    assert b"no job control" not in processes.output.out
    await process.write(b"sleep 200 & echo job\\ is $(jobs -r | wc -l)\n")
    await processes.output.has(b"job is 1")
    await process.write(b"sleep 300\n")
    await until(lambda: len([pid for pid in processes.alive() if _command(pid).startswith(b"sleep")]) == 2)
    await process.write(b"\x03")
    await process.write(b"echo still $((40 + 2))\nexit 3\n")
    assert (await process.wait()).exit_code == 3
    assert b"still 42" in processes.output.out
    assert processes.alive() == []


async def test_all_output_of_a_terminal_comes_before_its_end(processes: Processes) -> None:
    for _ in range(3):
        output = Output()
        process = await processes.start("seq 30000", tty=True, on_output=output)
        await process.wait()
        assert output.out == b"".join(b"%d\r\n" % number for number in range(1, 30_001))


async def test_much_is_written_to_a_terminal(processes: Processes) -> None:
    lines = b"".join(b"%d\n" % number for number in range(100_000))
    process = await processes.start("stty -echo; echo up; exec wc", tty=True)
    await processes.output.has(b"up")
    await process.write(lines)
    process.close_stdin()
    await process.wait()
    assert processes.output.out.split()[1:] == [b"100000", b"100000", str(len(lines)).encode()]


async def test_terminals_of_others_cannot_be_opened(processes: Processes, backend_name: str) -> None:
    other = Output()
    first = await processes.start("echo up; sleep 100", tty=True, on_output=other)
    await other.has(b"up")
    numbers = terminals()
    assert numbers
    text = f"own=$(tty); for n in {' '.join(numbers)}; do"
    text += (
        " [ /dev/pts/$n = $own ] || (echo x > /dev/pts/$n; cat < /dev/pts/$n & sleep 0.1; kill $!) 2> /dev/null; done"
    )
    second = await processes.start(f"{text}; echo over", tty=True)
    await second.wait()
    assert b"over" in processes.output.out
    await first.terminate(0)
    # Without isolation of files it succeeds, which shows that the attempt is one.
    isolated = backend_name != "hygiene"
    assert (b"x\r\n" not in other.out) == isolated
    third = await processes.start("exec 3<> /dev/ptmx")
    assert ((await third.wait()).exit_code != 0) == isolated, "nor can new ones be made"


async def test_a_terminal_keeps_its_line_discipline(processes: Processes) -> None:
    text = """exec python3 -c 'import fcntl, struct; fcntl.ioctl(0, 0x5423, struct.pack("i", 0))'"""
    process = await processes.start(text, tty=True)
    assert (await process.wait()).exit_code == 1
    assert b"Operation not permitted" in processes.output.out


async def test_commands_without_a_terminal_have_none_to_open(processes: Processes) -> None:
    assert (await processes.backend.run(processes.request("/bin/sh", "-c", "exec 3<> /dev/tty"))).exit_code != 0


async def test_a_full_workspace_leaves_the_terminal_usable(processes: Processes) -> None:
    limits = Limits(wall_time=60, workspace_files=10)
    filled = await processes.backend.run(
        processes.request("/bin/sh", "-c", "for i in $(seq 30); do : > f$i; done", limits=limits)
    )
    assert filled.limit == "workspace_files"
    text = "echo > more; read line; echo got $line > /dev/tty; rm f*; echo done"
    process = await processes.start(text, tty=True, limits=limits)
    await process.write(b"typed\n")
    assert (await process.wait()).exit_code == 0
    assert b"got typed\r\ndone\r\n" in processes.output.out
    assert not (processes.workspace.work_dir / "more").exists()
    ran = await processes.backend.run(processes.request("/bin/sh", "-c", "echo > more", limits=limits))
    assert ran.exit_code == 0, "the process has made room, and that was seen at its end"
