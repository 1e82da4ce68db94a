"""Environment of the Kafka blocks of pages: a real broker, its command-line tools, and lean Flink processes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pyflink

from tests.faults.jars import connector, server_class_path
from tests.faults.servers import Broker
from tests.kit.class_archives import JVM_OPTIONS, cluster_options
from tests.kit.ports import free_port

__all__ = ["broker_for", "flink_home"]

#: Runs Kafka's own tools where a page says "docker compose exec -T kafka /opt/kafka/bin/kafka-….sh".
_DOCKER = """\
#!/usr/bin/env bash
set -eu
case "$1 $2" in
  "compose up" | "compose down") exit 0 ;;
  "compose exec") shift 4 ;;
  *) echo "docker $*: no page needs this" >&2; exit 64 ;;
esac
tool=$(basename "$1")
shift
case "$tool" in
  kafka-topics.sh) class=org.apache.kafka.tools.TopicCommand ;;
  kafka-console-producer.sh) class=org.apache.kafka.tools.ConsoleProducer ;;
  kafka-console-consumer.sh) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
  *) echo "$tool: no page needs this" >&2; exit 64 ;;
esac
exec java JVM_OPTIONS -cp CLASS_PATH "$class" "${@//localhost:9092/$KAFKA}"
"""


def flink_home() -> Path:
    """Return the directory of the Flink that the Python package contains."""
    return Path(pyflink.__file__).parent


@contextlib.contextmanager
def broker_for(folder: Path) -> Iterator[tuple[Broker, dict[str, str]]]:
    """Start a broker for the blocks that run in ``folder``, and yield it with their environment variables.

    Kill the processes with an ID in ``folder/run`` at the end.
    """
    outer = folder.parent
    programs = outer / "bin"
    programs.mkdir(exist_ok=True)
    docker = programs / "docker"
    docker.write_text(_DOCKER.replace("JVM_OPTIONS", JVM_OPTIONS).replace("CLASS_PATH", server_class_path()))
    docker.chmod(0o755)
    (folder / "lib").mkdir()
    shutil.copy(connector(), folder / "lib")
    with Broker(outer / "broker") as broker:
        try:
            yield broker, {"KAFKA": broker.address, "FLINK_CONF_DIR": str(_configuration(outer / "conf"))}
        finally:
            for file in folder.glob("run/*.pid"):
                for number in file.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(number), signal.SIGKILL)


def _configuration(folder: Path) -> Path:
    """Write the configuration of a Flink cluster on free ports that needs little memory."""
    shutil.copytree(flink_home() / "conf", folder)
    shipped = (folder / "config.yaml").read_text(encoding="utf-8")
    options = re.search(r"^ +all: (.+)$", shipped, re.MULTILINE)
    assert options, "Flink's configuration opens no modules of Java 17"
    values = {
        "env.java.opts.all": f"{options[1]} {JVM_OPTIONS}",
        **cluster_options(),
        "jobmanager.rpc.address": "localhost",
        "jobmanager.rpc.port": str(free_port()),
        "jobmanager.memory.process.size": "1024m",
        "taskmanager.host": "localhost",
        "taskmanager.memory.process.size": "1728m",
        "taskmanager.numberOfTaskSlots": "1",
        "rest.address": "localhost",
        "rest.port": str(free_port()),
        # A killed TaskManager is declared dead after two failed calls.
        "heartbeat.interval": "1000",
        "heartbeat.timeout": "20000",
        "pekko.startup-timeout": "120 s",
    }
    (folder / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()), encoding="utf-8")
    return folder
