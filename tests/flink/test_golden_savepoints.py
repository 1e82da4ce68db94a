"""Savepoints that releases have made are restored: conversations, state, a turn under way and events that wait."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills.testing import Reply, ScriptedModelServer
from tests.golden.agents import HELD, Keeper, answer, said
from tests.golden.restore import SAVEPOINTS, restored, write_skills

pytestmark = [pytest.mark.flink, pytest.mark.both_versions]

NEW_EVENTS = [("idle", "x", "third"), ("idle", "y", "more"), ("hot", "x", "new"), ("fresh", "", "one")]


def savepoints() -> list[Path]:
    return sorted(file.parent for file in SAVEPOINTS.glob("*/manifest.json"))


def of_this_flink(savepoint: Path) -> bool:
    """Flink restores savepoints of its own version and of earlier ones."""
    import pyflink.version

    made_by = json.loads((savepoint / "manifest.json").read_text())["flink"]
    return numbers(made_by) <= numbers(pyflink.version.__version__)


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]


def test_there_is_one_for_each_flink() -> None:
    found = [json.loads((of / "manifest.json").read_text()) for of in savepoints()]
    assert {(of["release"], *numbers(of["flink"])) for of in found} >= {("0.1.0", 2, 2), ("0.1.0", 2, 3)}
    assert sum(file.stat().st_size for file in SAVEPOINTS.rglob("*")) < 100_000


def pairs() -> list[Any]:
    """Each savepoint on the heap, on which it was made, and in RocksDB. Savepoints have one form for all backends, so
    each backend has one savepoint by day."""
    *earlier, newest = savepoints()
    by_day = {(of.name, "hashmap") for of in earlier} | {(newest.name, "rocksdb")}
    return [
        pytest.param(
            of, backend, id=f"{of.name}-{backend}", marks=[pytest.mark.nightly] * ((of.name, backend) not in by_day)
        )
        for of in savepoints()
        for backend in ("hashmap", "rocksdb")
    ]


@pytest.mark.parametrize(("savepoint", "backend"), pairs())
def test_it_is_restored(
    savepoint: Path, backend: str, serve: Callable[..., ScriptedModelServer], tmp_path: Path
) -> None:
    if not of_this_flink(savepoint):
        pytest.skip("Flink does not promise to restore savepoints of later versions")
    asked: list[tuple[str, int]] = []

    def reply(body: dict[str, Any]) -> Reply:
        asked.append((said(body)[-1], sum(message["role"] == "tool" for message in body["messages"])))
        return answer(body)

    server = serve(reply)
    # A savepoint is whole in itself, wherever it is.
    place = tmp_path / "elsewhere"
    shutil.copytree(savepoint, place)
    records = restored(Keeper(server.url, write_skills(tmp_path)), place, NEW_EVENTS, {"state.backend.type": backend})

    def of(key: str) -> list[tuple[Any, ...]]:
        found = sorted((r for r in records if r["key"] == key), key=lambda record: record["turn"])
        return [(r["turn"], r["chat"], r["looked"], r["answer"], r["texts"][-1], len(r["texts"])) for r in found]

    assert [record for record in records if "error" in record] == []
    assert of("hot") == [
        (1, "x", "HELD", "held", "held", 1),
        (2, "x", "THEN", "held then", "then", 2),
        (3, "y", "LAST", "last", "last", 3),
        (4, "x", "NEW", "held then new", "new", 4),
    ]
    assert of("idle") == [
        (4, "x", "THIRD", "first second third", "third", 4),
        (5, "y", "MORE", "other more", "more", 5),
    ]
    assert of("fresh") == [(1, "", "ONE", "one", "one", 1)]
    # The turn that was under way had loaded the skill, and asks from there on.
    assert [number for text, number in asked if text == HELD] == [1]
