"""``flink-skills chat`` on a terminal: text as it arrives, Ctrl-C, history, Ctrl-D."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import pytest

from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.cli.command import ROOT, ignore
from tests.kit.screen import screen_lines
from tests.kit.skills import write_skill
from tests.kit.waiting import wait_until

DEADLINE = 60.0
CTRL_C, CTRL_D, UP = b"\x03", b"\x04", b"\x1b[A"


class Terminal:
    """A process on a terminal of its own, and what it has written there."""

    def __init__(
        self,
        *words: str,
        cwd: Path,
        command: str = "chat",
        ignored: tuple[signal.Signals, ...] = (),
        kind: str = "dumb",
        program: tuple[str, ...] = ("-m", "flink_skills.cli"),
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        # Variables would replace the size of the terminal.
        inherited = {name: of for name, of in os.environ.items() if name not in ("COLUMNS", "LINES")}
        environment = {**inherited, "PYTHONPATH": str(ROOT), "TMPDIR": str(cwd), "TERM": kind, "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            # With the terminal as its own, so that Ctrl-C there becomes a signal.
            ["setsid", "--ctty", sys.executable, *program, *filter(None, (command,)), *words],
            cwd=cwd,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=partial(ignore, *ignored),  # noqa: PLW1509 - it takes no lock
        )
        os.close(theirs)
        self.written = b""
        self._seen = 0

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def wait_for(self, text: str) -> str:
        """What came since the last time, up to ``text``."""
        end = time.monotonic() + DEADLINE
        wanted = text.encode()
        while (at := self.written.find(wanted, self._seen)) < 0:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._ours], [], [], left)[0]:
                raise AssertionError(f"no {text!r} in {self.written[self._seen :]!r}")
            try:
                self.written += os.read(self._ours, 1 << 16)
            except OSError as error:  # the other end is closed
                raise AssertionError(f"it ended without {text!r}: {self.written[self._seen :]!r}") from error
        start, self._seen = self._seen, at + len(wanted)
        return self.written[start : self._seen].decode()

    @property
    def lines(self) -> list[str]:
        """Return the lines on the screen and above it."""
        return screen_lines(self.written)

    def interrupt_line(self) -> None:
        """Press Ctrl-C until there is a new prompt: the interpreter loses a signal that comes just before it waits for
        the next key, and sees it then."""
        end = time.monotonic() + DEADLINE
        while True:
            self.type(CTRL_C)
            if select.select([self._ours], [], [], 2.0)[0]:
                self.wait_for("> ")
                return
            assert time.monotonic() < end, "no key is taken any more"

    def end(self) -> int:
        """The exit code. Reads on, so that nobody waits for the terminal."""
        end = time.monotonic() + DEADLINE
        while self.process.poll() is None and time.monotonic() < end:
            try:
                if select.select([self._ours], [], [], 0.1)[0]:
                    self.written += os.read(self._ours, 1 << 16)
            except OSError:
                break
        return self.process.wait(timeout=max(1.0, end - time.monotonic()))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)


class Brain:
    """A model that says what the last message asks for."""

    def __call__(self, body: dict[str, Any]) -> Reply:
        *_, last = body["messages"]
        text = str(last.get("content"))
        if last["role"] == "tool":
            return Reply(f"done: {text[:200]}")
        if text == "slowly":
            return Reply(" ".join(f"word{n}" for n in range(2000)), piece_latency=0.02)
        if text == "sleep":
            return Reply(tool_calls=(Call("execute_shell_command", {"command": "echo $$ > pid; sleep 300"}),))
        return Reply(f"{len(body['messages'])} messages, last: {text}")


@pytest.fixture
def words(tmp_path: Path) -> Iterator[list[str]]:
    write_skill(tmp_path / "skills" / "shout", description="Shouts.")
    with ScriptedModelServer(Brain()) as server:
        yield ["--skills", "skills", "--model", "openai-compatible:m", "--base-url", server.url]


def test_a_session_on_a_terminal(tmp_path: Path, words: list[str]) -> None:
    # Ctrl-C works even if the parent process ignores it.
    with Terminal(*words, cwd=tmp_path, ignored=(signal.SIGINT,)) as terminal:
        terminal.wait_for("Ctrl-D ends the session")
        terminal.wait_for("> ")
        terminal.type(b"hello\r")
        terminal.wait_for("2 messages, last: hello")
        terminal.wait_for("turn 1: ")
        terminal.wait_for("> ")
        # Words are there while others are still to come: the whole would take 40 seconds.
        terminal.type(b"slowly\r")
        terminal.wait_for("word0 word1 word2 word3")
        terminal.type(CTRL_C)
        terminal.wait_for("Interrupted. The conversation does not contain this message.")
        terminal.wait_for("> ")
        assert b"word1999" not in terminal.written
        # The system text, one turn before, and this message: nothing of the interrupted turn.
        terminal.type(b"again\r")
        terminal.wait_for("4 messages, last: again")
        terminal.wait_for("turn 2: ")
        terminal.wait_for("> ")
        terminal.type(b"half a li")
        terminal.wait_for("half a li")
        terminal.interrupt_line()
        terminal.type(UP + b"\r")
        terminal.wait_for("6 messages, last: again")
        terminal.wait_for("> ")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    assert b"Traceback" not in terminal.written


def test_what_ends_a_command_and_what_ends_the_session(tmp_path: Path, words: list[str]) -> None:
    with Terminal(*words, cwd=tmp_path) as terminal:
        terminal.wait_for("> ")
        for interrupted in (True, False):
            terminal.type(b"sleep\r")
            terminal.wait_for("execute_shell_command")
            wait_until(lambda: _sleepers(terminal.process.pid))
            sleepers = _sleepers(terminal.process.pid)
            if interrupted:
                terminal.type(CTRL_C)
                terminal.wait_for("Interrupted")
                terminal.wait_for("> ")
            else:
                terminal.process.send_signal(signal.SIGTERM)
                assert terminal.end() == 128 + signal.SIGTERM
            wait_until(lambda of=sleepers: not any(process.is_running() for process in of))
    assert b"Traceback" not in terminal.written
    assert not list(tmp_path.glob("flink-skills-*"))


def _sleepers(pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if process.name() == "sleep":
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def answer_later(body: dict[str, Any]) -> Reply:
    """Answer after a second, in small pieces."""
    return Reply(MARKDOWN, latency=1.0, piece_latency=0.01)


MARKDOWN = """# Causes

