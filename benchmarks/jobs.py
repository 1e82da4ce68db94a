"""The jobs that are measured, each run by a process of its own: ``python -m benchmarks.jobs DESIGN JSON``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyflink
from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.datastream import AsyncDataStream, DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import AsyncFunction, KeyedProcessFunction
from pyflink.java_gateway import get_gateway

from benchmarks import agents
from benchmarks.collector import collector
from benchmarks.stub_server import stub_server
from flink_skills import AgentsExecutionEnvironment
from flink_skills.flink.bridge import add_bridge
from flink_skills.flink.stream import StreamInput

HERE = Path(__file__).resolve().parent


def main(design: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run one job; the result has the stamps' figures and the memory of its processes."""
    # Before the JVM starts, which hands the variables on to the workers.
    traced = collector() if request.get("traced") else contextlib.nullcontext()
    served = _served(request["http"]) if "http" in request else contextlib.nullcontext()
    with traced, served, tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
        env = _environment(request["parallelism"], Path(folder))
        lines = _events(Path(folder), request["keys"], request["events"])
        outputs = DESIGNS[design](env, lines, request)
        stamp = get_gateway().jvm.StampEmission(folder)
        stamped = outputs._j_data_stream.map(stamp).returns(outputs.get_type().get_java_type_info())
        stamped.sinkTo(get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink())
        usage = _Usage()
        began = time.time_ns()
        env.execute(design)
        stamps = sorted(
            tuple(map(int, line.split(",")))
            for file in Path(folder).glob("stamps-*.csv")
            for line in file.read_text().splitlines()
        )
        return _figures(stamps, began, request.get("steady", (0.2, 0.8)), usage)


@contextlib.contextmanager
def _served(latency: float) -> Iterator[None]:
    """A model server on the same cores, which the agents that are asked over HTTP find in the environment."""
    with stub_server(latency) as url:
        os.environ["BENCH_MODEL_URL"] = url
        yield


def _environment(parallelism: int, folder: Path) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in {
        "rest.port": "0",
        "python.executable": sys.executable,
        "python.pythonpath": str(HERE.parent),
        "taskmanager.memory.network.max": "64m",
    }.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    classes = folder / "classes"
    libraries = ":".join(str(jar) for jar in (Path(pyflink.__file__).parent / "lib").glob("flink-dist*.jar"))
    sources = [str(source) for source in (HERE / "java").glob("*.java")]
    subprocess.run(["javac", "-cp", libraries, "-d", str(classes), *sources], check=True)
    subprocess.run(["jar", "cf", str(folder / "stamp.jar"), "-C", str(classes), "."], check=True)
    env.add_jars((folder / "stamp.jar").as_uri())
    return env


def _events(folder: Path, keys: int, count: int) -> Path:
    lines = folder / "events.txt"
    with lines.open("w") as file:
        for i in range(count):
            file.write(f'"key-{i % keys}"\t{{"id": {i}, "text": "event number {i} of some stream of events"}}\n')
    return lines


def _text(env: StreamExecutionEnvironment, lines: Path) -> DataStream:
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(lines)).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "events").set_parallelism(1)


def _agent(env: StreamExecutionEnvironment, lines: Path, request: dict[str, Any]) -> DataStream:
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.get_config().set("skills.worker.max-in-flight", request["in_flight"])
    if request.get("traced"):
        agents_env.get_config().set("skills.trace.exporter", "otlp")
    plan = agents_env.compile(getattr(agents, request["agent"]), local=True, events="json")
    text = _text(env, lines)._j_data_stream
    if "rate" in request:
        # A record is sent when it is due, not when a buffer is full: the latency of Flink's buffers is not measured.
        env.set_buffer_timeout(0)
        jvm = get_gateway().jvm
        text = text.map(jvm.PaceLines(request["slow"], float(request["rate"]))).returns(
            jvm.org.apache.flink.api.common.typeinfo.Types.STRING
        )
        text.setParallelism(1)
    keyed = add_bridge(env).keyLines(text)
    keyed.setParallelism(1)
    output = StreamInput(agents_env, env, keyed, "json").apply_plan(plan)
    if request.get("told"):
        # Read by something that costs next to nothing: this is about telling what happens, not about a sink.
        sink = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
        output.to_event_stream()._j_data_stream.sinkTo(sink)
    return output.to_datastream()


