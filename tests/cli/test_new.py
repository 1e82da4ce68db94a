"""``flink-skills new``: what it makes is valid, runs, and takes nothing's place.

Examines the internals of cli.new on purpose.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from flink_skills.cli.new import Part
from tests.cli.conftest import FlinkSkills
from tests.kit.local import local_environment

PARTS = [part.value for part in Part]
CHOICES = [chosen for size in range(len(PARTS) + 1) for chosen in combinations(PARTS, size)]


def words_of(chosen: Sequence[str]) -> list[str]:
    return [word for part in chosen for word in ("--with", part)]


@pytest.mark.parametrize("chosen", CHOICES, ids=lambda chosen: "-".join(chosen) or "plain")
def test_every_choice_is_valid_to_the_letter(chosen: tuple[str, ...], flink_skills: FlinkSkills) -> None:
    made = flink_skills("new", "late-orders", "--dir", "s", *words_of(chosen))
    assert (made.code, made.stderr) == (0, "")
    checked = flink_skills("validate", "--strict", "--format", "json", "s").json
    assert checked["diagnostics"] == []
    assert checked["summary"]["strict_valid"] == 1


def test_the_offline_model_uses_it_and_its_script(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    flink_skills("new", "late-orders", *words_of(PARTS))
    (tmp_path / "events.jsonl").write_text('{"id": 7, "text": "two late orders"}\n')
    words = ["--input", "events.jsonl", "--key", "id", "--skills", "late-orders", "--output", "out.jsonl", "--local"]
    ran = flink_skills("run", *words)
    assert ran.code == 0, ran.stderr
    record = json.loads((tmp_path / "out.jsonl").read_text())
    assert record["skills"] == ["late-orders"]
    assert json.loads(record["output"]) == {
        "summary": "an event about late orders with 2 fields",
        "fields": ["id", "text"],
    }


def test_its_script_finds_the_event_and_says_what_it_lacks(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    flink_skills("new", "late-orders", "--with", "scripts")
    (tmp_path / "event.json").write_text('{"id": 7}')
    words = ["exec", "--skill", "late-orders", "--source", "late-orders"]
    found = flink_skills(*words, "--input", "event.json", "--", "python3", "scripts/describe.py").json
    assert json.loads(found["stdout"])["fields"] == ["id"]
    nothing = flink_skills(*words, "--", "python3", "scripts/describe.py").json
    assert (nothing["exit_code"], nothing["stderr"]) == (2, "Pass the event on standard input.\n")


def test_a_job_for_it_is_written_into_the_current_directory(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    made = flink_skills("new", "late-orders", "--dir", "s", "--with", "scripts", "--with", "job")
    assert made.code == 0, made.stderr
    assert {"job.yaml", "events.jsonl"} <= set(made.stdout.split())
    assert not (tmp_path / "s" / "job.yaml").exists()
    ran = flink_skills("run", "job.yaml", "--local", "--input", "events.jsonl", "--output", "out.jsonl")
    assert ran.code == 0, ran.stderr
    record = json.loads((tmp_path / "out.jsonl").read_text())
    assert record["skills"] == ["late-orders"]
    assert json.loads(record["output"])["fields"] == ["id", "text"]


@pytest.mark.parametrize("name", ["job.yaml", "events.jsonl"])
def test_a_file_that_exists_is_not_replaced_by_a_job(name: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    made = flink_skills("new", "late-orders", "--with", "job")
    assert made.code == 2
    assert f"{name} exists in the current directory" in made.stderr
    assert (tmp_path / name).read_text() == "mine"
    assert not (tmp_path / "late-orders").exists()


def test_its_tool_can_be_called(tmp_path: Path, flink_skills: FlinkSkills) -> None:
    from flink_skills import Agent, AgentContext

    flink_skills("new", "late-orders", "--with", "tools")

    class Counts(Agent):
        name = "counts"

        async def on_event(self, event: str, ctx: AgentContext) -> object:
            loaded = await ctx.call_tool("skill_load", skill="late-orders")
            return loaded["tools"], await ctx.call_tool("count_words", text=event)

    agents_env = local_environment()
    agents_env.add_skills_from_paths([str(tmp_path / "late-orders")])
    agents_env.get_config().set("skills.tools", "full")
    assert agents_env.from_list(["three late orders"]).apply(Counts).to_list() == [(["count_words"], 3)]


def test_what_it_prints_can_be_run(flink_skills: FlinkSkills) -> None:
    said = flink_skills("new", "late-orders", "--dir", "my skills").stdout.splitlines()
    assert said[:2] == ["my skills/late-orders/SKILL.md", "Try it:"]
    assert said[2] == "  flink-skills validate --strict --skills 'my skills/late-orders'"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("Late Orders", " Use for example late-orders."),
        ("späte_Bestellungen", " Use for example spate-bestellungen."),
        ("-x--y-", " Use for example x-y."),
        ("../up", " Use for example up."),
        ("x" * 65, f" Use for example {'x' * 64}."),
        ("", "at most 64 characters.\n"),
        ("日本", "at most 64 characters.\n"),
    ],
)
def test_bad_names(name: str, fix: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    said = flink_skills("new", "--dir", "s", "--", name)
    assert said.code == 2
    assert fix in said.stderr
    assert not (tmp_path / "s").exists()


def test_nothing_that_is_there_is_changed(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "late-orders").mkdir()
    said = flink_skills("new", "late-orders")
    assert (said.code, list((tmp_path / "late-orders").iterdir())) == (2, [])
    assert "late-orders already exists. Choose another name, or remove it first." in said.stderr
    (tmp_path / "file").write_text("x")
    said = flink_skills("new", "late-orders", "--dir", "file")
    assert said.code == 2
    assert "Choose another --dir." in said.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_made(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    said = flink_skills("new", "late-orders", "--dir", "closed")
    assert said.code == 2
    assert "cannot be created: Permission denied. Choose another --dir." in said.stderr
