"""A user's mistake is one message that names the thing and the fix, exit code 2, and never a traceback."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from flink_skills.cli.app import run_app
from flink_skills.cli.signal_guard import exit_on_signals, run_until_signal
from flink_skills.job.job_main import main as job_main
from tests.cli.command import ROOT, run
from tests.cli.conftest import FlinkSkills

SKILLS = str(ROOT / "skills")


@dataclass(frozen=True)
class Mistake:
    label: str
    words: tuple[str, ...]
    message: str
    input: str = "events.jsonl"
    key: str = "k"
    code: int = 2


MISTAKES = [
    Mistake("missing input", (), "--input nowhere.jsonl: No such file or directory", input="nowhere.jsonl"),
    Mistake("a folder as input", (), "--input .: Is a directory", input="."),
    Mistake("missing skills", ("--skills", "nowhere"), "nowhere: does not exist"),
    Mistake("skills of a URL nobody knows", ("--skills", "s4://bucket/skills.zip"), "s4"),
    Mistake("skills by plain http", ("--skills", "http://127.0.0.1:1/a.zip"), "skills.source.allow-http"),
    Mistake("unknown provider", ("--model", "opnai:gpt"), "unknown model provider 'opnai'"),
    Mistake("provider without a model", ("--model", "openai"), "openai:NAME"),
    Mistake("missing API key", ("--model", "openai:gpt"), "OPENAI_API_KEY"),
    Mistake("missing base URL", ("--model", "openai-compatible:x"), "base_url"),
    Mistake("base URL without a model", ("--base-url", "http://127.0.0.1:1/v1"), "--base-url requires --model"),
    Mistake("base URL that is none", ("--model", "openai:gpt", "--base-url", "localhost"), "base_url"),
    Mistake("unknown option", ("--set", "skills.turn.timout=3 s"), "did you mean 'skills.turn.timeout'"),
    Mistake("wrong value", ("--set", "skills.turn.timeout=soon"), "cannot use 'soon'"),
    Mistake("assignment without a value", ("--set", "skills.turn.timeout"), "write KEY=VALUE"),
    Mistake("agent of a missing module", ("nowhere:Agent",), "there is no module 'nowhere'"),
    Mistake("agent of no module", ("Triage",), "write module:Class"),
    Mistake("agent of a missing class", ("mine:Missing",), "'Missing'"),
    Mistake("agent that is none", ("mine:NoAgent",), "AGENT 'mine:NoAgent': is not an Agent class"),
    Mistake("module that ends itself", ("ending:Any",), "importing it failed: SystemExit"),
    Mistake("module with an error", ("broken:Any",), "importing it failed: ZeroDivisionError"),
    Mistake("module with a syntax error", ("syntax:Any",), "importing it failed: SyntaxError"),
    Mistake("agent that needs arguments", ("mine:Needy",), "cannot be made without arguments"),
    Mistake("agent whose constructor fails", ("mine:Failing",), "Failing"),
    Mistake("agent without a model", ("mine:Silent",), "has no chat model"),
    Mistake("missing YAML agent", ("nowhere.yaml",), "nowhere.yaml: No such file or directory"),
    Mistake("YAML agent with a wrong key", ("wrong.yaml",), "did you mean 'model'"),
    Mistake(
        "instructions with an agent",
        ("mine:Silent", "--instructions", "x"),
        "--instructions cannot be combined with an agent",
    ),
    Mistake("output in a missing folder", ("--output", "no/where.jsonl"), "--output no/where.jsonl"),
    Mistake("errors in a missing folder", ("--errors", "no/where.jsonl"), "--errors no/where.jsonl"),
    Mistake("unknown word", ("--modle", "offline"), "--model"),
    Mistake("parallelism of none", ("--parallelism", "0"), "--parallelism"),
    Mistake(
        "wrong key field",
        (),
        "--key kk: none of the events of events.jsonl has a usable key: the event has no key field 'kk': "
        "did you mean 'k'?",
        key="kk",
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "events.jsonl").write_text('{"k": "a"}\n')
    (tmp_path / "mine.py").write_text(
        "from flink_skills import Agent\n"
        "class NoAgent: pass\n"
        "class Needy(Agent):\n    def __init__(self, needed): pass\n"
        "class Failing(Agent):\n    def __init__(self): raise OSError('no disk')\n"
        "class Silent(Agent): pass\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "ending.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "syntax.py").write_text("def:\n")
    (tmp_path / "wrong.yaml").write_text("modle: offline\n")
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.label)
def test_mistakes_locally(mistake: Mistake, folder: Path, run_here: FlinkSkills) -> None:
    words = ("--input", mistake.input, "--key", mistake.key, "--local")
    done = run_here(*mistake.words, *words)
    assert mistake.message in " ".join(done.stderr.split()), done.stderr
    assert done.code == mistake.code
    assert (done.stdout != "") == (mistake.code == 3)


@pytest.mark.flink
@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (("--skills", "nowhere"), "nowhere: does not exist", 2),
        (("--model", "openai:gpt"), "OPENAI_API_KEY", 2),
        (("--set", "parallelism.default=many"), "parallelism.default", 2),
        (("--set", "execution.runtime-mode=sideways"), "execution.runtime-mode", 1),
        (("--set", "taskmanager.memory.network.max=3 fish"), "taskmanager.memory.network.max", 1),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_mistakes_in_a_mini_cluster(words: tuple[str, ...], message: str, code: int, folder: Path) -> None:
    done = run(*words, "--input", "events.jsonl", "--key", "k", cwd=folder)
    said = [line for line in done.stderr.splitlines() if line.startswith("flink-skills: ")]
    assert len(said) == 1, done.stderr
    assert message in said[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert done.code == code


def test_no_input_and_no_key_are_usage(tmp_path: Path) -> None:
    done = run(cwd=tmp_path)
    assert done.code == 2
    assert "--input" in done.stderr
    assert "Traceback" not in done.stderr


HOSTILE = '"na\\e]0;T\\a\\e[2J\\u202Eme": 1\nname: "x\\e[31m"\nagent: "m\\e]0;Q\\a:C"\n'


@pytest.mark.parametrize(
    "words",
    [
        [],
        # These tests start a JVM for the tables.
        pytest.param(["--check"], marks=pytest.mark.flink),
        pytest.param(["--check", "--format", "json"], marks=pytest.mark.flink),
        pytest.param(["--explain"], marks=pytest.mark.flink),
    ],
)
def test_a_job_file_writes_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(HOSTILE, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["flink-skills", "run", str(file), *words])
    assert run_app() != 0
    _assert_harmless(capsys.readouterr())


def test_the_main_of_a_job_writes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(HOSTILE, encoding="utf-8")
    assert job_main(["--config", str(file)]) == 2
    _assert_harmless(capsys.readouterr())


@pytest.mark.parametrize(
    "words",
    [
        ["run", "no\x1b[31m\u202e.yaml", "--check", "--explain"],
        ["run", "m\x1b[31m\u202e:C", "--check"],
        ["run", "a.yaml", "--set", "x\x1b[31m\u202e", "--check"],
    ],
)
def test_the_message_of_a_mistake_writes_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["flink-skills", *words])
    assert run_app() != 0
    written = capsys.readouterr()
    assert written.out or written.err
    assert not {"\x1b", "\a", "\u202e"} & set(written.out + written.err)


def _assert_harmless(written: pytest.CaptureResult[str]) -> None:
    text = written.out + written.err
    assert not {"\x1b", "\a", "\u202e"} & set(text)
    assert "U+001B" in text or "\\x1b" in text or "\\u001b" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_cancels_the_work_and_raises_in_no_callback(number: signal.Signals) -> None:
    cleaned_up: list[type[BaseException]] = []

    async def part() -> None:
        # The handler runs inside this task. A signal can arrive in any callback of the loop.
        signal.raise_signal(number)
        await asyncio.Event().wait()

    async def work() -> None:
        task = asyncio.create_task(part())
        try:
            await task
        except BaseException as error:
            cleaned_up.append(type(error))
            raise

    with exit_on_signals(), pytest.raises(SystemExit) as exited:
        run_until_signal(work())
    assert exited.value.code == 128 + number
    assert cleaned_up == [asyncio.CancelledError]


def test_without_a_signal_the_result_is_returned() -> None:
    async def work() -> int:
        return 3

    assert run_until_signal(work()) == 3


def test_a_cancellation_by_the_work_is_no_exit() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_until_signal(work())
