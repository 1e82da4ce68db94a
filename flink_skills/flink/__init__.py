"""Flink: environment, options, job graph. The only package that imports ``pyflink``."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.flink.bridge import add_bridge as add_bridge
    from flink_skills.flink.flink_failures import JobFailedError as JobFailedError
    from flink_skills.flink.flink_failures import job_failure as job_failure
    from flink_skills.flink.jar_resources import client_resources as client_resources
    from flink_skills.flink.job_execution import JobSummary as JobSummary
    from flink_skills.flink.job_execution import summary_of as summary_of
    from flink_skills.flink.savepoints import Savepoint as Savepoint
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
