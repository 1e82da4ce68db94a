"""``flink-skills run JOB.yaml``: exit codes and streams, with and without a cluster in the process.

Examines the internals of cli.run.run_command on purpose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills.cli.run.run_command import is_job
from tests.cli.command import run
from tests.cli.conftest import FlinkSkills
from tests.cli.test_chat_terminal import Terminal
from tests.job.files import PLAIN, write_job

SINK = "'connector' = 'filesystem', 'path' = '${job:dir}/out', 'format' = 'json'"


@pytest.mark.flink
def test_a_job_runs_checks_and_is_explained(tmp_path: Path, flink_skills: FlinkSkills) -> None:
    text = PLAIN.replace("'connector' = 'blackhole'", SINK, 1)
    # The sequence of ids is the same every time; texts of a generator are not.
    text = text.replace(
        "'number-of-rows' = '1'", "'fields.id.kind' = 'sequence', 'fields.id.start' = '7', 'fields.id.end' = '8'"
    )
    write_job(tmp_path, text)
    done = run("job.yaml", "--parallelism", "1", "--set", "skills.worker.processes=1", cwd=tmp_path)
    assert (done.code, done.stdout) == (0, ""), done.stderr
    assert "flink-skills: warning: checkpoints are disabled" in done.stderr
    rows = [json.loads(line) for file in (tmp_path / "out").iterdir() for line in file.read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == [7, 8]
    assert {row["answer"] for row in rows} == {"No skill fits this event."}

    # In this process, whose JVM serves all of it.
    checked = flink_skills("run", "job.yaml", "--check")
    assert checked.code == 0
    assert "✓ columns: answers: id ← event.id, answer ← output" in checked.stdout.splitlines()
    assert checked.stdout.splitlines()[-1] == "the job can be submitted, 2 warnings"

    explained = flink_skills("run", "job.yaml", "--explain")
    assert explained.code == 0
    assert "agent plain (uid agent-plain), session per event" in explained.stdout.splitlines()
    sized = flink_skills("run", "job.yaml", "--explain", "--load", "events=1000,answer=2")
    assert sized.code == 0
    assert "size 2,000 turns in flight of 2 s" in sized.stdout
    assert "skills.worker.max-in-flight = 1,000 hold" in sized.stdout
    assert flink_skills("run", "job.yaml", "--load", "events=1,answer=1").code == 2

    setups = "{clazz: offline.setup, fallback: [other]}, other: {clazz: offline.setup}"
    route = "{field: job, models: {billing: main}, default: other}"
    write_job(tmp_path, text, agent=f"{{name: plain, route: {route}, chat_model_setups: {{main: {setups}}}}}")
    explained = flink_skills("run", "job.yaml", "--explain")
    assert "  model main: offline, then other" in explained.stdout.splitlines()
    assert "  route by job: billing → main, else other" in explained.stdout.splitlines()

    write_job(tmp_path, text, output="{table: answrs}")
    wrong = flink_skills("run", "job.yaml", "--check", "--format", "json")
    assert wrong.code == 1
    report = wrong.json
    assert report["ok"] is False
    (error,) = [check for check in report["checks"] if check["status"] == "error"]
    assert (error["check"], error["line"], error["column"]) == ("columns", 8, 17)
    assert error["path"] == ["output", "table"]


SCRIPT = """
from pyflink.datastream import StreamExecutionEnvironment

from flink_skills import Agent, AgentsExecutionEnvironment


class Triage(Agent):
    model = "offline"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    incidents = env.from_collection([{"job": "search"}])
    agents_env.from_datastream(incidents, "job").apply(Triage).to_datastream().print()
    agents_env.execute("triage")
"""


@pytest.mark.flink
@pytest.mark.parametrize("kind", ["job file", "script"])
def test_a_person_sees_that_a_job_starts_and_runs(kind: str, tmp_path: Path) -> None:
    if kind == "job file":
        write_job(tmp_path, PLAIN.replace("'connector' = 'blackhole'", "'connector' = 'print'", 1), name="triage")
        words: dict[str, Any] = {"command": "run", "program": ("-m", "flink_skills.cli")}
    else:
        (tmp_path / "job.yaml").write_text(SCRIPT)
        words = {"command": "", "program": ()}
    with Terminal("job.yaml", cwd=tmp_path, **words) as terminal:
        if kind == "job file":
            terminal.wait_for("job.yaml: checking the file and starting Java")
        terminal.wait_for("job triage: starting a Flink MiniCluster in this process")
        terminal.wait_for("job triage: running; the first answers follow")
        terminal.wait_for("No skill fits this event.")
        assert terminal.end() == 0, terminal.written


FAILING = """
import os
import sys

from flink_skills import Agent


def step(number):
    print("a step", number)


