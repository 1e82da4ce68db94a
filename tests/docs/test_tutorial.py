"""Both pages of the tutorial, run block by block in an empty directory, and the files that they show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.docs.pages import ROOT, blocks_of
from tests.docs.walk import walk
from tests.kit.passable import passable_folder

PAGES = (ROOT / "docs/tutorial.md", ROOT / "docs/tutorial-kubernetes.md")
EXAMPLES = ROOT / "examples/tutorial"


@pytest.fixture
def folder() -> Iterator[Path]:
    with passable_folder() as outer:
        shop = outer / "shop"
        shop.mkdir()
        yield shop


def test_every_file_of_the_page_is_an_example() -> None:
    shown = {block.argument: block.text for page in PAGES for block in blocks_of(page) if block.kind == "file"}
    for name, text in shown.items():
        assert (EXAMPLES / name).read_text(encoding="utf-8") == text, name
    stored = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.is_file()}
    # The tutorial copies these.
    assert stored - set(shown) == {"README.md", "kubernetes/kafka.yaml"}


@pytest.mark.flink
def test_the_steps_without_kafka_run(folder: Path) -> None:
    for page in PAGES:
        walk(page, folder, {"offline"}, {"CHECKOUT": str(ROOT)})


def test_the_step_with_a_model_runs(folder: Path) -> None:
    run = Call("execute_shell_command", {"command": "python3 scripts/lateness.py", "stdin": "{last_user}"})
    rules = [
        Rule(Reply(tool_calls=(Call("load_skill", {"name": "late-orders"}),)), tool_results=0),
        Rule(Reply(tool_calls=(run,)), tool_results=1),
        Rule(Reply('{"days_late": 3, "answer": "Sorry."}'), last_tool="arrived 3 days late"),
        Rule(Reply('{"days_late": 0, "answer": "Enjoy."}')),
    ]
    with ScriptedModelServer(rules) as server:
        for page in PAGES:
            walk(page, folder, {"model"}, {}, {"http://127.0.0.1:8080": server.origin})
    records = [json.loads(line) for line in (folder / "model.jsonl").read_text().splitlines()]
    assert [record["output"]["days_late"] for record in records if record["key"] == "ann"] == [3, 0]
    assert {tuple(record["skills"]) for record in records} == {("late-orders",)}


@pytest.mark.cluster
@pytest.mark.nightly
def test_the_steps_with_kafka_run(folder: Path) -> None:
    from tests.docs.kafka_pages import broker_for

    with broker_for(folder) as (_, environment):
        for page in PAGES:
            walk(page, folder, {"kafka"}, environment)
