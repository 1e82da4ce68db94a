"""A real standalone Flink cluster for tests: one JobManager and some TaskManagers as processes of this machine.

It runs the distribution that the ``apache-flink`` package carries, so nothing else has to be installed::

    with StandaloneCluster(tmp_path) as cluster:
        job = cluster.submit("my_job.py", "--input", str(events), python_files=["my_agents.py"])
        cluster.wait(job, "RUNNING")
        cluster.kill_task_manager(0)
        cluster.start_task_manager()
        ...
        cluster.cancel(job)

Needs the ``flink`` extra, Java 17 and psutil. All listening is on loopback.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import flink_skills
from flink_skills.errors import ConfigError
from tests.kit.flink_rest import Checkpoint, ClusterError, FlinkRest, wait_until

__all__ = ["Checkpoint", "ClusterError", "StandaloneCluster", "wait_until"]

_SUBMITTED = re.compile(r"JobID ([0-9a-f]{32})")
_WORKER = "flink_skills.worker"
_STORE_PREFIX = "flink-skills-store-"

# Short-lived JVMs on a busy machine: the quick compiler only, and no threads for a parallel collector.
_LEAN_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_CONFIG = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.bind-host": "localhost",
    "jobmanager.memory.heap.size": "256m",
    "jobmanager.memory.jvm-metaspace.size": "192m",
    "jobmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.host": "localhost",
    "taskmanager.bind-host": "localhost",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.network.min": "32m",
    "taskmanager.memory.network.max": "32m",
    # Each PyFlink job brings its own classes, of which Flink's and Beam's threads keep some alive after it.
    "taskmanager.memory.jvm-metaspace.size": "640m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "rest.address": "localhost",
    "rest.bind-address": "localhost",
    "web.refresh-interval": "100",
    "web.checkpoints.history": "1000",
    # A killed TaskManager is dead after two calls without a process. A slow one has more time.
    "heartbeat.interval": "1000",
    "heartbeat.timeout": "20000",
    "heartbeat.rpc-failure-threshold": "2",
    "cluster.registration.error-delay": "500",
    "taskmanager.load-balance.mode": "SLOTS",
    "execution.checkpointing.interval": "500ms",
    "restart-strategy.type": "exponential-delay",
    "restart-strategy.exponential-delay.initial-backoff": "200ms",
    "restart-strategy.exponential-delay.max-backoff": "2s",
    "env.java.opts.jobmanager": _LEAN_JVM,
    "env.java.opts.taskmanager": _LEAN_JVM,
    "env.java.opts.client": _LEAN_JVM,
}

# PythonEnvUtils logs the environment of Python processes, secrets included (docs/secrets.md).
# DefaultJobBundleFactory logs it at ERROR if it cannot terminate a process.
_QUIET_LOGGERS = """\
logger.environment.name = org.apache.flink.client.python.PythonEnvUtils
logger.environment.level = WARN
logger.bundles.name = org.apache.beam.runners.fnexecution.control.DefaultJobBundleFactory
logger.bundles.level = OFF
"""


class StandaloneCluster(FlinkRest):
    """One JobManager and ``task_managers`` TaskManagers of ``slots`` slots each, while the ``with`` block lasts.

    Args:
        folder: Where configuration, logs, checkpoints and temporary files go. It must be empty or not exist.
        task_managers: How many TaskManagers start; they are numbered from 0 in the order of their start.
        slots: Task slots of each TaskManager.
        config: Flink options on top of the defaults, which make failures known quickly and need little memory.
        python: The interpreter of client and workers; default: this one.

    Raises:
        ConfigError: there is no Flink distribution in this Python.
        ClusterError: the cluster did not come up. The message holds the last lines of its log.
    """

    def __init__(
        self,
        folder: str | Path,
        task_managers: int = 2,
        slots: int = 2,
        config: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.folder = Path(folder).resolve()
        self.temporary_dir = self.folder / "tmp"
        self.checkpoint_dir = self.folder / "checkpoints"
        self._home = _distribution()
        self._python = python
        self._wanted = task_managers
        rest_port = (config or {}).get("rest.port") or str(_free_port())
        super().__init__(f"http://localhost:{rest_port}")
        self._config = {
            **_CONFIG,
            "jobmanager.rpc.port": str(_free_port()),
            "rest.port": rest_port,
            "io.tmp.dirs": str(self.temporary_dir),
            "taskmanager.numberOfTaskSlots": str(slots),
            "execution.checkpointing.dir": self.checkpoint_dir.as_uri(),
            "execution.checkpointing.savepoint-dir": (self.folder / "savepoints").as_uri(),
            **(config or {}),
        }
        self._job_manager: subprocess.Popen[bytes] | None = None
        self._task_managers: list[subprocess.Popen[bytes]] = []

    def start(self) -> StandaloneCluster:
        """Start all processes and wait until every TaskManager is registered."""
        for name in ("conf", "logs", "tmp", "client"):
            (self.folder / name).mkdir(parents=True)
        self._write_configuration()
        try:
            self._job_manager = self._launch("jobmanager", "jobmanager.sh")
            for _ in range(self._wanted):
                self._launch_task_manager()
            self._await_registration()
        except BaseException:
            self._kill_all()
            raise
        return self

    def close(self) -> None:
        """Kill all processes. Raises :class:`ClusterError` if agent workers outlived their TaskManager."""
        self._kill_all()
        try:
            wait_until(lambda: not self.worker_pids(), 10, "agent workers to end with their TaskManagers")
        except ClusterError:
            left = self.worker_pids()
            raise ClusterError(f"agent workers outlived their TaskManagers: processes {left}") from None
        finally:
            # The remaining processes are not of this project, for example starting function workers of PyFlink.
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not self.processes(), 10, "all processes of the cluster to end")
            shutil.rmtree(self.temporary_dir, ignore_errors=True)

    def __enter__(self) -> StandaloneCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_task_manager(self) -> int:
        """Start one more TaskManager, wait until it is registered, and return its number."""
        self._launch_task_manager()
        self._await_registration()
        return len(self._task_managers) - 1

    def kill_task_manager(self, number: int) -> None:
        """End a TaskManager as a crash would: SIGKILL to the JVM. Returns when it is gone.

        PyFlink's own function workers die with it: left alone, some of them would stay for good. Agent workers are
        not touched, they have to notice by themselves.
        """
        process = self._task_managers[number]
        with contextlib.suppress(ProcessLookupError):
            # PyFlink's workers are in the process group of the JVM. Each agent worker has a separate session.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_job_manager(self) -> None:
        """End the JobManager as a crash would: SIGKILL. Returns when it is gone.

        Jobs live on only with high availability, which the caller configures (``high-availability.type``, …).
        """
        if self._job_manager is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._job_manager.pid, signal.SIGKILL)
            self._job_manager.wait()

    def start_job_manager(self) -> None:
        """Start a JobManager in place of the one that was killed, at the same address and with the same log, and wait
        until every TaskManager is registered with it."""
        if self._job_manager is not None and self._job_manager.poll() is None:
            raise ClusterError("the JobManager runs already")
        self._job_manager = self._launch("jobmanager", "jobmanager.sh")
        self._await_registration()

    def task_managers(self) -> list[int]:
        """Numbers of the TaskManagers that run."""
        return [number for number, process in enumerate(self._task_managers) if process.poll() is None]

    def submit(
        self,
        script: str | Path,
        *arguments: str,
        python_files: Sequence[str | Path] = (),
        savepoint: str | None = None,
        deadline: float = 120,
    ) -> str:
        """Submit a PyFlink job with ``flink run -d -py`` and return its id.

        ``python_files`` are passed with ``-pyfs``. ``savepoint`` restores the job. Raises
        :class:`ClusterError` with the client's last lines.
        """
        files = ["-pyfs", ",".join(str(file) for file in python_files)] if python_files else []
        from_there = ["-s", savepoint] if savepoint is not None else []
        text = self.client(
            "run", "-d", *self.interpreters, *files, *from_there, "-py", str(script), *arguments, deadline=deadline
        )
        return self.submitted(text, str(script))

    @property
    def interpreters(self) -> tuple[str, ...]:
        """The words of ``flink run`` that name the Python of the client and of the workers."""
        return ("-pyexec", self._python, "-pyclientexec", self._python)

    def client(self, *words: str, deadline: float = 120) -> str:
        """Run Flink's command ``flink`` and return its stdout and stderr.

        Raises :class:`ClusterError` with the last lines if it fails or takes longer than ``deadline`` seconds.
        """
        try:
            done = subprocess.run(
                ["bash", str(self._home / "bin" / "flink"), *words],
                env=self._environment(),
                cwd=self.folder / "client",
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=deadline,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"flink {words[0]} took longer than {deadline:g} s") from error
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode != 0:
            raise ClusterError(f"flink {words[0]} ended with {done.returncode}:\n{_last_lines(text)}")
        return text

    @staticmethod
    def submitted(text: str, what: str = "a job") -> str:
        """The id of the job in what ``flink run`` wrote. Raises :class:`ClusterError` where it submitted none."""
        found = _SUBMITTED.search(text)
        if found is None:
            raise ClusterError(f"flink run of {what} submitted no job:\n{_last_lines(text)}")
        return found.group(1)

    def worker_pids(self, task_manager: int | None = None) -> list[int]:
        """Return the processes of agent workers of one TaskManager, or of all, killed ones included."""
        below: set[int] | None = None
        if task_manager is not None:
            psutil = _psutil()
            try:
                children = psutil.Process(self._task_managers[task_manager].pid).children(recursive=True)
            except psutil.NoSuchProcess:
                return []
            below = {child.pid for child in children}
        return [
            pid
            for pid, command in self.processes().items()
            if _WORKER in command.split() and (below is None or pid in below)
        ]

    def processes(self) -> dict[int, str]:
        """Command lines by process id of everything alive that belongs to the cluster: its own processes, their
        children, and what these have left."""
        psutil = _psutil()
        mark = str(self.folder / "conf")
        below = f"{self.temporary_dir}{os.sep}"
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                # Commands of skills get a clean environment, so they are known by where they run.
                if process.environ().get("FLINK_CONF_DIR") == mark or process.cwd().startswith(below):
                    found[process.pid] = " ".join(process.cmdline())
        return found

    def temporary_folders(self) -> list[Path]:
        """Return the ``flink-skills-*`` folders of jobs in the cluster's temporary folders.

        Those of killed TaskManagers are omitted, and the skill stores, which outlive jobs.
        """
        living = {
            self.temporary_dir,
            *(self.temporary_dir / _name(number) for number in self.task_managers()),
        }
        found = {path for folder in living for path in folder.glob("flink-skills-*")}
        return sorted(path for path in found if not path.name.startswith(_STORE_PREFIX))

    def log(self, task_manager: int | None = None) -> str:
        """Return the log of the JobManager, or of a TaskManager."""
        name = "jobmanager" if task_manager is None else _name(task_manager)
        return (self.folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def _write_configuration(self) -> None:
        conf = self.folder / "conf"
        shipped = self._home / "conf"
        for file in shipped.glob("log4j*.properties"):
            text = file.read_text(encoding="utf-8")
            (conf / file.name).write_text(f"{text}\n{_QUIET_LOGGERS}", encoding="utf-8")
        # Java 17 opens its modules to Flink only with the options of the distribution's own configuration.
        options = re.search(r"^ +all: (.+)$", (shipped / "config.yaml").read_text(encoding="utf-8"), re.MULTILINE)
        java = {"env.java.opts.all": options.group(1)} if options else {}
        lines = [f"{key}: {json.dumps(value)}\n" for key, value in {**java, **self._config}.items()]
        (conf / "config.yaml").write_text("".join(lines), encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        logs = str(self.folder / "logs")
        env = {
            **os.environ,
            "FLINK_HOME": str(self._home),
            "FLINK_CONF_DIR": str(self.folder / "conf"),
            "FLINK_LOG_DIR": logs,
            "FLINK_PID_DIR": logs,
            "FLINK_IDENT_STRING": "flink",
            "HOSTNAME": "localhost",
            "TMPDIR": str(self.temporary_dir),
        }
        package = Path(flink_skills.__file__).parents[1]
        if not package.is_relative_to(sys.prefix):
            # A source checkout that is not installed: the workers need the same package as this process.
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(package)]))
        return env

    def _launch(self, name: str, script: str, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                ["bash", str(self._home / "bin" / script), "start-foreground", *options],
                env=self._environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _launch_task_manager(self) -> None:
        name = _name(len(self._task_managers))
        options = {"taskmanager.resource-id": name, "io.tmp.dirs": str(self.temporary_dir / name)}
        self._task_managers.append(
            self._launch(name, "taskmanager.sh", *(f"-D{key}={value}" for key, value in options.items()))
        )

    def _await_registration(self) -> None:
        def registered() -> bool:
            for number, process in enumerate(self._task_managers):
                if process.poll() not in (None, -signal.SIGKILL):
                    raise ClusterError(f"TaskManager {number} ended:\n{_last_lines(self.log(number))}")
            if self._job_manager is not None and self._job_manager.poll() is not None:
                raise ClusterError(f"the JobManager ended:\n{_last_lines(self.log())}")
            try:
                names = {item["id"] for item in self.rest("/taskmanagers")["taskmanagers"]}
            except ClusterError:
                return False
            return {_name(number) for number in self.task_managers()} <= names

        wait_until(registered, 90, "the TaskManagers to register")

    def _kill_all(self) -> None:
        for process in [*self._task_managers, *([self._job_manager] if self._job_manager else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _name(task_manager: int) -> str:
    return f"taskmanager-{task_manager}"


def _distribution() -> Path:
    """The Flink distribution inside the ``apache-flink`` packages."""
    spec = importlib.util.find_spec("pyflink")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        if (Path(folder) / "bin" / "jobmanager.sh").is_file():
            return Path(folder)
    raise ConfigError(
        "there is no Flink distribution in this Python (the packages apache-flink and apache-flink-libraries carry "
        "it): pip install 'flink-skills[flink]'"
    )


def _psutil() -> Any:
    try:
        import psutil
    except ImportError as error:
        raise ConfigError("StandaloneCluster needs psutil: pip install psutil") from error
    return psutil


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def _last_lines(text: str, count: int = 40) -> str:
    """Return the last lines without the frames of Java stacks, which would hide the messages before them."""
    lines = [line for line in text.splitlines() if not re.match(r"\s+(?:at |\.\.\. \d+ more)", line)]
    return "\n".join(lines[-count:])
