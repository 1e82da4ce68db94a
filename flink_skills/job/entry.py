"""The command line of a job's main."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flink_skills.documents.problems import DocumentError
from flink_skills.errors import SkillsError
from flink_skills.job.running import run_job_file
from flink_skills.job.terminal_text import visible

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Submit the job of a file; returns the exit code: 0, 1 when the job failed, 2 when the file cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m flink_skills.job", description="Submits the job of a job file from inside a Flink program."
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="The job file.")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="An option, skills.* or Flink's; wins."
    )
    options = parser.parse_args(arguments)
    try:
        run_job_file(options.config, options.set, local=False, tell=_warn, summarize=_summarize)
    except DocumentError as error:
        sys.stderr.write("".join(f"{visible(str(problem))}\n" for problem in error.problems))
        return 2
    except SkillsError as error:
        from flink_skills.flink.flink_failures import JobFailedError

        sys.stderr.write(f"flink_skills.job: {visible(str(error))}\n")
        return 1 if isinstance(error, JobFailedError) else 2
    return 0


def _summarize(line: str) -> None:
    sys.stderr.write(f"flink_skills.job: {visible(line)}\n")


def _warn(warning: str) -> None:
    sys.stderr.write(f"flink_skills.job: warning: {visible(warning)}\n")
