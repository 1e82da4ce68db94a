"""What a person needs who looks at a run that went wrong."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.faults.chaos import Kill
from tests.faults.ledger import Attempt
from tests.faults.plant import Plant
from tests.faults.topics import Reader, Row
from tests.faults.verdict import Verdict
from tests.kit.cluster import ClusterError, StandaloneCluster

__all__ = ["keep", "state"]


def state(cluster: StandaloneCluster, job: str | None, reader: Reader) -> list[str]:
    """How things are now: the job with its tasks, its last failure and checkpoint, and open transactions."""
    lines = [f"TaskManagers {cluster.task_managers()}, agent workers {cluster.worker_pids()}"]
    if job is None:
        return [*lines, "no job was submitted"]
    try:
        found = cluster.rest(f"/jobs/{job}")
        lines.append(f"job {job} is {found['state']}")
        lines += [f"  {vertex['name'][:60]}: {_tasks(vertex)}" for vertex in found["vertices"]]
        lines.append(f"its last failure: {cluster.failure(job) or 'none that this JobManager knows of'}")
        done = cluster.checkpoints(job)
        lines.append(f"its last completed checkpoint: {done[-1] if done else 'none since this JobManager started'}")
    except ClusterError as error:
        lines.append(f"the JobManager: {error}")
    for partition, (read_to, end) in reader.places().items():
        lines.append(f"output partition {partition}: committed up to {read_to}, written up to {end}")
    return lines


def _tasks(vertex: dict[str, Any]) -> str:
    return ", ".join(f"{count} {status}" for status, count in vertex["tasks"].items() if count)


def keep(
    folder: Path,
    verdict: Verdict,
    plant: Plant,
    job_file: Path,
    rows: Sequence[Row],
    attempts: Sequence[Attempt],
    kills: Sequence[Kill],
) -> None:
    """Copy logs, job file and books to ``folder``."""
    folder.mkdir(parents=True)
    (folder / "verdict.txt").write_text(f"{verdict}\n", encoding="utf-8")
    for name, found in (("rows", rows), ("attempts", attempts), ("kills", kills)):
        _write(folder / f"{name}.jsonl", found)
    shutil.copytree(plant.cluster.folder / "logs", folder / "logs")
    if job_file.is_file():
        shutil.copy(job_file, folder)


def _write(file: Path, found: Iterable[Any]) -> None:
    file.write_text("".join(f"{json.dumps(dataclasses.asdict(item))}\n" for item in found), encoding="utf-8")