The heap is **too small**, see [the page](https://example.org/heap).

- first cause
- second cause

```python
print("<b>kept</b>")

print(2)
```

A tag <unknown> is text.
"""


def test_answers_are_rendered_and_a_thinking_model_shows_a_sign(tmp_path: Path) -> None:
    with (
        ScriptedModelServer(answer_later) as server,
        Terminal("--model", "openai-compatible:m", "--base-url", server.url, cwd=tmp_path, kind="xterm") as terminal,
    ):
        terminal.wait_for("> ")
        terminal.type(b"why?\r")
        terminal.wait_for("The model thinks")
        terminal.wait_for("turn 1: ")
        terminal.wait_for("> ")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    lines = [line.strip(" ┃│╭╮╰╯━─┏┓┗┛") for line in terminal.lines]
    shown = [line for line in lines if line]
    assert not any("The model thinks" in line for line in lines), lines
    start = next(number for number, line in enumerate(shown) if line == "Causes")
    assert shown[start : start + 7] == [
        "Causes",
        "The heap is too small, see the page (https://example.org/heap).",
        "• first cause",
        "• second cause",
        'print("<b>kept</b>")',
        "print(2)",
        "A tag <unknown> is text.",
    ]
    # Each block replaced its text.
    assert not any("**" in line or "```" in line for line in lines), lines


def test_the_cost_of_an_answer_is_shown(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(
        "chat_model_setups:\n  m: {clazz: openai-compatible.setup, model: m, base_url: URL, price: 1000}\n"
    )
    with ScriptedModelServer([Rule(Reply("fine", input_tokens=1200, output_tokens=34))]) as server:
        text = (tmp_path / "agent.yaml").read_text().replace("URL", server.url)
        (tmp_path / "agent.yaml").write_text(text)
        with Terminal("--agent", "agent.yaml", cwd=tmp_path) as terminal:
            terminal.wait_for("> ")
            for _ in range(2):
                terminal.type(b"hello\r")
                terminal.wait_for("1,200 tokens in, 34 out; $1.2340")
            terminal.wait_for("> ")
            terminal.type(b"/usage\r")
            terminal.wait_for("2 turns, 2 requests, 2,400 tokens in, 68 out, $2.4680")
            terminal.type(CTRL_D)
            assert terminal.end() == 0
