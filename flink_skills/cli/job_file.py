"""``flink-skills run JOB.yaml``: run, check or explain a job file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from flink_skills.cli.job_local import LocalRequest, run_locally
from flink_skills.cli.output import complain, counted, print_line
from flink_skills.documents.problems import DocumentError
from flink_skills.errors import ConfigError, SkillsError

__all__ = ["JobRequest", "run_job_request"]

DONE, FAILED, USAGE, SOME_ERRORS = 0, 1, 2, 3


@dataclass(frozen=True)
class JobRequest:
    """What the command line asks for."""

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
    """Do it; returns the exit code."""
    if request.failed is not None and (request.check or request.explain):
        raise ConfigError("--input runs a job file on what has failed: leave out --check and --explain")
    if request.check and request.explain:
        raise ConfigError("give --check or --explain, not both")
    if request.flink_plan and not request.explain:
        raise ConfigError("--flink-plan needs --explain")
    if request.load is not None and not request.explain:
        raise ConfigError("--load needs --explain")
    if request.reach and not (request.check or request.explain):
        raise ConfigError("--reach needs --check or --explain")
    if request.as_json and not (request.check or request.explain):
        raise ConfigError("--format json needs --check or --explain; a job writes to its tables")
    try:
        return _run(request)
    except DocumentError as error:
        # Each problem begins with its file and line, as a compiler's does.
        for problem in error.problems:
            print_line(str(problem), stream=sys.stderr)
        complain(f"{counted(len(error.problems), 'problem')} in the job file")
        return USAGE


def _run(request: JobRequest) -> int:
    if request.local is not None:
        return run_locally(request.file, request.assignments, request.local)
    if request.check:
        from flink_skills.cli.job_check import check

        return check(request.file, request.assignments, reach=request.reach, as_json=request.as_json)
    if request.explain:
        from flink_skills.cli.job_explain import explain

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
    from flink_skills.job.running import run_job_file

    def tell(message: str) -> None:
        complain(f"warning: {message}")

    def summarize(line: str) -> None:
        print_line(line, stream=sys.stderr)

    try:
        failed = run_job_file(
            request.file, request.assignments, local=True, failed=request.failed, tell=tell, summarize=summarize
        )
    except DocumentError:
        raise
    except SkillsError as error:
        if not _has_failed(error):
            raise
        complain(f"the job failed: {error}")
        return FAILED
    return SOME_ERRORS if failed else DONE


def _has_failed(error: SkillsError) -> bool:
    """Whether a job ran and failed; without Flink none has."""
    try:
        from flink_skills.flink.failures import JobFailedError
    except ImportError:
        return False
    return isinstance(error, JobFailedError)
