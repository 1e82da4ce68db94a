"""A job that continues from a golden savepoint with more events."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.flink.skill_files import write_skill

__all__ = ["SAVEPOINTS", "WAITS", "copied", "pairs", "restored", "savepoints", "write_skills"]

_HERE = Path(__file__).resolve().parent
SAVEPOINTS = _HERE / "savepoints"
WAITS = _HERE / "waits"


def write_skills(folder: Path) -> str:
    """Create the skill that the stored conversations have loaded."""
    write_skill(folder / "skills", "notes", description="Takes notes.", body="Write it down.")
    return str(folder / "skills")


def savepoints(folder: Path) -> list[Path]:
    """Return the savepoints of a job, by release and Flink version."""
    return sorted(file.parent for file in folder.glob("*/manifest.json"))


def pairs(folder: Path) -> list[Any]:
    """Return each savepoint with the heap, which wrote it, and with RocksDB.

    Savepoints have one format for all backends, so `make test` restores one savepoint with each.
    """
    *earlier, newest = savepoints(folder)
    by_day = {(of.name, "hashmap") for of in earlier} | {(newest.name, "rocksdb")}
    return [
        pytest.param(
            of, backend, id=f"{of.name}-{backend}", marks=[pytest.mark.nightly] * ((of.name, backend) not in by_day)
        )
        for of in savepoints(folder)
        for backend in ("hashmap", "rocksdb")
    ]


def copied(savepoint: Path, folder: Path) -> Path:
    """Copy a savepoint, which can be restored from any place. Skip the test if a later Flink wrote it."""
    import pyflink.version

    written_by = json.loads((savepoint / "manifest.json").read_text())["flink"]
    if _numbers(written_by) > _numbers(pyflink.version.__version__):
        pytest.skip("Flink does not promise to restore savepoints of later versions")
    place = folder / "elsewhere"
    shutil.copytree(savepoint, place)
    return place


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]


def restored(
    agent: Any,
    savepoint: Path,
    events: Sequence[tuple[str, ...]],
    options: dict[str, str],
    fields: Sequence[str] = ("key", "chat", "text"),
    answers: Sequence[tuple[str, str, str]] = (),
    waits: bool = False,
) -> list[Any]:
    """Return the outputs and error records of a job from its savepoint on, and with ``waits`` the records of questions.

    Args:
        agent: The agent of the savepoint.
        savepoint: Its directory.
        events: New events, with values of ``fields``.
        options: Options of the job.
        fields: The names of the fields. The first is the key.
        answers: Answers with key, wait and JSON. Without any, the agent has no input for answers.
        waits: True to return the records of questions as well.
    """
    from pyflink.common import Types

    from flink_skills import AgentsExecutionEnvironment
    from tests.flink.running import collect, flink_environment

    env = flink_environment(
        {
            "execution.state-recovery.path": savepoint.as_uri(),
            # The job had other sources.
            "execution.state-recovery.ignore-unclaimed-state": "true",
            **options,
        }
    )

    def rows(values: Sequence[Any], names: Sequence[str], uid: str) -> Any:
        # Without a uid Flink takes a source for that of the savepoint.
        row = Types.ROW_NAMED(list(names), [Types.STRING()] * len(names))
        return env.from_collection(list(values), row).uid(uid)

    agents = AgentsExecutionEnvironment.get_execution_environment(env)
    output = agents.from_datastream(rows(events, fields, "new events"), fields[0]).apply(agent)
    if answers:
        output.answers(rows(answers, ["key", "wait_id", "answer"], "new answers"), "key")
    return collect(output.to_datastream(), output.to_datastream(tag="errors"), *([output.to_wait_stream()] * waits))
