"""Flink: environment, options, job graph. The only package that imports ``pyflink``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.flink.bridge import add_bridge as add_bridge
    from flink_skills.flink.failures import JobFailedError as JobFailedError
    from flink_skills.flink.failures import job_failure as job_failure
    from flink_skills.flink.jar_resources import client_resources as client_resources
    from flink_skills.flink.summary import JobSummary as JobSummary
    from flink_skills.flink.summary import summary_of as summary_of

_HOMES = {
    "JobFailedError": "failures",
    "JobSummary": "summary",
    "add_bridge": "bridge",
    "client_resources": "jar_resources",
    "job_failure": "failures",
    "summary_of": "summary",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
