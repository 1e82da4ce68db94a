"""Runs the job of a file: in a mini cluster of this process, or submitted from a job's main."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from flink_skills.job.advice import job_warnings
from flink_skills.job.building import JobBuilder
from flink_skills.job.reading import read_job

__all__ = ["run_job_file"]

_log = logging.getLogger("flink_skills.job")


def run_job_file(
    path: str | Path,
    assignments: Iterable[str] = (),
    *,
    local: bool,
    failed: str | Path | None = None,
    tell: Callable[[str], None] = _log.warning,
    summarize: Callable[[str], None] = _log.info,
) -> int:
    """Read, check and run a job file, and return the number of failed turns.

    The number is 0 after ``flink run --detached``.

    Args:
        path: The file.
        assignments: ``KEY=VALUE`` words that win over the file.
        local: Use the ``jars`` of the file and a free port. Without it the cluster has its class path.
        failed: Error records of the job, a file or a folder of JSON lines: their events are run again in place of the
            job's input.
        tell: Gets each warning.
        summarize: Receives each line about the turns of a job that has ended.

    Raises:
        DocumentError: with everything that is wrong with the file.
        SkillsError: the job failed.
    """
    read = read_job(path, assignments)
    with read.hiding(), tempfile.TemporaryDirectory(prefix="flink-skills-job-") as folder:
        builder = JobBuilder(read, local=local, failed=None if failed is None else Path(failed), folder=Path(folder))
        graph = builder.build()
        for warning in job_warnings(builder):
            tell(read.references.hide(warning))
        summary = graph.execute(read.job.name)
        if summary is None:
            return 0
        for line in summary.lines(errors="name a table under 'errors'"):
            summarize(read.references.hide(line))
        return summary.failed
