"""Rules about memory, and about values of Flink's options that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from deploy.check.finding import Finding, Manifests
from deploy.check.jobs import Job, jobs
from deploy.check.pods import Cluster, clusters
from deploy.check.quantities import read_count, read_duration, read_factor, read_memory

__all__ = ["memory_beside_the_jvm", "memory_of_flink", "values"]

# What one worker process needs before its first turn, and the JVM beside its heap.
WORKER = 192 << 20
JVM = 192 << 20
METASPACE = 256 << 20
# The heap that the main program of a job and the REST interface, or a task, need at the least.
LEAST_HEAP = 64 << 20
ROLES = {"jobmanager": "jobManager", "taskmanager": "taskManager"}
# With one of these Flink reckons from another side than the container's size.
EXPLICIT = ("memory.flink.size", "memory.heap.size", "memory.task.heap.size", "memory.process.size")

Reader = Callable[[object], float | None]
# Ends of keys, what reads their values, and what to write.
FORMS: tuple[tuple[tuple[str, ...], Reader, str], ...] = (
    (
        (
            "execution.checkpointing.interval",
            "execution.checkpointing.timeout",
            "execution.checkpointing.min-pause",
            "execution.checkpointing.interval-during-backlog",
        ),
        read_duration,
        "a duration such as 30 s",
    ),
    (
        ("taskmanager.numberOfTaskSlots", "parallelism.default", "pipeline.max-parallelism"),
        read_count,
        "a whole number",
    ),
    (
        (
            "memory.jvm-overhead.min",
            "memory.jvm-overhead.max",
            "memory.jvm-metaspace.size",
            "memory.managed.size",
            "memory.flink.size",
            "memory.heap.size",
            "memory.off-heap.size",
            "memory.task.heap.size",
            "memory.task.off-heap.size",
            "memory.framework.heap.size",
            "memory.framework.off-heap.size",
            "memory.network.min",
            "memory.network.max",
        ),
        read_memory,
        "an amount such as 640m",
    ),
    (
        ("memory.limit-factor", "cpu.limit-factor", "memory.managed.fraction", "memory.jvm-overhead.fraction"),
        read_factor,
        "a number such as 1.5",
    ),
)


def values(manifests: Manifests) -> Iterator[Finding]:
    """Durations, sizes and numbers of Flink's options can be read, and there is a slot."""
    for job in jobs(manifests):
        for key, setting in job.settings.items():
            for ends, read, form in FORMS:
                if setting.is_known and key.endswith(ends) and read(setting.value) is None:
                    yield Finding(job.place, f"{job.named(key)}: cannot read '{setting.value}'; write {form}")
        if read_count(job.get("taskmanager.numberOfTaskSlots", "1")) == 0:
            yield Finding(job.place, f"{job.named('taskmanager.numberOfTaskSlots')}: at least 1")


def memory_of_flink(manifests: Manifests) -> Iterator[Finding]:
    """The sizes of the containers can be read, and leave a heap when everything else has its part."""
    for cluster in clusters(manifests):
        for role, field in ROLES.items():
            memory = ((cluster.spec.get(field) or {}).get("resource") or {}).get("memory")
            if memory is None:
                yield Finding(cluster.place, f"spec.{field}.resource.memory is missing")
            elif read_memory(memory) is None:
                yield Finding(cluster.place, f"spec.{field}.resource.memory: cannot read '{memory}'; write 4096m")
            elif not any(f"{role}.{key}" in cluster.configuration for key in EXPLICIT):
                yield from _heap(cluster, role, field, read_memory(memory) or 0)
            least, most = (_memory(cluster, role, f"jvm-overhead.{end}", size) for end, size in _OVERHEAD)
            if least > most:
                yield Finding(cluster.place, f"{role}.memory.jvm-overhead: min is above max")


_OVERHEAD = (("min", 192 << 20), ("max", 1 << 30))


def _heap(cluster: Cluster, role: str, field: str, whole: int) -> Iterator[Finding]:
    least, most = (_memory(cluster, role, f"jvm-overhead.{end}", size) for end, size in _OVERHEAD)
    share = _factor(cluster, f"{role}.memory.jvm-overhead.fraction", 0.1)
    beside = min(max(int(whole * share), least), max(least, most)) + _memory(
        cluster, role, "jvm-metaspace.size", METASPACE
    )
    flink = whole - beside
    if role == "jobmanager":
        taken = _memory(cluster, role, "off-heap.size", 128 << 20)
    else:
        managed = _memory(
            cluster, role, "managed.size", int(flink * _factor(cluster, f"{role}.memory.managed.fraction", 0.4))
        )
        network = min(max(int(flink * 0.1), _memory(cluster, role, "network.min", 64 << 20)), 1 << 40)
        frame = _memory(cluster, role, "framework.heap.size", 128 << 20)
        frame += _memory(cluster, role, "framework.off-heap.size", 128 << 20)
        taken = managed + network + frame + _memory(cluster, role, "task.off-heap.size", 0)
    if flink - taken < LEAST_HEAP:
        need = LEAST_HEAP + taken - flink
        yield Finding(
            cluster.place,
            f"spec.{field}.resource.memory: of {whole >> 20} MiB the JVM's overhead and metaspace take {beside >> 20}, "
            f"and what is left is no heap: about {(whole + need) >> 20} MiB at the least",
        )


def _memory(cluster: Cluster, role: str, key: str, default: int) -> int:
    found = read_memory(cluster.configuration.get(f"{role}.memory.{key}", str(default)))
    return default if found is None else found


def _factor(cluster: Cluster, key: str, default: float) -> float:
    found = read_factor(cluster.configuration.get(key, str(default)))
    return default if found is None else found


def memory_beside_the_jvm(manifests: Manifests) -> Iterator[Finding]:
    """Room in the TaskManager's container for the worker processes, which Flink's memory model does not know."""
    for job in jobs(manifests):
        yield from _workers(job, job.cluster)


def _workers(job: Job, cluster: Cluster) -> Iterator[Finding]:
    key = "skills.worker.processes"
    processes = read_count(job.get(key, "0")) or 4
    room = _memory(cluster, "taskmanager", "jvm-overhead.min", 192 << 20)
    beside = _unmanaged(cluster)
    needed = JVM + processes * WORKER
    if room + beside < needed:
        yield Finding(
            job.place,
            f"{(room + beside) >> 20} MiB for the JVM's overhead and {processes} workers: raise "
            f"taskmanager.memory.jvm-overhead.min to {needed >> 20}m, or set fewer {job.named(key)}",
        )


def _unmanaged(cluster: Cluster) -> int:
    """What the container's limit is above Flink's process size."""
    factor = _factor(cluster, "kubernetes.taskmanager.memory.limit-factor", 1.0)
    resource = (cluster.spec.get("taskManager") or {}).get("resource") or {}
    return int((read_memory(resource.get("memory", "0")) or 0) * (factor - 1))
