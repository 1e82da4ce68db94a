"""Run of the job of a file, in a MiniCluster of this process or submitted, and the command line of a job's main."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from flink_skills.documents.document import DocumentError
from flink_skills.errors import SkillsError
from flink_skills.job.building import JobBuilder, job_warnings
from flink_skills.job.job_reading import read_job
from flink_skills.texts import visible

_log = logging.getLogger("flink_skills.job")


def run_job_file(
    path: str | Path,
    assignments: Iterable[str] = (),
    *,
    local: bool,
    failed: str | Path | None = None,
    warn: Callable[[str], None] = _log.warning,
    summarize: Callable[[str], None] = _log.info,
) -> int:
    """Read, check and run a job file, and return the number of failed turns.

    The number is 0 after ``flink run --detached``.

    Args:
        path: The file.
        assignments: ``KEY=VALUE`` arguments, which override the file.
        local: Use the ``jars`` of the file and a free port. Without it the cluster has its class path.
        failed: Error records of the job, a file or a folder of JSON lines: their events are run again in place of the
            job's input.
        warn: Receives each warning.
        summarize: Receives each line about the turns of a job that has ended.

    Raises:
        DocumentError: All problems of the file.
        SkillsError: The job failed.
    """
    read = read_job(path, assignments)
    with read.hiding(), tempfile.TemporaryDirectory(prefix="flink-skills-job-") as folder:
        builder = JobBuilder(read, local=local, failed=None if failed is None else Path(failed), folder=Path(folder))
        graph = builder.build()
        for warning in job_warnings(builder):
            warn(read.references.hide(warning))
        summary = graph.execute(read.job.name)
        if summary is None:
            return 0
        for line in summary.lines(errors="name a table under 'errors'"):
            summarize(read.references.hide(line))
        return summary.failed


def main(arguments: Sequence[str]) -> int:
    """Submit the job of a file, and return the exit code.

    It is 0, 1 if the job failed, or 2 if the file has problems.
    """
    parser = argparse.ArgumentParser(
        prog="python -m flink_skills.job", description="Submits the job of a job file from inside a Flink program."
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="The job file.")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="An option, skills.* or Flink's; wins."
    )
    options = parser.parse_args(arguments)
    try:
        run_job_file(
            options.config,
            options.set,
            local=False,
            warn=lambda warning: _print(f"warning: {warning}"),
            summarize=_print,
        )
    except DocumentError as error:
        sys.stderr.write("".join(f"{visible(str(problem))}\n" for problem in error.problems))
        return 2
    except SkillsError as error:
        from flink_skills.flink.flink_failures import JobFailedError

        _print(str(error))
        return 1 if isinstance(error, JobFailedError) else 2
    return 0


def _print(line: str) -> None:
    sys.stderr.write(f"flink_skills.job: {visible(line)}\n")
