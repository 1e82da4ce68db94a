"""``flink-skills turns``: the turns of events as lines, as a timeline, as JSON, and as they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment, tool
from flink_skills.testing import call, calls
from tests.cli.command import ROOT
from tests.cli.conftest import FlinkSkills
from tests.kit.models import scripted_provider
from tests.kit.waiting import wait_until

START = 1_795_904_173_406


def event(kind: str, at: int, key: str = "a", turn: int = 1, **fields: Any) -> dict[str, Any]:
    """An event with the fields that are not null."""
    values = {"version": 1, "kind": kind, "at": START + at, "agent": "desk", "key": key, "turn": turn, "status": "ok"}
    turn_id = f"{key * 8}{turn:024}"
    return {**values, "turn_id": turn_id, "id": f"{turn_id}/{kind}@{at}", "name": "desk", **fields}


def written(folder: Path, *events: dict[str, Any]) -> Path:
    file = folder / "events.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in events))
    return file


FAILED = [
    event(
        "chat", 0, duration_ms=800.0, name="model", model_id="openai:gpt", input_tokens=90, output_tokens=10, step="m0"
    ),
    event("tool", 800, duration_ms=1200.0, name="pay", step="t0", detail='{"arguments": "{}", "result": "paid"}'),
    event("command", 900, duration_ms=1000.0, name="python3", step="t0", exit_code=1, status="error", error="exit 1"),
    event("retry", 2000, name="model", status="error", error="RateLimitError", detail='{"try": 1, "pause_ms": 500}'),
    event(
        "turn", 0, duration_ms=3000.0, status="error", error="ModelError", input_tokens=90, output_tokens=10, cost=0.5
    ),
]
WAITING = [
    event("wait", 0, "b", action="open", name="approval", detail='{"wait_id": "w1"}'),
    event("skill", 5, "b", action="activate", skill="refunds", name="refunds"),
]
ANSWERED = [
    event("wait", 0, "c", action="open", name="approval", detail='{"wait_id": "w2"}'),
    event("wait", 60_000, "c", action="answered", name="approval", step="x", detail='{"wait_id": "w2", "by": "eve"}'),
    event("turn", 60_000, "c", duration_ms=250.0, detail='{"skills": ["refunds"]}'),
]
ALL = [*FAILED, *WAITING, *ANSWERED]


def test_a_turn_is_a_line(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    said = flink_skills("turns", written(tmp_path, *ALL, {**event("open", 0), "turn": None}, FAILED[-1]))
    head, failed, waiting, answered = said.stdout.splitlines()
    assert head.split()[:6] == ["ID", "TIME", "AGENT", "KEY", "TURN", "OUTCOME"]
    assert failed.split() == [
        *("aaaaaaaa", "2026-11-28", "22:16:13Z", "desk", "a", "1", "failed", "3.00", "100", "$0.5000", "ModelError"),
    ]
    assert waiting.split()[5:] == ["1", "waiting", "0.00", "0.01", "0", "refunds"]
    # The minute of the wait is not the turn's.
    assert answered.split()[5:] == ["1", "ok", "0.25", "60.00", "0", "refunds"]
    assert said.stderr == "3 turns, 1 failed, 1 waiting, 100 tokens, $0.5000\n"
    assert said.code == 0


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("--failed",), "a"),
        (("--slow", "1s"), "a"),
        (("--key", "b"), "b"),
        (("--agent", "desk"), "abc"),
        (("--since", "2026-11-28 22:16"), "abc"),
        (("--turn", "ccc"), "c"),
    ],
)
def test_options_select(flink_skills: FlinkSkills, tmp_path: Path, words: tuple[str, ...], keys: str) -> None:
    said = flink_skills("turns", written(tmp_path, *ALL), *words, "--format", "json")
    assert [turn["key"] for turn in said.records] == list(keys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--key", "z"), "none of 3 turns is selected. --key z: no turn has it: check the name."),
        (("--agent", "dask"), "--agent dask: no turn has it: did you mean 'desk'?"),
        (("--since", "1s", "--failed"), "none of 3 turns is selected."),
        (("--since", "soon"), "--since soon: 'soon' is not a time. Write a time such as"),
        (("--slow", "much"), "--slow much: write a duration such as"),
        (("--follow", "--turn", "a"), "--follow cannot be combined with --html or --turn: omit one of them"),
    ],
)
def test_a_selection_of_nothing_is_an_error_with_the_reason(
    flink_skills: FlinkSkills, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    said = flink_skills("turns", written(tmp_path, *ALL), *words)
    assert said.code in (1, 2)
    assert message in " ".join(said.stderr.split())
    assert said.stdout == ""


@pytest.mark.row("K21")
def test_one_turn_is_a_timeline(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    head, totals, *lines = flink_skills("turns", written(tmp_path, *ALL), "--turn", "a").stdout.splitlines()
    assert head == "turn 1 of a  desk  failed  ModelError"
    assert totals.endswith("3.00 s, 100 tokens, $0.5000")
    shown = [line[45:].strip() for line in lines]
    assert shown == [
        "chat model  800 ms, 100 tokens, openai:gpt",
        "tool pay  1,200 ms",
        "arguments: {}",
        "result: paid",
        "command python3  1,000 ms, exit 1  exit 1",
        "retry model  500 ms, try 1  RateLimitError",
    ]
    bars = [line[12:45] for line in lines if "█" in line]
    assert [(bar.index("█"), bar.count("█")) for bar in bars] == [(0, 10), (10, 15), (11, 13), (25, 6)]
    # The command is inside its call.
    assert lines[4].index("command") == lines[1].index("tool") + 2


def test_lines_that_are_no_events_are_reported_beside_the_others(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    file = written(tmp_path, *ALL)
    lines = ["{", "[]", '{"kind": "turn"}', json.dumps({**event("turn", 0), "at": "soon"})]
    file.write_text("\n".join(lines) + "\n\n" + file.read_text())
    said = flink_skills("turns", file)
    assert said.code == 1
    assert len(said.stdout.splitlines()) == 4
    assert (
        f"EVENTS has 4 lines without an event, which are ignored: {file}, line 1: the line is not JSON" in said.stderr
    )
    said = flink_skills("turns", written(tmp_path, event("turn", 0, version=2)))
    assert "format version 2, and this release reads version 1" in said.stderr
    said = flink_skills("turns", tmp_path / "nowhere")
    assert (said.code, "there is no such file or folder" in said.stderr) == (2, True)
    said = flink_skills("turns", written(tmp_path))
    assert (said.code, "there is no turn in EVENTS" in said.stderr) == (1, True)


@pytest.mark.parametrize(
    "at", ["2026-11-28 22:16:13.406Z", "2026-11-28T22:16:13.406", "2026-11-28 23:16:13.406+0100", START]
)
def test_times_are_read_in_the_forms_of_tables(flink_skills: FlinkSkills, tmp_path: Path, at: Any) -> None:
    (turn,) = flink_skills("turns", written(tmp_path, {**event("turn", 0), "at": at}), "--format", "json").records
    assert turn["at"] == START


def test_a_table_without_the_ids_of_turns_is_enough(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    """A query of a user selects columns, such as those of an audit trail."""
    folder = tmp_path / "audit"
    (folder / "day=1").mkdir(parents=True)
    columns = ("kind", "at", "agent", "key", "turn", "status", "name")
    rows = [{name: each[name] for name in columns} for each in (FAILED[1], FAILED[0], FAILED[-1])]
    (folder / "day=1/part-0").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / ".part-1.inprogress").write_text("{")
    (turn,) = flink_skills("turns", folder, "--format", "json").records
    assert (turn["outcome"], [part["kind"] for part in turn["parts"]]) == ("failed", ["chat", "tool"])


def test_each_turn_is_shown_as_it_ends(tmp_path: Path) -> None:
    file = written(tmp_path, *WAITING)
    shown = tmp_path / "shown"
    words = [sys.executable, "-m", "flink_skills.cli", "turns", str(file), "--follow", "--format", "json"]
    with shown.open("wb") as output, file.open("a") as growing:
        command = subprocess.Popen(words, stdout=output, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            text = json.dumps(FAILED[-1]) + "\n"
            for part in (text[:20], text[20:]):
                growing.write(part)
                growing.flush()
            wait_until(lambda: shown.read_text().count("\n") == 1, "the failed turn")
            growing.write(json.dumps(event("turn", 100, "b")) + "\n")
            growing.flush()
            wait_until(lambda: shown.read_text().count("\n") == 2, "the turn that waited")
            command.send_signal(signal.SIGINT)
            assert command.wait(30) == 130
        finally:
            command.kill()
    failed, waited = map(json.loads, shown.read_text().splitlines())
    assert (failed["key"], failed["outcome"]) == ("a", "failed")
    assert (waited["key"], waited["outcome"], waited["skills"]) == ("b", "ok", ["refunds"])


def test_parts_of_one_millisecond_keep_their_order(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    events = [
        event("chat", 5, duration_ms=0.1, name="model", id="1", step="m0"),
        event("command", 5, duration_ms=0.4, name="ls", id="2", step="t0"),
        event("skill", 5, name="refunds", id="3", step="t0", action="activate", skill="refunds"),
        event("tool", 5, duration_ms=0.6, name="list", id="4", step="t0"),
        event("chat", 5, duration_ms=0.2, name="nested", id="5", step="m1", parent_step="t1"),
        event("tool", 5, duration_ms=0.3, name="ask", id="6", step="t1"),
        event("chat", 5, duration_ms=0.1, name="model", id="7", step="m2"),
        event("turn", 5, duration_ms=0.9, id="8"),
    ]
    (turn,) = flink_skills("turns", written(tmp_path, *events), "--format", "json").records
    parts = [part["name"] for part in turn["parts"]]
    assert parts == ["model", "list", "ls", "refunds", "ask", "nested", "model"]


class Payer(Agent):
    model = "scripted:model"
    name = "payer"

    @tool
    def pay(self, cents: int) -> str:
        """Pay.

        Args:
            cents: The amount.
        """
        return f"paid {cents}"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        await ctx.step("weigh", len, event["text"])
        return await ctx.chat(event["text"])


@pytest.mark.row("K21")
def test_events_of_a_real_turn_have_all_parts(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    agents_env = AgentsExecutionEnvironment.get_execution_environment()
    agents_env.get_config().set("skills.events.content", "full")
    with scripted_provider("scripted") as script:
        script([calls(call("pay", cents=5)), "done"])
        events = agents_env.from_list([{"k": "a", "text": "hello"}], "k").apply(Payer).to_event_list()
    (turn,) = flink_skills("turns", written(tmp_path, *events), "--format", "json").records
    assert turn["outcome"] == "ok"
    parts = [(part["kind"], part["name"]) for part in turn["parts"]]
    assert parts == [("step", "weigh"), ("chat", "model"), ("tool", "pay"), ("chat", "model")]
    assert json.loads(turn["parts"][2]["content"]["arguments"]) == {"cents": 5}
    assert "paid 5" in turn["parts"][2]["content"]["result"]
