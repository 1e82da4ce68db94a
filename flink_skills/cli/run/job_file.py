"""``flink-skills run JOB.yaml``: run, check or explain a job file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from flink_skills.cli.printing import counted, print_error, print_line
from flink_skills.cli.run.job_local import LocalRequest, run_locally
from flink_skills.documents.problems import DocumentError
from flink_skills.errors import ConfigError, SkillsError

__all__ = ["JobRequest", "run_job_request"]

DONE, FAILED, USAGE, SOME_ERRORS = 0, 1, 2, 3


@dataclass(frozen=True)
class JobRequest:
    """Arguments of ``flink-skills run`` for a job file."""

    file: Path
    assignments: tuple[str, ...] = ()
    check: bool = False
    explain: bool = False
    reach: bool = False
    flink_plan: bool = False
    load: str | None = None
    as_json: bool = False
    failed: Path | None = None
    local: LocalRequest | None = None


def run_job_request(request: JobRequest) -> int:
    """Run, check or explain the job file, and return the exit code.

    Raises:
        ConfigError: Options exclude or require each other.
    """
    if request.failed is not None and (request.check or request.explain):
        raise ConfigError("--input reruns failed events and cannot be combined with --check or --explain")
    if request.check and request.explain:
        raise ConfigError("--check and --explain cannot be combined. Omit one of them.")
    if request.flink_plan and not request.explain:
        raise ConfigError("--flink-plan requires --explain")
    if request.load is not None and not request.explain:
        raise ConfigError("--load requires --explain")
    if request.reach and not (request.check or request.explain):
        raise ConfigError("--reach requires --check or --explain")
    if request.as_json and not (request.check or request.explain):
        raise ConfigError("--format json requires --check or --explain: a job writes its outputs to tables")
    try:
        return _run(request)
    except DocumentError as error:
        # Each problem starts with its file and line, as in compiler output.
        for problem in error.problems:
            print_line(str(problem), stream=sys.stderr)
        print_error(f"invalid job file: {counted(len(error.problems), 'problem')}")
        return USAGE


def _run(request: JobRequest) -> int:
    if request.local is not None:
        return run_locally(request.file, request.assignments, request.local)
    if request.check:
        from flink_skills.cli.run.job_check import check

        return check(request.file, request.assignments, reach=request.reach, as_json=request.as_json)
    if request.explain:
        from flink_skills.cli.run.job_output import explain

        return explain(
            request.file,
            request.assignments,
            reach=request.reach,
            flink_plan=request.flink_plan,
            load=request.load,
            as_json=request.as_json,
        )
    return _execute(request)


def _execute(request: JobRequest) -> int:
    from flink_skills.job.job_main import run_job_file

    def print_warning(message: str) -> None:
        print_error(f"warning: {message}")

    def print_summary(line: str) -> None:
        print_line(line, stream=sys.stderr)

    try:
        failed = run_job_file(
            request.file,
            request.assignments,
            local=True,
            failed=request.failed,
            warn=print_warning,
            summarize=print_summary,
        )
    except DocumentError:
        raise
    except SkillsError as error:
        if not _is_job_failure(error):
            raise
        print_error(f"the job failed: {error}")
        return FAILED
    return SOME_ERRORS if failed else DONE


def _is_job_failure(error: SkillsError) -> bool:
    """Return True if a job was submitted and failed. Without Flink no job can have been submitted."""
    try:
        from flink_skills.flink.flink_failures import JobFailedError
    except ImportError:
        return False
    return isinstance(error, JobFailedError)
