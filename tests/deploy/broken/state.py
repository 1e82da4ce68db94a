"""Checkpoints, high availability, and folders of tables."""

from __future__ import annotations

from tests.deploy.broken.making import Broken, both, configure, flink_of_the_job, job_file, one, put

BROKEN = [
    Broken(
        "checkpoints_and_availability",
        "no interval",
        configure(execution__checkpointing__interval=None),
        "interval is not set",
    ),
    Broken(
        "checkpoints_and_availability",
        "no folder",
        configure(execution__checkpointing__dir=None),
        "last-state needs execution",
    ),
    Broken(
        "checkpoints_and_availability",
        "no availability",
        configure(high_availability__type="NONE"),
        "several JobManagers need",
    ),
    Broken(
        "checkpoints_and_availability",
        "no storage",
        configure(high_availability__storageDir=None),
        "needs high-availability.storageDir",
    ),
    Broken("checkpoints_and_availability", "stateless", put("job", "upgradeMode", value="stateless"), "would forget"),
    Broken(
        "checkpoints_and_availability",
        "savepoints",
        both(configure(execution__checkpointing__savepoint_dir=None), put("job", "upgradeMode", value="savepoint")),
        "upgradeMode savepoint needs",
    ),
    Broken(
        "checkpoints_and_availability",
        "a session job",
        lambda o: one(o, "FlinkSessionJob")["spec"]["job"].update(upgradeMode="stateless"),
        "would forget",
        "session",
    ),
    Broken("checkpoints_and_availability", "old keys", configure(state__checkpoints__dir="s3://a/b"), "is of Flink 1"),
    Broken(
        "shared_folders",
        "in the container",
        configure(execution__checkpointing__dir="file:///data"),
        "on no volume in the jobmanager",
    ),
    Broken(
        "shared_folders",
        "ends with the pod",
        configure(high_availability__storageDir="file:///tmp/ha"),
        "kind emptyDir",
    ),
    Broken("shared_folders", "no scheme", configure(execution__checkpointing__dir="/data"), "write a scheme"),
    Broken("checkpoints_and_availability", "interval 0", configure(execution__checkpointing__interval="0 ms"), "is 0"),
    Broken(
        "checkpoints_and_availability",
        "interval 0 in the job's file",
        flink_of_the_job("execution.checkpointing.interval: 0 s"),
        r"interval \(flink of job.yaml\) is 0",
    ),
    Broken(
        "shared_folders",
        "of the job's file",
        flink_of_the_job("execution.checkpointing.dir: 'file:///nope'"),
        r"dir \(flink of job.yaml\): /nope is on no volume",
    ),
    Broken(
        "table_folders",
        "no volume",
        job_file("'topic' = 'failures'", "'path' = 'file:///flink-data/failures'"),
        "file:///flink-data/failures is on no volume in the taskmanager",
    ),
]
