"""A Kafka broker and a ZooKeeper server as processes of this machine, each in a folder of its own."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import uuid
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.jars import server_class_path
from tests.kit.cluster import wait_until
from tests.kit.ports import free_port

__all__ = ["Broker", "Coordinator"]

_JVM = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_DEADLINE = 90


class Server:
    """A server that listens on a free port of loopback while the ``with`` block lasts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self):  # type: ignore[no-untyped-def] # Self is not in Python 3.10
        self.folder.mkdir(parents=True)
        words = self._prepare()
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                words,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_until(self._answers, _DEADLINE, f"{type(self).__name__} to listen; see {self.folder / 'log'}")
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def _prepare(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"{type(self).__name__} ended:\n{(self.folder / 'log').read_text()[-3000:]}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Broker(Server):
    """Kafka without ZooKeeper, one node that is broker and controller."""

    def _prepare(self) -> list[str]:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{(controller := free_port())}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            # Transactions of a job that is gone must not hold readers up for longer than a test waits.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        java = [*_JVM, "-Xmx384m", "-cp", server_class_path()]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(file)],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        return [*java, "kafka.Kafka", str(file)]

    def topics(self, *names: str, partitions: int = 4, compacted: bool = False) -> None:
        """Make topics."""
        config = {"cleanup.policy": "compact"} if compacted else {}
        admin = AdminClient({"bootstrap.servers": self.address})
        made = admin.create_topics([NewTopic(name, partitions, 1, config=config) for name in names])
        for future in made.values():
            future.result(_DEADLINE)


class Coordinator(Server):
    """ZooKeeper, for Flink's high availability."""

    def _prepare(self) -> list[str]:
        file = self.folder / "zoo.cfg"
        file.write_text(
            f"tickTime=500\ndataDir={self.folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n",
            encoding="utf-8",
        )
        java = [*_JVM, "-Xmx128m", "-cp", server_class_path()]
        return [*java, "org.apache.zookeeper.server.ZooKeeperServerMain", str(file)]


def _cluster_id() -> str:
    # Kafka's tool would take one that begins with "-" for an option.
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
