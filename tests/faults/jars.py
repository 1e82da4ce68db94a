"""The jars of ``pom.xml``, from Maven's own cache or its repository."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

__all__ = ["connector", "server_class_path"]

_POM = Path(__file__).parent / "pom.xml"
_CONNECTOR = "flink-sql-connector-kafka"


@functools.cache
def _jars() -> tuple[Path, ...]:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "class-path"
        words = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:build-classpath", f"-Dmdep.outputFile={found}"]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        return tuple(Path(jar) for jar in found.read_text(encoding="utf-8").strip().split(":"))


def connector() -> Path:
    """Flink's connector for Kafka, with all that it needs in one jar."""
    (found,) = (jar for jar in _jars() if jar.name.startswith(_CONNECTOR))
    return found


def server_class_path() -> str:
    """For Kafka's broker and ZooKeeper's server."""
    return ":".join(str(jar) for jar in _jars() if not jar.name.startswith(_CONNECTOR))