class _Async(AsyncFunction):
    """A model call as PyFlink's asynchronous function makes it: no keys, no state, no order."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def async_invoke(self, value: str) -> list[str]:
        began = time.time_ns()
        if self._seconds:
            await asyncio.sleep(self._seconds)
        return [f"@{began}:{time.time_ns()}@"]


def _async(env: StreamExecutionEnvironment, lines: Path, request: dict[str, Any]) -> DataStream:
    return AsyncDataStream.unordered_wait(
        _text(env, lines),
        _Async(request["seconds"]),
        Time.seconds(60),
        request["in_flight"],
        Types.PICKLED_BYTE_ARRAY(),
    )


class _Synchronous(KeyedProcessFunction):
    """A model call in a keyed function: keys and state, one call at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Any:
        began = time.time_ns()
        if self._seconds:
            time.sleep(self._seconds)
        yield f"@{began}:{time.time_ns()}@"


def _synchronous(env: StreamExecutionEnvironment, lines: Path, request: dict[str, Any]) -> DataStream:
    keyed = _text(env, lines).key_by(lambda line: line.partition("\t")[0], Types.STRING())
    return keyed.process(_Synchronous(request["seconds"]), Types.PICKLED_BYTE_ARRAY())


DESIGNS = {"agent": _agent, "async-function": _async, "keyed-process-function": _synchronous}


def _figures(stamps: list[tuple[int, ...]], began: int, steady: Sequence[float], usage: _Usage) -> dict[str, Any]:
    emitted = sorted(stamp[2] for stamp in stamps)
    delays = sorted((stamp[2] - stamp[1]) / 1e6 for stamp in stamps)
    seconds = (emitted[-1] - stamps[0][0]) / 1e9
    # By default without the first fifth, in which the JVM compiles and workers import, and the last, in which keys run
    # out.
    first, last = (min(int(len(emitted) * share), len(emitted) - 1) for share in steady)
    # The stamps are sorted by the begin of their turns.
    turns = sorted((stamp[2] - stamp[0]) / 1e6 for stamp in stamps[first : last + 1])
    return {
        "turns": len(stamps),
        "seconds": seconds,
        "turns_per_second": len(stamps) / seconds,
        "steady_turns_per_second": (last - first) / max((emitted[last] - emitted[first]) / 1e9, 1e-9),
        "start_up_seconds": (stamps[0][0] - began) / 1e9,
        "emission_delay_ms": {"p50": delays[len(delays) // 2], "p99": delays[len(delays) * 99 // 100]},
        "turn_ms": {"p50": turns[len(turns) // 2], "p99": turns[len(turns) * 99 // 100]},
        **usage.figures(emitted[first], emitted[last], last - first),
    }


class _Sample(NamedTuple):
    """CPU seconds since the start of a process tree, and resident MB at one moment."""

    at: int
    jvm_cpu: float
    worker_cpu: float
    jvm_mb: float
    workers_mb: float
    workers: int


class _Usage:
    """Memory and CPU time of the JVM and of Python workers below this process, sampled."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            self._samples.append(_sample())

    def figures(self, begin: int, end: int, turns: int) -> dict[str, float]:
        """The most memory, and the CPU time of a turn between two moments in nanoseconds since the epoch."""
        self._ended.set()
        self._thread.join()
        found: dict[str, float] = {
            "jvm_mb": round(max(of.jvm_mb for of in self._samples), 1),
            "workers_mb": round(max(of.workers_mb for of in self._samples), 1),
            "worker_processes": max(of.workers for of in self._samples),
        }
        within = [of for of in self._samples if begin <= of.at <= end]
        if len(within) > 1:
            first, last = within[0], within[-1]
            done = max(turns * (last.at - first.at) / (end - begin), 1)
            found["jvm_cpu_ms_per_turn"] = (last.jvm_cpu - first.jvm_cpu) / done * 1000
            found["worker_cpu_ms_per_turn"] = (last.worker_cpu - first.worker_cpu) / done * 1000
        return found


def _sample() -> _Sample:
    jvm_cpu = worker_cpu = jvm_mb = workers_mb = 0.0
    workers = 0
    for process in psutil.Process().children(recursive=True):
        try:
            with process.oneshot():
                megabytes, words = process.memory_info().rss / 2**20, process.cmdline()
                cpu = process.cpu_times().user + process.cpu_times().system
        except psutil.Error:
            continue
        if "flink_skills.worker" in words or any("beam_boot" in word for word in words):
            workers_mb, worker_cpu, workers = workers_mb + megabytes, worker_cpu + cpu, workers + 1
        elif words and words[0].endswith("java"):
            jvm_mb, jvm_cpu = jvm_mb + megabytes, jvm_cpu + cpu
    return _Sample(time.time_ns(), jvm_cpu, worker_cpu, jvm_mb, workers_mb, workers)


if __name__ == "__main__":
    print("RESULT " + json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
