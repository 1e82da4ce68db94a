"""One mini cluster for all jobs of a test process: a mini cluster for each job costs more than its turns."""

from __future__ import annotations

import functools
from typing import Any

from py4j.java_gateway import get_java_class
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from tests.kit.flink_rest import wait_until

__all__ = ["belongs_to_the_cluster", "use_shared_cluster"]

SLOTS = 12
OPTIONS = {
    # Each job takes its part of them; Flink's own numbers are for a mini cluster with one job.
    "taskmanager.memory.managed.size": "512m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.task.off-heap.size": "512m",
    "web.submit.enable": "false",
}
_OF_THE_CLUSTER = ("blob.", "cluster.", "heartbeat.", "jobmanager.", "metrics.", "rest.", "taskmanager.", "web.")
_DEADLINE = 120


def belongs_to_the_cluster(option: str) -> bool:
    """Whether Flink reads this option where a cluster starts, and not for each job."""
    return option.startswith(_OF_THE_CLUSTER)


def use_shared_cluster(env: StreamExecutionEnvironment) -> None:
    """Send the jobs of a local environment to the cluster of this process. For all else the environment stays local."""
    j_env = env._j_stream_execution_environment
    field = get_java_class(get_gateway().jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment)
    loader = field.getDeclaredField("executorServiceLoader")
    loader.setAccessible(True)
    loader.set(j_env, _Executor())


@functools.cache
def _shared_cluster() -> Any:
    """The cluster. It ends with the JVM of this process."""
    jvm = get_gateway().jvm
    configuration = Configuration()
    for key, value in OPTIONS.items():
        configuration.set_string(key, value)
    runtime = jvm.org.apache.flink.runtime.minicluster
    builder = runtime.MiniClusterConfiguration.Builder().setConfiguration(configuration._j_configuration)
    cluster = runtime.MiniCluster(builder.setNumSlotsPerTaskManager(SLOTS).withRandomPorts().build())
    cluster.start()
    return cluster


class _Executor:
    """Flink's interfaces of an executor: like its ``LocalExecutor``, with a cluster that outlives the job."""

    def getExecutorFactory(self, configuration: Any) -> _Executor:
        return self

    def getExecutor(self, configuration: Any) -> _Executor:
        return self

    def execute(self, pipeline: Any, configuration: Any, class_loader: Any) -> Any:
        jvm = get_gateway().jvm
        cluster = _shared_cluster()
        executors = jvm.org.apache.flink.client.deployment.executors
        graph = executors.PipelineExecutorUtils.getStreamGraph(pipeline, configuration)
        job_id = cluster.submitJob(graph).get().getJobID()
        future = jvm.java.util.concurrent.CompletableFuture
        wait_until(
            lambda: cluster.getJobStatus(job_id).get().toString() != "INITIALIZING", _DEADLINE, "the job to begin"
        )
        if cluster.getJobStatus(job_id).get().toString() == "FAILED":
            failure = cluster.requestJobResult(job_id).get().getSerializedThrowable().get()
            # Any other failure is that of the job's result.
            error = failure.deserializeError(class_loader)
            if error.getClass().getSimpleName() == "JobInitializationException":
                return future.failedFuture(error)
        runtime = jvm.org.apache.flink.runtime.minicluster
        stays = getattr(runtime, "MiniClusterJobClient$JobFinalizationBehavior").NOTHING
        return future.completedFuture(runtime.MiniClusterJobClient(job_id, cluster, class_loader, stays))

    class Java:
        implements = (
            "org.apache.flink.core.execution.PipelineExecutorServiceLoader",
            "org.apache.flink.core.execution.PipelineExecutorFactory",
            "org.apache.flink.core.execution.PipelineExecutor",
        )
