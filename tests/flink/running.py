"""Running jobs in a mini cluster and reading what they say."""

from __future__ import annotations

import json
import sys
from functools import reduce
from pathlib import Path
from typing import Any

from pyflink.common import CompletableFuture, Configuration, JobClient
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from flink_skills import AgentsExecutionEnvironment
from flink_skills.flink import job_failure
from tests.flink.shared_cluster import belongs_to_the_cluster, use_shared_cluster

__all__ = [
    "agents_environment",
    "collect",
    "environments",
    "failure_of",
    "flink_environment",
    "nodes",
    "operators",
    "stop_with_savepoint",
    "take_savepoint",
]


def flink_environment(options: dict[str, str] | None = None, parallelism: int = 1) -> StreamExecutionEnvironment:
    """An environment for one job, with one agent worker, for the sake of the machine. The job runs in the cluster of
    this process; with options of a cluster, in a mini cluster that has them."""
    configuration = Configuration()
    own = {"rest.port": "0", "skills.worker.processes": "1", "python.executable": sys.executable}
    for key, value in {**own, **(options or {})}.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    if not any(belongs_to_the_cluster(option) for option in options or {}):
        use_shared_cluster(env)
    return env


def environments(
    options: dict[str, str] | None = None, parallelism: int = 1
) -> tuple[StreamExecutionEnvironment, AgentsExecutionEnvironment]:
    """Return such an environment, and that of agents in it."""
    env = flink_environment(options, parallelism)
    return env, AgentsExecutionEnvironment.get_execution_environment(env)


def agents_environment(options: dict[str, str] | None = None, parallelism: int = 1) -> AgentsExecutionEnvironment:
    """The same, for agents alone."""
    return environments(options, parallelism)[1]


def collect(*streams: DataStream) -> list[Any]:
    """Run the job and return what these streams of one type carried."""
    together = reduce(lambda left, right: left.union(right), streams)
    with together.execute_and_collect() as records:
        return list(records)


def failure_of(stream: DataStream) -> str:
    """Run a job that must fail, and return the message of its root cause as users read it."""
    try:
        records = collect(stream)
    except Exception as error:
        message = job_failure(error)
        assert message is not None, f"not a failed job: {error!r}"
        return message
    raise AssertionError(f"the job did not fail; it gave {records}")


def nodes(agents_env: AgentsExecutionEnvironment) -> list[dict[str, Any]]:
    """The operators of Flink's own plan."""
    found: list[dict[str, Any]] = json.loads(agents_env.get_execution_plan())["flink"]["nodes"]
    return found


def operators(env: StreamExecutionEnvironment) -> list[str]:
    """The Java classes of the job's operators."""
    graph = env._j_stream_execution_environment.getStreamGraph(False)
    classes = []
    for node in graph.getStreamNodes().toArray():
        factory = node.getOperatorFactory()
        if factory is not None:
            classes.append(factory.getStreamOperatorClass(None).getName())
    return classes


def stop_with_savepoint(client: JobClient, folder: Path, *, drain: bool = False) -> CompletableFuture:
    """The future of the savepoint's place. Flink 2 has no longer the method that PyFlink's client calls for it."""
    return CompletableFuture(client._j_job_client.stopWithSavepoint(drain, folder.as_uri(), _canonical()), str)


def take_savepoint(client: JobClient, folder: Path) -> CompletableFuture:
    """The same of a job that runs on."""
    return CompletableFuture(client._j_job_client.triggerSavepoint(folder.as_uri(), _canonical()), str)


def _canonical() -> Any:
    return get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
