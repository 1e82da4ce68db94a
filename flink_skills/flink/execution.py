"""Execution of a job: its result, its summary, or the message of its failure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pyflink.common import JobClient, JobExecutionResult
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.data_stream import CloseableIterator
from pyflink.java_gateway import get_gateway

from flink_skills.flink.failures import JobFailedError, job_failure
from flink_skills.flink.graph import is_local
from flink_skills.flink.summary import Applied, JobSummary, summary_of

__all__ = ["CollectedRecords", "collect", "execute"]


def execute(
    env: StreamExecutionEnvironment, outputs: Sequence[Applied], name: str | None
) -> tuple[JobExecutionResult, JobSummary | None]:
    """Run or submit a job, and return its result and its summary. Raises :class:`JobFailedError`.

    The summary is None for a job without agents, and for one that is submitted without waiting for its end.
    """
    try:
        result = env.execute(name) if name is not None else env.execute()
    except Exception as error:
        message = job_failure(error)
        if message is None:
            raise
        # Flink's error has a hundred lines. It stays the context, and is not printed.
        raise JobFailedError(message) from None
    if not outputs or not result._j_job_execution_result.isJobExecutionResult():
        return result, None
    return result, _summary(env, outputs, result)


class CollectedRecords(Iterator[Any]):
    """The records of a job, in the order of their arrival."""

    def __init__(
        self, env: StreamExecutionEnvironment, outputs: Sequence[Applied], records: CloseableIterator, client: JobClient
    ) -> None:
        self._env, self._outputs, self._records, self._client = env, outputs, records, client

    def __next__(self) -> Any:
        return next(self._records)

    def summary(self) -> JobSummary:
        """Wait for the job's end, and return its summary."""
        return _summary(self._env, self._outputs, self._client.get_job_execution_result().result())


@contextlib.contextmanager
def collect(
    env: StreamExecutionEnvironment, stream: DataStream, outputs: Sequence[Applied], name: str
) -> Iterator[CollectedRecords]:
    """Run a job, and yield what ``stream`` carries. This is ``execute_and_collect`` with a summary."""
    records = CloseableIterator(stream._j_data_stream.collectAsync(), stream.get_type())
    # Before the block, because the records of a job that was not submitted cannot be closed.
    client = env.execute_async(name)
    with records:
        yield CollectedRecords(env, outputs, records, client)


def _summary(env: StreamExecutionEnvironment, outputs: Sequence[Applied], result: JobExecutionResult) -> JobSummary:
    accumulators = dict(result.get_all_accumulator_results().items())
    return summary_of(accumulators, outputs, _log_file() if is_local(env) else "")


def _log_file() -> str:
    """Return the file of Flink's log in this process. Empty if there is none."""
    return str(get_gateway().jvm.java.lang.System.getProperty("log.file") or "")