class Odd(Agent):
    name = "odd"

    async def on_event(self, event, ctx):
        print("ERROR of event", event["id"])
        print("to stderr", file=sys.stderr)
        os.system("echo from a program")
        await ctx.step("step", step, event["id"])
        if event["id"] % 2:
            raise KeyError(event["id"])
        return "even"
"""


@pytest.mark.flink
@pytest.mark.each_python
def test_a_run_with_failed_turns_ends_with_their_number_and_exit_code_3(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(FAILING)
    text = PLAIN.replace(
        "'number-of-rows' = '1'", "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3'"
    )
    write_job(tmp_path, text, agent="odd:Odd", errors="")
    done = run("job.yaml", "--parallelism", "1", "--set", "skills.worker.processes=1", cwd=tmp_path)
    assert done.code == 3, done.stderr
    # Prints are not parsed as frames of the worker, and one that looks like a log line is shown as well.
    printed = done.stdout.splitlines()
    assert sorted(printed) == sorted(
        [
            *(f"{text} {number}" for text in ("ERROR of event", "a step") for number in (1, 2, 3)),
            *(["to stderr", "from a program"] * 3),
        ]
    )
    summary, unread = done.stderr.splitlines()[-2:]
    assert summary.startswith("3 turns, 2 failed (2 KeyError); the log is /")
    assert Path(summary.partition("the log is ")[2]).is_file()
    assert unread.startswith("agent odd: 2 error records were not read, the first: KeyError: 1 (key ")
    assert unread.endswith(", turn 1); to read them, name a table under 'errors'")


@pytest.mark.flink
def test_skills_made_in_code_are_explained_by_name(tmp_path: Path, run_here: FlinkSkills) -> None:
    (tmp_path / "greeter.py").write_text(
        "from flink_skills import Agent, AgentSkill, ResourceDescriptor, ResourceName, skills\n\n\n"
        "class Greeter(Agent):\n"
        "    model = 'offline'\n\n"
        "    @skills\n"
        "    @staticmethod\n"
        "    def own():\n"
        "        made = [AgentSkill('greet', 'Says hello.', 'Body text.')]\n"
        "        return ResourceDescriptor(clazz=ResourceName.SKILLS_MANAGER, skills=made)\n"
    )
    write_job(tmp_path, agent="greeter:Greeter")
    done = run_here("job.yaml", "--explain")
    assert done.code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "  skills of the agent, created in code: greet" in lines
    assert "    skills: greet" in lines
    assert "Body text." not in done.stdout


def test_what_is_wrong_with_a_file_is_said_line_by_line(tmp_path: Path, run_here: FlinkSkills) -> None:
    write_job(tmp_path, outptu="{}", flink="{skills.strict: true}")
    done = run_here("job.yaml")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "job.yaml:10:1: outptu: unknown key 'outptu': did you mean 'output'? (there are: agent, agents, answers, "
        "connections, control, errors, events, flink, input, jars, models, name, options, output, prompts, skills, "
        "tables, waits)",
        "job.yaml:11:9: flink.skills.strict: put options skills.* under 'options'",
        "flink-skills: invalid job file: 2 problems",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("job.yaml", "--input", "x", "--key", "k"),
            "--key cannot be combined with the job file job.yaml. Set the values in the file.",
        ),
        (("job.yaml", "--input", "x", "--check"), "--input reruns failed events and cannot be combined with --check"),
        (("job.yaml", "--check", "--explain"), "--check and --explain cannot be combined"),
        (("job.yaml", "--reach"), "--reach requires --check or --explain"),
        (("job.yaml", "--flink-plan"), "--flink-plan requires --explain"),
        (("job.yaml", "--format", "json"), "--format json requires --check or --explain"),
        (("nothing.yaml",), "nothing.yaml: No such file or directory"),
        (("some:Agent", "--check"), "--check requires a job file"),
        (("some:Agent", "--key", "k"), "--input is missing. Pass a job file, or --input FILE and --key FIELD."),
        ((), "--input is missing"),
    ],
)
def test_words_that_do_not_go_together(
    tmp_path: Path, words: tuple[str, ...], said: str, run_here: FlinkSkills
) -> None:
    write_job(tmp_path)
    done = run_here(*words)
    assert done.code == 2
    assert said in done.stderr


def test_the_schema_is_printed(run_here: FlinkSkills) -> None:
    done = run_here("--schema")
    assert done.code == 0
    assert json.loads(done.stdout)["required"] == ["name", "tables"]


def test_a_yaml_file_alone_is_a_job_and_with_events_it_may_be_an_agent(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    agent = tmp_path / "agent.yaml"
    agent.write_text("name: a\nmodel: offline\n")
    assert is_job(str(job), no_events=False)
    assert is_job(str(agent), no_events=True)
    assert not is_job(str(agent), no_events=False)
    assert not is_job("module:Agent", no_events=True)
