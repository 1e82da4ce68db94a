"""Jobs without code: a YAML file that says what comes in, which agent works, and where it goes."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.job.explaining import explain_job as explain_job
    from flink_skills.job.job_checks import Check as Check
    from flink_skills.job.job_checks import CheckReport as CheckReport
    from flink_skills.job.job_checks import check_job as check_job
    from flink_skills.job.job_main import run_job_file as run_job_file
    from flink_skills.job.job_model import JobFile as JobFile
    from flink_skills.job.job_model import job_schema as job_schema
    from flink_skills.job.job_reading import ReadJob as ReadJob
    from flink_skills.job.job_reading import read_job as read_job
    from flink_skills.job.sizing import Costs as Costs
    from flink_skills.job.sizing import Load as Load
    from flink_skills.job.sizing import Size as Size
    from flink_skills.job.sizing import size_of as size_of
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
