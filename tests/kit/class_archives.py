"""Archives of the classes that Flink's JVMs load: with one, a JVM starts with a quarter less CPU time.

``python -m tests.kit.class_archives`` writes those of its environment. A JVM uses an archive only with the Java and the
class path that wrote it, and does without it otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["JVM_OPTIONS", "client_options", "cluster_options"]

JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For short-lived JVMs: the quick compiler only, and no threads for a parallel collector."""

_FOLDER = Path(sys.prefix, "class-archives")
# The two have class paths of different orders.
_CLIENT, _CLUSTER = _FOLDER / "client.jsa", _FOLDER / "cluster.jsa"
_DEADLINE = 300
_JOB = """\
import sys
from pyflink.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.set_python_executable(sys.executable)
env.from_collection([1, 2]).key_by(lambda each: each).map(lambda each: each).print()
env.execute()
"""


def _option(archive: Path) -> str:
    return f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off -Xlog:class+path*=off" if archive.exists() else ""


def client_options() -> str:
    """Return the options of the JVM that a Python process starts: that of a local job."""
    return f"{JVM_OPTIONS} {_option(_CLIENT)}".strip()


def cluster_options() -> Mapping[str, str]:
    """Return Flink's configuration for the JVMs of a standalone cluster and of the command ``flink``."""
    if not _CLUSTER.exists():
        return {}
    return {f"env.java.opts.{process}": _option(_CLUSTER) for process in ("jobmanager", "taskmanager", "client")}


def _write() -> None:
    """Run a local job in each of the two JVMs, which then loads the classes of a client and a cluster."""
    import pyflink

    _FOLDER.mkdir(exist_ok=True)
    home = Path(pyflink.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job.py")
        job.write_text(_JOB)
        interpreters = ["-pyexec", sys.executable, "-pyclientexec", sys.executable]
        commands = {
            _CLIENT: [sys.executable, str(job)],
            _CLUSTER: ["bash", str(home / "bin" / "flink"), "run", "-t", "local", *interpreters, "-py", str(job)],
        }
        for archive, command in commands.items():
            archive.unlink(missing_ok=True)
            options = f"{JVM_OPTIONS} -XX:ArchiveClassesAtExit={archive}"
            env = {**os.environ, "FLINK_HOME": str(home), "FLINK_LOG_DIR": folder, "JVM_ARGS": options}
            # The pipes stay open until the JVM has ended too.
            subprocess.run(command, env=env, cwd=folder, capture_output=True, timeout=_DEADLINE, check=True)
            if not archive.exists():
                raise SystemExit(f"{archive}: the JVM of {command[0]} wrote no archive")


if __name__ == "__main__":
    _write()
