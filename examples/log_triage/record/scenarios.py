"""What goes wrong, and how: one function per recorded job."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster import Cluster, python_interpreter

JOBS = Path(__file__).parent / "jobs"
CHECKPOINTS = "-Dexecution.checkpointing.interval=2s"
RESTARTS = (
    "-Drestart-strategy.type=fixed-delay",
    "-Drestart-strategy.fixed-delay.attempts=2",
    "-Drestart-strategy.fixed-delay.delay=1s",
)
# Otherwise both subtasks may sit on the TaskManager that survives.
SPREAD_OUT = {"taskmanager.load-balance.mode": "SLOTS"}


@dataclass(frozen=True)
class Scenario:
    """One recording: `play` breaks the job; the logs named in `keep` are stored under the job's name."""

    job: str
    play: Callable[[Cluster, Path], None]
    keep: tuple[str, ...] = ("jobmanager",)
    taskmanagers: int = 1
    slots: int = 2
    settings: Mapping[str, str] = field(default_factory=dict)


def java(cluster: Cluster, jar: Path, name: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
    cluster.submit(*options, "-c", f"com.example.jobs.{name}", str(jar), *arguments)


def user_function(cluster: Cluster, jar: Path) -> None:
    java(cluster, jar, "OrdersEnrichment", options=(CHECKPOINTS, *RESTARTS))
    cluster.wait_log("jobmanager", "switched from state FAILING to FAILED")


def python_function(cluster: Cluster, jar: Path) -> None:
    python = python_interpreter()
    script = str(JOBS / "ratings_scoring.py")
    cluster.submit("-pyexec", python, "-pyclientexec", python, "-py", script)
    cluster.wait_log("jobmanager", "switched from state FAILING to FAILED")


def killed_taskmanager(cluster: Cluster, jar: Path) -> None:
    # The first restarts go to slots of the dead TaskManager, so two attempts would not be enough.
    options = (
        "-p",
        "2",
        CHECKPOINTS,
        *RESTARTS[:1],
        "-Drestart-strategy.fixed-delay.attempts=30",
        RESTARTS[2],
    )
    java(cluster, jar, "ClickSessions", "click-sessions", "1000000", options=options)
    cluster.wait_log("jobmanager", "Completed checkpoint")
    cluster.signal("taskmanager-2", signal.SIGKILL)
    completed = cluster.log("jobmanager").count("Completed checkpoint")
    cluster.wait_log("jobmanager", "switched from state RESTARTING to RUNNING")
    cluster.wait_log("jobmanager", "Completed checkpoint", times=completed + 2)


def frozen_taskmanager(cluster: Cluster, jar: Path) -> None:
    options = ("-p", "2", CHECKPOINTS, *RESTARTS)
    java(cluster, jar, "ClickSessions", "visitor-counts", "1000000", options=options)
    cluster.wait_log("jobmanager", "Completed checkpoint")
    # A stopped process looks like a long garbage collection or a host that swaps.
    cluster.signal("taskmanager-2", signal.SIGSTOP)
    cluster.wait_log("jobmanager", "switched from state RUNNING to RESTARTING")
    cluster.signal("taskmanager-2", signal.SIGCONT)
    completed = cluster.log("jobmanager").count("Completed checkpoint")
    cluster.wait_log("jobmanager", "Completed checkpoint", times=completed + 1)


def checkpoint_timeout(cluster: Cluster, jar: Path) -> None:
    options = (
        "-p",
        "2",
        CHECKPOINTS,
        "-Dexecution.checkpointing.timeout=5s",
        "-Dexecution.checkpointing.tolerable-failed-checkpoints=1",
        *RESTARTS,
    )
    java(cluster, jar, "FraudScore", options=options)
    cluster.wait_log("jobmanager", "FlinkRuntimeException: Exceeded checkpoint tolerable", times=2)


def checkpoint_storage_lost(cluster: Cluster, jar: Path) -> None:
    storage = cluster.folder / "checkpoints"
    options = (
        CHECKPOINTS,
        f"-Dexecution.checkpointing.dir={storage.as_uri()}",
        "-Dexecution.checkpointing.tolerable-failed-checkpoints=1",
        *RESTARTS,
    )
    java(cluster, jar, "ClickSessions", "inventory-sync", "1000000", options=options)
    cluster.wait_log("jobmanager", "Completed checkpoint", times=2)
    # A file where the folder was: as unwritable for root as for anybody else.
    shutil.rmtree(storage)
    storage.write_text("not a folder")
    cluster.wait_log("jobmanager", "Exceeded checkpoint tolerable failure threshold")


def savepoint_missing(cluster: Cluster, jar: Path) -> None:
    missing = (cluster.folder / "savepoints" / "savepoint-4f2a11-0c9d7e5b8a31").as_uri()
    options = ("-s", missing, CHECKPOINTS)
    java(cluster, jar, "ClickSessions", "invoice-totals", "1000000", options=options)
    cluster.wait_log("jobmanager", "Cannot find checkpoint or savepoint file/directory")


def heap_full(cluster: Cluster, jar: Path) -> None:
    java(cluster, jar, "SessionProfiles", options=("-Dexecution.checkpointing.interval=1min", *RESTARTS))
    # A heap that is full hits Flink's own threads too, so the TaskManager ends and its last slots are gone.
    cluster.wait_log("taskmanager-1", "OutOfMemoryError: Java heap space", seconds=120)
    cluster.wait_log("jobmanager", "NoResourceAvailableException")


def metaspace_full(cluster: Cluster, jar: Path) -> None:
    java(cluster, jar, "RulesEngine", options=(CHECKPOINTS, *RESTARTS))
    cluster.wait_log("taskmanager-1", "OutOfMemoryError: Metaspace", seconds=120)
    cluster.wait_log("jobmanager", "switched from state RUNNING to RESTARTING")


def direct_memory_full(cluster: Cluster, jar: Path) -> None:
    java(cluster, jar, "ThumbnailCache", options=(CHECKPOINTS, "-Drestart-strategy.type=none"))
    cluster.wait_log("jobmanager", "switched from state FAILING to FAILED", seconds=90)


def missing_class(cluster: Cluster, jar: Path) -> None:
    java(cluster, jar, "GeoLookup", options=(CHECKPOINTS, "-Drestart-strategy.type=none"))
    cluster.wait_log("jobmanager", "switched from state FAILING to FAILED")


def missing_connector(cluster: Cluster, jar: Path) -> None:
    python = python_interpreter()
    cluster.submit("-pyexec", python, "-pyclientexec", python, "-py", str(JOBS / "kafka_ingest.py"), detached=False)


def no_slots(cluster: Cluster, jar: Path) -> None:
    options = ("-p", "8", CHECKPOINTS, *RESTARTS)
    java(cluster, jar, "ClickSessions", "nightly-backfill", "1000000", options=options)
    cluster.wait_log("jobmanager", "switched from state FAILING to FAILED", seconds=90)


def service_down(cluster: Cluster, jar: Path) -> None:
    # Port 9 (discard) is not served on a normal machine.
    java(cluster, jar, "SensorGateway", "localhost", "9", options=(CHECKPOINTS, *RESTARTS))
    cluster.wait_log("jobmanager", "switched from state FAILING to FAILED")


def healthy(cluster: Cluster, jar: Path) -> None:
    java(cluster, jar, "ClickSessions", "page-views", "4000", options=("-p", "2", CHECKPOINTS))
    cluster.wait_log("jobmanager", "switched from state RUNNING to FINISHED")


SCENARIOS = (
    Scenario("orders-enrichment", user_function),
    Scenario("ratings-scoring", python_function),
    Scenario("click-sessions", killed_taskmanager, taskmanagers=2, settings=SPREAD_OUT),
    Scenario(
        "visitor-counts",
        frozen_taskmanager,
        keep=("jobmanager", "taskmanager-2"),
        taskmanagers=2,
        settings={"heartbeat.timeout": "8s", "heartbeat.interval": "2s", **SPREAD_OUT},
    ),
    Scenario("payments-fraud-score", checkpoint_timeout),
    Scenario("inventory-sync", checkpoint_storage_lost),
    Scenario("invoice-totals", savepoint_missing),
    Scenario(
        "session-profiles",
        heap_full,
        keep=("jobmanager", "taskmanager-1"),
        settings={"slot.request.timeout": "5s"},
    ),
    Scenario(
        "rules-engine",
        metaspace_full,
        keep=("jobmanager", "taskmanager-1"),
        settings={"taskmanager.memory.jvm-metaspace.size": "80m"},
    ),
    Scenario("thumbnail-cache", direct_memory_full),
    Scenario("geo-lookup", missing_class, keep=("taskmanager-1",)),
    Scenario("kafka-ingest", missing_connector, keep=("client",)),
    Scenario("nightly-backfill", no_slots, settings={"slot.request.timeout": "5s"}),
    Scenario("sensor-gateway", service_down),
    Scenario("page-views", healthy),
)
