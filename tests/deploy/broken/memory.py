"""Memory, and values that cannot be read."""

from __future__ import annotations

from tests.deploy.broken.making import Broken, configure, drop, flink_of_the_job, options_of_the_job, put

BROKEN = [
    Broken(
        "memory_of_flink",
        "unreadable",
        put("taskManager", "resource", "memory", value="4 gigs"),
        "cannot read '4 gigs'",
    ),
    Broken(
        "memory_of_flink",
        "none",
        drop("jobManager", "resource", "memory"),
        "spec.jobManager.resource.memory is missing",
    ),
    Broken("memory_beside_the_jvm", "no room", configure(skills__worker__processes="16"), "16 workers: raise"),
    Broken(
        "memory_of_flink",
        "min above max",
        configure(taskmanager__memory__jvm_overhead__max="1g"),
        "min is above max",
    ),
    Broken(
        "memory_beside_the_jvm",
        "workers of the job's file",
        options_of_the_job("skills.worker.processes: 16"),
        r"fewer skills.worker.processes \(options of job.yaml\)",
    ),
    Broken(
        "memory_of_flink", "no heap", put("taskManager", "resource", "memory", value="1800m"), "taskManager.*is no heap"
    ),
    Broken(
        "memory_of_flink",
        "no heap for the job's main",
        put("jobManager", "resource", "memory", value="500m"),
        "jobManager.*is no heap",
    ),
    Broken("values", "slots", configure(taskmanager__numberOfTaskSlots="two"), "numberOfTaskSlots: cannot read 'two'"),
    Broken("values", "no slot", configure(taskmanager__numberOfTaskSlots="0"), "at least 1"),
    Broken("values", "interval", configure(execution__checkpointing__interval="5 sec s"), "interval: cannot read"),
    Broken(
        "values", "managed memory", configure(taskmanager__memory__managed__fraction="a third"), "cannot read 'a third'"
    ),
    Broken(
        "values",
        "interval of the job's file",
        flink_of_the_job("execution.checkpointing.interval: soon"),
        r"interval \(flink of job.yaml\): cannot read 'soon'",
    ),
]
