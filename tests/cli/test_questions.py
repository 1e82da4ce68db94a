"""Questions of turns that wait, in ``flink-skills chat`` and ``flink-skills run --local``."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_chat_terminal import CTRL_C, CTRL_D, Terminal
from tests.kit.waiting import wait_until

AGENT = '''
from typing import Any

from pydantic import BaseModel

from flink_skills import Agent, AgentContext, WaitCancelled, WaitTimeout, later, tool


class Vote(BaseModel):
    days: int


class Shopper(Agent):
    name = "shopper"
    approve_tools = ("pay",)

    @tool
    def pay(self, cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    def approve(self, request: Any) -> Any:
        return later("Pay now?", payload={"limit": 9})

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        try:
            vote = await ctx.wait("days", {"event": event}, question="How many days?", answer_type=Vote)
        except WaitCancelled as error:
            return str(error)
        return [vote.days, await ctx.call_tool("pay", cents=5)]


class Hasty(Agent):
    name = "hasty"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        if event == "nap":
            await ctx.sleep(0.2)
            return "awake"
        try:
            return await ctx.wait("first", question="First?", timeout=1)
        except WaitTimeout:
            return ["timeout", await ctx.wait("second", question="Second?")] if event != "once" else "timeout"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shopper.py").write_text(AGENT)
    (tmp_path / "events.jsonl").write_text('{"id": 1}\n')
    return tmp_path


def command(folder: Path, *words: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}", "COLUMNS": "200"}
    return {"args": [sys.executable, "-m", "flink_skills.cli", *words], "cwd": folder, "env": environment}


@pytest.mark.row("K15")
def test_chat_takes_the_next_lines_as_answers(folder: Path) -> None:
    lines = ["hello", "many", '{"days": 3}', "maybe", "y", "again", '{"days": 4}', "n too late", "third"]
    done = subprocess.run(
        **command(folder, "chat", "--agent", "shopper:Shopper"),
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, "a turn failed"
    assert json.loads(done.stdout[: done.stdout.index("]") + 1]) == [3, "paid 5"]
    assert "wait 'days' was cancelled" in done.stdout
    said = done.stderr
    assert said.count("? How many days?") == 4
    assert "is not usable: the answer: Input should be a valid dictionary" in said
    assert '  arguments: {"cents": 5}\n  payload: {"limit": 9}' in said
    assert "answer y, n, n REASON, or other arguments as a JSON object" in said
    assert "the call was not approved: too late" in said
    assert "the input ended, so the question is cancelled" in said
    assert "output waits" not in said
    assert "error: cancelled" not in said


def test_chat_shows_until_when_a_turn_sleeps(folder: Path) -> None:
    words = command(folder, "chat", "--agent", "shopper:Hasty")
    done = subprocess.run(**words, input="nap\n", capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "awake\n"
    assert re.search(r"The turn sleeps until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", done.stderr)


@pytest.mark.row("K15")
def test_a_local_run_asks_in_a_terminal(folder: Path) -> None:
    leader, follower = pty.openpty()
    words = ("run", "shopper:Shopper", "--input", "events.jsonl", "--key", "id", "--local", "--output", "out.jsonl")
    process = subprocess.Popen(**command(folder, *words), stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    shown = bytearray()

    def said(text: str) -> bool:
        shown.extend(os.read(leader, 4096))
        return text in shown.decode(errors="replace")

    wait_until(lambda: said("answer> "), "the first question")
    os.write(leader, b'{"days": 3}\n')
    wait_until(lambda: said("y, n REASON, or arguments> "), "the approval")
    os.write(leader, b'{"cents": 7}\n')
    assert process.wait(60) == 0, shown.decode(errors="replace")
    os.close(leader)
    (record,) = map(json.loads, (folder / "out.jsonl").read_text().splitlines())
    assert record["output"][0] == 3
    assert record["output"][1].endswith("paid 7")


def test_bar_records_and_questions_share_no_line(folder: Path) -> None:
    (folder / "events.jsonl").write_text("".join(json.dumps({"id": number}) + "\n" for number in (1, 2)))
    words = ("shopper:Shopper", "--input", "events.jsonl", "--key", "id", "--local")
    with Terminal(*words, cwd=folder, command="run", kind="xterm") as terminal:
        terminal.wait_for("answer> ")
        # The prompt is the last line: neither the bar nor a record of the other turn follows it.
        terminal.type(b'{"days": 3}\r')
        terminal.wait_for("answer> ")
        assert terminal.lines[-1] == "answer> "[:-1]
        terminal.type(b'{"days": 4}\r')
        for _ in range(2):
            terminal.wait_for("arguments> ")
            terminal.type(b"y\r")
        assert terminal.end() == 0, terminal.written
    lines = [line for line in terminal.lines if line]
    records = [line for line in lines if line.startswith('{"agent"')]
    assert len(records) == 2, lines
    assert [line for line in lines if "answer>" in line] == ['answer> {"days": 3}', 'answer> {"days": 4}']
    bars = [line for line in lines if "turns" in line and "/2" in line]
    assert len(bars) == 1, lines
    assert bars[0].startswith("turns ")
    assert "2/2" in bars[0]


def test_a_local_run_without_a_terminal_ends_the_waits(folder: Path) -> None:
    words = ("run", "shopper:Shopper", "--input", "events.jsonl", "--key", "id", "--local")
    done = subprocess.run(
        **command(folder, *words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 3
    assert "wait 'days' received no answer before the inputs of the job ended" in done.stderr
    assert (
        "1 question received no answer, because the input is not a terminal. Run the command in a terminal"
        in done.stderr
    )


@pytest.mark.row("K15")
def test_a_line_for_a_question_that_has_ended_answers_no_other_question(folder: Path) -> None:
    words = ("shopper:Hasty", "--input", "events.jsonl", "--key", "id", "--output", "out.jsonl", "--local")
    with Terminal(*words, cwd=folder, command="run") as terminal:
        terminal.wait_for("First?")
        terminal.wait_for("answer> ")
        terminal.type(b"half an an")
        terminal.wait_for("the question ended without an answer")
        terminal.wait_for("Second?")
        terminal.wait_for("answer> ")
        terminal.type(b"yes\r")
        assert terminal.end() == 0, terminal.written
    (record,) = map(json.loads, (folder / "out.jsonl").read_text().splitlines())
    assert record["output"] == ["timeout", "yes"]


@pytest.mark.row("K15")
def test_a_chat_continues_when_a_question_times_out(folder: Path) -> None:
    with Terminal("--agent", "shopper:Hasty", cwd=folder) as terminal:
        terminal.wait_for("Ctrl-D ends the session")
        terminal.wait_for("> ")
        terminal.type(b"once\r")
        terminal.wait_for("answer> ")
        terminal.wait_for("the question ended without an answer")
        terminal.wait_for("turn 1: ")
        terminal.wait_for("> ")
        terminal.type(CTRL_D)
        assert terminal.end() == 0


def test_keys_that_end_a_question_of_a_chat(folder: Path) -> None:
    with Terminal("--agent", "shopper:Shopper", cwd=folder) as terminal:
        terminal.wait_for("Ctrl-D ends the session")
        terminal.wait_for("> ")
        terminal.type(b"one\r")
        terminal.wait_for("answer> ")
        terminal.type(CTRL_C)
        terminal.wait_for("Interrupted. The conversation does not contain this message.")
        terminal.wait_for("> ")
        terminal.type(b"two\r")
        terminal.wait_for("answer> ")
        terminal.type(CTRL_D)
        terminal.wait_for("the input ended, so the question is cancelled")
        terminal.wait_for("wait 'days' was cancelled")
        terminal.wait_for("turn 1: ")
        terminal.wait_for("> ")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    assert b"Traceback" not in terminal.written
