"""``flink-skills chat`` line by line: answers on stdout, what happens on stderr, one conversation."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.models import ModelResponse, Usage
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.cli.conftest import FlinkSkills, Said
from tests.kit.models import ServerFactory, model_servers, scripted_provider
from tests.kit.skills import write_skill

Chat = Callable[..., Said]


@pytest.fixture
def chat(flink_skills: FlinkSkills, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Chat:
    """A session with these lines; the skill ``shout`` is in ``skills``."""
    write_skill(
        tmp_path / "skills" / "shout",
        description="Shouts a text in capitals.",
        body="Run:\n\n```bash\nsh scripts/shout.sh\n```",
        **{"scripts/shout.sh": 'tr a-z A-Z; echo; ls "$WORK_DIR" | grep -c kept; touch "$WORK_DIR/kept"\n'},
    )

    def run(lines: str, *words: object) -> Said:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return flink_skills("chat", *words)

    return run


class Servers:
    """Starts model servers with a script; gives the words that lead to one."""

    def __init__(self, serve: ServerFactory) -> None:
        self._serve = serve
        self.running: list[ScriptedModelServer] = []

    def __call__(self, script: Any) -> list[str]:
        self.running.append(self._serve(script))
        return ["--model", "openai-compatible:m", "--base-url", self.running[-1].url]


@pytest.fixture
def server() -> Iterator[Servers]:
    with model_servers() as serve:
        yield Servers(serve)


def test_a_skill_is_tried_offline(chat: Chat) -> None:
    said = chat("shout this text\n", "--skills", "skills")
    assert said.code == 0
    assert said.stdout.startswith("SHOUT THIS TEXT\n")
    lines = said.stderr.splitlines()
    assert "agent plain, model offline, 1 skill, isolation" in lines[0]
    assert any(line.startswith("    loaded skill shout ") for line in lines)
    assert any(line.startswith("    $ sh scripts/shout.sh  exit ") for line in lines)
    assert lines[-1].startswith("turn 1: ") and lines[-1].endswith("3 requests; loaded shout")
    assert not any("<skill_content" in line for line in lines)


def test_the_workspace_goes_on_until_a_reset(chat: Chat) -> None:
    said = chat("shout a text\nshout a text\n/reset\nshout a text\n", "--skills", "skills")
    counts = [line for line in said.stdout.splitlines() if line.isdigit()]
    assert counts == ["0", "1", "0"]
    assert "key chat-2" in said.stderr


def test_the_conversation_goes_on_and_a_reset_forgets_it(chat: Chat, server: Servers) -> None:
    words = server(lambda body: Reply(" | ".join(str(m["content"]) for m in body["messages"])))
    said = chat("one\ntwo\n/reset\nthree\n", *words)
    assert said.stdout.splitlines() == ["one", "one | one | two", "three"]


def test_a_background_job_of_a_shell_ignores_interrupts(chat: Chat, server: Servers) -> None:
    def interrupting(body: Any) -> Reply:
        os.kill(os.getpid(), signal.SIGINT)
        return Reply("fine")

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        said = chat("one\ntwo\n", *server(interrupting))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (said.code, said.stdout) == (0, "fine\nfine\n"), said.stderr


def test_tokens_of_caches_and_of_reasoning(chat: Chat) -> None:
    usage = Usage(1200, 34, 1, cache_read_tokens=1000, cache_write_tokens=100, reasoning_tokens=20)
    with scripted_provider("scripted") as use:
        use([ModelResponse("fine", (), usage)])
        said = chat("one\n/usage\n", "--model", "scripted:m")
    tokens = "1,200 tokens in (1,000 from cache, 100 to cache), 34 out (20 reasoning)"
    assert said.stderr.count(tokens) == 2, said.stderr


def test_tokens_and_commands(chat: Chat, server: Servers) -> None:
    words = server([Rule(Reply("fine", input_tokens=1200, output_tokens=34))])
    said = chat(
        "one\n\n/usage\n/tools\n/skills\n/nope\n//etc is a path\n/exit\nnot read\n", "--skills", "skills", *words
    )
    assert said.code == 0
    assert said.stdout == "fine\nfine\n"
    assert "turn 1: " in said.stderr and "1,200 tokens in, 34 out" in said.stderr
    assert "1 turn, 1 request, 1,200 tokens in, 34 out" in said.stderr
    assert "\nexecute_shell_command  Run a shell command" in said.stderr
    assert "shout  Shouts a text in capitals." in said.stderr
    assert "unknown command /nope. " in said.stderr
    asked = server.running[0].requests[-1]["messages"][-1]["content"]
    assert asked == "/etc is a path"


def test_help_names_every_command(chat: Chat) -> None:
    said = chat("/help\n")
    for name in ("/help", "/skills", "/tools", "/usage", "/reset", "/exit"):
        assert f"\n{name} " in said.stderr


def test_a_loaded_skill_is_marked(chat: Chat) -> None:
    said = chat("shout this text\n/skills\n", "--skills", "skills")
    assert "\nloaded  shout  Shouts" in said.stderr


def test_a_failed_turn_is_said_and_the_session_goes_on(chat: Chat, server: Servers) -> None:
    words = server([Rule(Reply(status=401, error="bad key"), times=1), Rule(Reply("fine"))])
    said = chat("one\ntwo\n", *words)
    assert said.code == 3
    assert said.stdout == "fine\n"
    assert "the turn failed: " in said.stderr and "status 401 (bad key)" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("switch", ["--stream", "--no-stream"])
def test_a_tool_that_fails_and_text_beside_calls(chat: Chat, server: Servers, switch: str) -> None:
    wrong = Reply("I look.", tool_calls=(Call("load_skill", {"name": "shuot"}),))
    words = server([Rule(wrong, times=1), Rule(Reply("Not there."))])
    said = chat("one\n", "--skills", "skills", switch, *words)
    assert '  load_skill name="shuot"' in said.stderr
    assert "    error: " in said.stderr
    if switch == "--stream":
        assert said.stdout == "I look.\nNot there.\n"
    else:
        assert said.stdout == "Not there.\n"
        assert "  text: I look." in said.stderr


def test_a_stream_that_breaks_is_begun_again(chat: Chat, server: Servers) -> None:
    words = server([Rule(Reply("one two three", break_after=3), times=1), Rule(Reply("one two three"))])
    said = chat("go\n", "--stream", "--set", "skills.model.retry-backoff=1 ms", *words)
    assert said.code == 0
    assert said.stdout.startswith("one ")
    assert said.stdout.endswith("\none two three\n")
    assert "The answer was interrupted and is discarded." in said.stderr
    assert "The request is retried in" in said.stderr


_WRITER = """
from flink_skills import Agent, StreamingFunctionTool, tool_set

