"""A small standalone Flink cluster in a scratch folder, for recording what its processes log.

The processes run in the foreground as children of this one, so that a scenario can send a signal to exactly
one of them, and none is left behind when the `with` block ends.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

# The layout of the distribution; the servers log to the console, the client to a file, as shipped.
LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.main.ref = Main
appender.main.name = Main
appender.main.type = {kind}
appender.main.layout.type = PatternLayout
appender.main.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss,SSS}} %-5p %-60c %x - %m%n
"""

BASE = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.bind-host": "localhost",
    "jobmanager.memory.process.size": "1g",
    "taskmanager.host": "localhost",
    "taskmanager.bind-host": "localhost",
    "taskmanager.memory.process.size": "1g",
    "rest.address": "localhost",
    "rest.bind-address": "localhost",
}


class Cluster:
    """One JobManager and some TaskManagers; `folder` receives configuration, logs and class files.

    `settings` are Flink options on top of `BASE`. `TimeoutError` names what did not happen in time.
    """

    def __init__(self, flink_home: Path, folder: Path, settings: Mapping[str, str]) -> None:
        self.home, self.folder = flink_home, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.rest_port, rpc, blob = _free_port(), _free_port(), _free_port()
        ports = {"rest.port": self.rest_port, "jobmanager.rpc.port": rpc, "blob.server.port": blob}
        self._write_configuration({**BASE, **{k: str(v) for k, v in ports.items()}, **settings})

    def _write_configuration(self, settings: Mapping[str, str]) -> None:
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        (conf / "log4j-console.properties").write_text(LOG4J.format(kind="CONSOLE"), encoding="utf-8")
        file = LOG4J.format(kind="File") + "appender.main.fileName = ${sys:log.file}\n"
        (conf / "log4j-cli.properties").write_text(file, encoding="utf-8")
        # Java 17 needs the module options of the distribution's own configuration.
        shipped = (self.home / "conf" / "config.yaml").read_text(encoding="utf-8")
        options = re.search(r"^ +all: (.+)$", shipped, re.MULTILINE)
        lines = [f"env.java.opts.all: {options.group(1)}"] if options else []
        lines += [f"io.tmp.dirs: {self.folder / 'tmp'}"] + [f"{k}: {v}" for k, v in settings.items()]
        (conf / "config.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self.folder / "tmp").mkdir()

    def _environment(self) -> dict[str, str]:
        scratch = str(self.folder)
        return {
            "PATH": os.environ["PATH"],
            "HOME": scratch,
            "FLINK_HOME": str(self.home),
            "FLINK_CONF_DIR": str(self.folder / "conf"),
            "FLINK_LOG_DIR": scratch,
            "FLINK_PID_DIR": scratch,
            "FLINK_IDENT_STRING": "flink",
            "HOSTNAME": "node-1",
            **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
        }

    def start(self, name: str, script: str, *options: str) -> None:
        """Starts one process; its log is `log(name)`."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                ["bash", str(self.home / "bin" / script), "start-foreground", *options],
                env=self._environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start_all(self, taskmanagers: int, slots: int) -> None:
        """Starts the JobManager and `taskmanagers` TaskManagers and waits until all are registered."""
        self.start("jobmanager", "jobmanager.sh")
        for n in range(1, taskmanagers + 1):
            self.start_taskmanager(n, slots)
        wait(lambda: self.rest("/overview").get("taskmanagers") == taskmanagers, 60, "registered TaskManagers")

    def start_taskmanager(self, n: int, slots: int) -> None:
        settings = {
            "taskmanager.resource-id": f"taskmanager-{n}",
            "taskmanager.numberOfTaskSlots": str(slots),
        }
        self.start(f"taskmanager-{n}", "taskmanager.sh", *(f"-D{k}={v}" for k, v in settings.items()))

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def log(self, name: str) -> str:
        """What `name` has logged so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def submit(self, *arguments: str, detached: bool = True) -> None:
        """Runs `flink run`; a failing client is part of what is recorded (`client.log`), so not an error."""
        with (self.folder / "client.log").open("ab") as log:
            subprocess.run(
                [str(self.home / "bin" / "flink"), "run", *(["-d"] if detached else []), *arguments],
                env=self._environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=120,
            )

    def rest(self, path: str) -> dict[str, Any]:
        """A GET on the REST API; an empty answer while it is not up yet."""
        try:
            with urllib.request.urlopen(f"http://localhost:{self.rest_port}{path}", timeout=5) as answer:
                document: dict[str, Any] = json.load(answer)
                return document
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return {}

    def wait_log(self, name: str, text: str, times: int = 1, seconds: float = 60) -> None:
        wait(lambda: self.log(name).count(text) >= times, seconds, f"{times} x '{text}' in the log of {name}")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)


def wait(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits until `condition()` holds; `TimeoutError` with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.2)


def compile_jobs(flink_home: Path, sources: Path, target: Path) -> Path:
    """Compiles the Java jobs into a jar; classes from `sources/extra` are left out of it on purpose."""
    classes = target / "classes"
    classes.mkdir(parents=True)
    files = sorted(str(p) for p in sources.rglob("*.java"))
    class_path = str(flink_home / "lib" / "*")
    subprocess.run(["javac", "--release", "17", "-cp", class_path, "-d", str(classes), *files], check=True)
    shutil.rmtree(classes / "com" / "example" / "geo")
    jar = target / "jobs.jar"
    subprocess.run(["jar", "cf", str(jar), "-C", str(classes), "."], check=True)
    return jar


def python_interpreter() -> str:
    """The interpreter for PyFlink jobs: this one, since it found the distribution."""
    return sys.executable


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port
