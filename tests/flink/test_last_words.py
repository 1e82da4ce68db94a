"""The summary of a job that has ended, and the error of one that has failed."""

from __future__ import annotations

import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import Agent, AgentContext
from flink_skills.flink import JobFailedError, summary_of
from tests.flink.running import agents_environment, environments


@dataclass
class Output:
    """An agent in a job."""

    operator: str
    reads_errors: bool = False


class Odd(Agent):
    name = "odd"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        if event["id"] % 2:
            raise KeyError(event["id"])
        return event


def counts(agent: str, turns: int, first: str = "", **kinds: int) -> dict[str, Any]:
    """The accumulators of an agent."""
    found: dict[str, Any] = {f"agent {agent}: turns": turns}
    found |= {f"agent {agent}: failed turns: {kind}": number for kind, number in kinds.items()}
    return found | ({f"agent {agent}: first failure": [first]} if first else {})


@pytest.mark.parametrize(
    ("accumulators", "lines"),
    [
        ({}, ["0 turns"]),
        (counts("a", 1), ["1 turn"]),
        (counts("a", 1200), ["1,200 turns"]),
        (
            counts("a", 4, "KeyError: 1 (key 1, turn 1)", KeyError=1, TurnError=2),
            [
                "4 turns, 3 failed (2 TurnError, 1 KeyError)",
                "agent a: 3 error records were not read, the first: KeyError: 1 (key 1, turn 1); to read them, use it",
            ],
        ),
        (
            counts("a", 1, "KeyError: \x1b[31m\n  red", KeyError=1),
            [
                "1 turn, 1 failed (1 KeyError)",
                "agent a: 1 error record was not read, the first: KeyError: \ufffd[31m red; to read them, use it",
            ],
        ),
    ],
)
def test_a_summary_has_turns_failures_and_the_first_error(accumulators: dict[str, Any], lines: list[str]) -> None:
    summary = summary_of(accumulators, [Output("a")])
    assert summary.lines(errors="use it") == lines


def test_a_summary_of_several_agents_names_those_that_failed() -> None:
    accumulators = {**counts("a", 2, KeyError=1), **counts("a-2", 3), **counts("b", 1, "E: x", E=1)}
    summary = summary_of(accumulators, [Output("a", reads_errors=True), Output("a-2"), Output("b")], "/tmp/log")
    assert summary.failed == 2
    first, second = summary.lines()
    assert first == "6 turns, 2 failed (a: 1 KeyError; b: 1 E); the log is /tmp/log"
    assert second.startswith("agent b: 1 error record was not read, the first: E: x; ")


@pytest.mark.flink
@pytest.mark.both_versions
def test_execute_ends_with_turns_failures_and_unread_error_records(capsys: pytest.CaptureFixture[str]) -> None:
    for reads_errors in (False, True):
        env, agents_env = environments(parallelism=2)
        rows = env.from_collection([(n,) for n in range(5)], Types.ROW_NAMED(["id"], [Types.INT()]))
        output = agents_env.from_datastream(rows, "id").apply(Odd)
        output.to_datastream().print()
        if reads_errors:
            output.to_datastream(tag="errors").print()
        agents_env.execute("odd")
        first, *rest = capsys.readouterr().err.splitlines()[-2 + reads_errors :]
        assert first.startswith("5 turns, 2 failed (2 KeyError); the log is /")
        if reads_errors:
            assert rest == []
        else:
            (unread,) = rest
            assert unread.startswith("agent odd: 2 error records were not read, the first: KeyError: ")


@pytest.mark.flink
def test_after_a_restart_the_numbers_are_those_of_the_whole_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restarts = {
        "execution.checkpointing.interval": "200 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1",
        "restart-strategy.fixed-delay.delay": "1 s",
    }
    agents_env = agents_environment(restarts, parallelism=2)
    t_env = agents_env.table_environment()
    t_env.execute_sql(
        "CREATE TABLE numbers (id INT) WITH ('connector' = 'datagen', 'rows-per-second' = '10', "
        "'number-of-rows' = '30', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '30')"
    )
    failed = tmp_path / "failed"

    def fail_once(output: Any) -> Any:
        if output["id"] > 20 and not failed.exists():
            failed.touch()
            raise RuntimeError("planned")
        return output

    output = agents_env.from_table(t_env.from_path("numbers"), "id").apply(Odd)
    output.to_datastream().map(fail_once).print()
    agents_env.execute("odd")
    assert failed.exists()
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("30 turns, 15 failed (15 KeyError); the log is /")]


@pytest.mark.flink
def test_the_last_line_of_a_failed_job_is_its_own_error() -> None:
    env, agents_env = environments()
    agents_env.get_config().set("skills.turn.on-error", "fail")
    rows = env.from_collection([(1,)], Types.ROW_NAMED(["id"], [Types.INT()]))
    agents_env.from_datastream(rows, "id").apply(Odd).to_datastream().print()
    with pytest.raises(JobFailedError) as caught:
        agents_env.execute("odd")
    printed = "".join(traceback.format_exception(caught.value)).splitlines()
    assert printed[-1].endswith("JobFailedError: agent odd, key 1, turn 1 failed: KeyError: 1")
    assert not [line for line in printed if line.startswith("\tat ")]
    # For programs, and for debuggers.
    assert "org.apache.flink" in str(caught.value.__context__)


SHOWN = """
import sys
import warnings

from flink_skills import AgentsExecutionEnvironment

text, category, name = sys.argv[1:]
if name.endswith(".py"):
    warnings.warn_explicit(text, getattr(__builtins__, category), name, 3)
else:
    warnings.warn_explicit(text, getattr(__builtins__, category), name + ".py", 3, module=name)
"""
GRPC = "grpcio < 1.83.0 does not support Post-Quantum Cryptography (PQC). Support is deprecated."
PYTHON = "You are using a Python version (3.11.7) which Google will stop supporting"
ESCAPE = "invalid escape sequence '\\S'"


def shown(*words: str, options: tuple[str, ...] = ()) -> bool:
    command = [sys.executable, *options, "-c", SHOWN, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return words[0] in done.stderr


@pytest.mark.parametrize(
    ("text", "category", "name", "other"),
    [
        (GRPC, "FutureWarning", "google.auth.transport.grpc", "google.auth.transport.requests"),
        (PYTHON, "FutureWarning", "google.api_core._python_version_support", "users_module"),
        (ESCAPE, "SyntaxWarning", "/venv/lib/docopt.py", "/job/my_docopt.py"),
    ],
)
def test_only_those_of_one_message_and_one_module_are_ignored(text: str, category: str, name: str, other: str) -> None:
    assert not shown(text, category, name)
    assert shown(text, category, other)
    assert shown("another message", category, name)
    # The filter of the user takes precedence.
    assert shown(text, category, name, options=("-W", "default"))