def write(text: str) -> str:
    "Write a text."
    return f"{len(text)} characters"

def look(text: str) -> str:
    "Look at a text."
    return "seen"

class Writer(Agent):
    model = "offline"

    @tool_set
    def at_hand(self):
        return [StreamingFunctionTool(write), look]
"""


@pytest.mark.row("J21")
@pytest.mark.parametrize("switch", ["--stream", "--no-stream"])
def test_arguments_of_a_streaming_tool_are_shown_while_they_are_written(
    chat: Chat, server: Servers, tmp_path: Path, switch: str
) -> None:
    (tmp_path / "writer.py").write_text(_WRITER)
    first = {"text": "A long report,\nred \x1b[31m."}
    said = Reply("So:", tool_calls=(Call("write", first), Call("look", {"text": "x"}), Call("write", {"text": "two"})))
    cut = Rule(Reply("So:", tool_calls=(Call("write", first),), break_after=6), times=1)
    words = server([cut, Rule(said, last_role="user"), Rule(Reply("Done."))])
    told = chat("go\n", "--agent", "writer:Writer", switch, "--set", "skills.model.retry-backoff=1 ms", *words)
    assert told.code == 0
    lines = told.stderr.splitlines()
    live = [line for line in lines if " … " in line]
    if switch == "--no-stream":
        assert live == []
        assert told.stdout == "Done.\n"
        return
    written = f"  write … {json.dumps(first)}"
    assert live[1:] == [written, '  write … {"text": "two"}']
    assert written.startswith(live[0]) and live[0] != written
    assert lines[lines.index(live[0]) + 1].startswith(("  The answer was interrupted", "    The request is retried in"))
    assert "The answer was interrupted and is discarded." in told.stderr
    assert '  look text="x"' in lines and "\x1b" not in told.stderr
    assert told.stdout == "So:\nSo:\nDone.\n"


def test_an_agent_with_structured_events_and_outputs(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from flink_skills import Agent\n"
        "class Own(Agent):\n"
        "    async def on_event(self, event, ctx):\n"
        "        ctx.state['n'] = ctx.state.get('n', 0) + 1\n"
        "        ctx.emit_to('side', 'seen')\n"
        "        return {'of': event['job'], 'n': ctx.state['n'], 'key': ctx.key}\n"
    )
    said = chat('{"job": "a"}\n{"job": "b"}\nno object\n', "--agent", "own:Own")
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(said.stdout.rstrip()):
        value, end = decoder.raw_decode(said.stdout, at)
        found.append(value)
        at = end + 1
    assert found == [{"of": "a", "n": 1, "key": "chat"}, {"of": "b", "n": 2, "key": "chat"}]
    assert "  output side: seen" in said.stderr
    assert "the turn failed: " in said.stderr


def test_hostile_text_cannot_drive_the_terminal(chat: Chat, server: Servers) -> None:
    words = server([Rule(Reply("red \x1b[31m text"))])
    said = chat("go\n", "--stream", *words)
    assert said.stdout == "red <U+001B>[31m text\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--profile", "cores"], "cores"),
        (["--base-url", "http://localhost:1/v1"], "--base-url requires --model"),
        (["--api-key-env", "X"], "--api-key-env requires --model"),
        (["--skills", "nowhere"], "nowhere"),
        (["--set", "parallelism.default=2"], "the key must start with 'skills.'"),
        (
            ["--model", "openai-compatible:m", "--base-url", "http://localhost:1/v1", "--api-key-env", "NOT_SET_X"],
            "NOT_SET_X",
        ),
    ],
)
def test_what_cannot_begin_is_said_at_once(chat: Chat, words: list[str], told: str) -> None:
    said = chat("hello\n", *words)
    assert said.code == 2
    assert said.stdout == ""
    assert told in said.stderr


def test_the_profile_chooses_the_tools(chat: Chat) -> None:
    said = chat("/tools\n", "--skills", "skills", "--profile", "knowledge_only")
    assert "skill_load" in said.stderr and "execute_shell_command" not in said.stderr
