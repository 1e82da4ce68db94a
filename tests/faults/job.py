"""The job of a run, as a job file: Kafka in, agent, Kafka out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.faults.jars import connector
from tests.kit.cluster import StandaloneCluster

__all__ = ["Setting", "submit"]

_AGENT = Path(__file__).parent / "fault_agent.py"
# Longer than an outage of the tests, and within the broker's maximum of 15 min.
_TRANSACTION = 5 * 60 * 1000


@dataclass(frozen=True)
class Setting:
    """How a job runs. With ``rescaled``, it is stopped with a savepoint in the middle, and goes on with that
    parallelism. ``interval``: seconds between checkpoints. ``crashes`` is ``skills.worker.max-crashes``, ``timeout``
    is ``skills.turn.timeout`` in seconds; 0: the product's default. With ``waits``, people answer two questions of
    each order, and its turn sleeps."""

    mode: str = "exactly-once"
    backend: str = "hashmap"
    aligned: bool = True
    interval: int = 1
    parallelism: int = 4
    rescaled: int = 0
    crashes: int = 0
    timeout: int = 0
    waits: bool = False

    def __str__(self) -> str:
        """One line, with what differs."""
        parallelism = f"{self.parallelism}->{self.rescaled}" if self.rescaled else str(self.parallelism)
        aligned = "aligned" if self.aligned else "unaligned"
        waits = ", with waits" if self.waits else ""
        return f"{self.mode}, {self.backend}, {aligned}, every {self.interval} s, parallelism {parallelism}{waits}"


def submit(
    cluster: StandaloneCluster,
    file: Path,
    setting: Setting,
    broker: str,
    run: str,
    *,
    parallelism: int,
    savepoint: str | None = None,
) -> str:
    """Write the job file and submit it as a user would; returns the job's id."""
    file.write_text(_text(setting, broker, run, parallelism), encoding="utf-8")
    words = ["run", "-d", *cluster.interpreters, "-pyfs", str(_AGENT), "--jarfile", str(connector())]
    words += [] if savepoint is None else ["-s", savepoint]
    text = cluster.client(*words, "-pym", "flink_skills.job", "--config", str(file), deadline=240)
    return cluster.submitted(text)


def _exactly_once(prefix: str, key: str) -> str:
    return (
        f"'connector' = 'kafka', 'key.format' = 'raw', 'key.fields' = '{key}', 'format' = 'json', "
        "'sink.delivery-guarantee' = 'exactly-once', "
        f"'sink.transactional-id-prefix' = '{prefix}', 'properties.transaction.timeout.ms' = '{_TRANSACTION}'"
    )


def _waits(run: str, kafka: str) -> str:
    """Return the sections of questions and answers, and their tables."""
    return f"""\
  CREATE TABLE answers (customer STRING, wait_id STRING, answer STRING)
  WITH ('connector' = 'kafka', 'topic' = '{run}-answers', {kafka}, 'properties.group.id' = '{run}',
    'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
  CREATE TABLE questions (wait_id STRING, `key` STRING, kind STRING, status STRING, payload STRING, arguments STRING)
  WITH ('topic' = '{run}-questions', {kafka}, {_exactly_once(f"{run}-questions", "key")});
answers: {{table: answers, key: customer}}
waits: {{table: questions}}
"""


def _text(setting: Setting, broker: str, run: str, parallelism: int) -> str:
    kafka = f"'properties.bootstrap.servers' = '{broker}'"
    if setting.mode == "upsert":
        key = ", PRIMARY KEY (customer) NOT ENFORCED"
        sink = "'connector' = 'upsert-kafka', 'key.format' = 'raw', 'value.format' = 'json'"
    else:
        key = ""
        sink = _exactly_once(run, "customer")
    return f"""\
name: {run}
flink:
  parallelism.default: {parallelism}
  execution.checkpointing.interval: {setting.interval} s
  execution.checkpointing.unaligned.enabled: {str(not setting.aligned).lower()}
  state.backend.type: {setting.backend}
  execution.checkpointing.incremental: {str(setting.backend == "rocksdb").lower()}
options:
  skills.worker.processes: 1
  skills.shell.network: allow
{f"  skills.worker.max-crashes: {setting.crashes}" if setting.crashes else ""}
{f"  skills.turn.timeout: {setting.timeout} s" if setting.timeout else ""}
{"  skills.worker.max-silence: 10 s" if setting.timeout else ""}
{"  skills.tools.approve: reserve" if setting.waits else ""}
{"  skills.user.people: here" if setting.waits else ""}
agent: fault_agent:OrderAgent
tables: |
  CREATE TABLE orders (id STRING, customer STRING)
  WITH ('connector' = 'kafka', 'topic' = '{run}-orders', {kafka}, 'properties.group.id' = '{run}',
    'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
  CREATE TABLE packed (id STRING, customer STRING, turn INT, number INT, answer STRING{key})
  WITH ('topic' = '{run}-packed', {kafka}, {sink});
  CREATE TABLE failures (id STRING, error STRING)
  WITH ('connector' = 'kafka', 'topic' = '{run}-failures', {kafka}, 'format' = 'json');
{_waits(run, kafka) if setting.waits else ""}input: {{table: orders, key: customer}}
output: {{table: packed, columns: {{turn: turn}}}}
errors: {{table: failures}}
"""
