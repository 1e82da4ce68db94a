"""A job in a mini cluster that is stopped in the middle and goes on from its savepoint, maybe as another one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyflink.common import Duration, Encoder, JobStatus, Row, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream
from pyflink.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment
from tests.flink.running import flink_environment, stop_with_savepoint
from tests.kit.flink_rest import wait_until

__all__ = ["Gated", "Place", "Stoppable"]

DEADLINE = 120
EVENT = Types.ROW_NAMED(["customer", "id"], [Types.STRING(), Types.STRING()])


class Place:
    """The folder of a test: events that come, what steps did, and what left the jobs."""

    def __init__(self, folder: Path) -> None:
        self.events, self.results, self.savepoints = (folder / name for name in ("events", "results", "savepoints"))
        self.events.mkdir()
        self.log = folder / "done"
        self.gate = folder / "open"
        self._files = 0

    def send(self, *ids: str) -> None:
        """New events, such as ``a1`` of customer ``a``, in this order."""
        self._files += 1
        hidden = self.events / f".{self._files}"
        hidden.write_text("".join(f"{id_[0]},{id_}\n" for id_ in ids))
        hidden.rename(self.events / str(self._files))

    def done(self) -> list[tuple[str, str, str]]:
        """What steps did, in this order: step, event, call id."""
        return [line for line in self._log() if line[0] != "gate"]

    def _log(self) -> list[tuple[str, str, str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(step, id_, call) for step, id_, call in (line.split() for line in lines)]

    def left(self) -> list[str]:
        """What the sink has committed, in the order of each writer."""
        files = [file for file in self.results.glob("*/part-*") if not file.name.startswith(".")]
        files.sort(key=lambda file: (file.stat().st_mtime_ns, file.name))
        return [line for file in files for line in file.read_text().splitlines()]

    def wait_for(self, step: str, *ids: str) -> None:
        """Wait until this step was done for these events."""
        wait_until(
            lambda: set(ids) <= {of for what, of, _ in self.done() if what == step}, DEADLINE, f"{step} of {ids}"
        )

    def wait_at_gate(self, number: int, *ids: str) -> None:
        """Wait until the turns of these events have come to the gate that often, once in each job.

        A turn reaches the gate after its first step has been journaled.
        """

        def come() -> bool:
            found = Counter(of for what, of, _ in self._log() if what == "gate")
            return all(found[id_] >= number for id_ in ids)

        wait_until(come, DEADLINE, f"attempt {number} at {ids}")


class Gated(Agent):
    """Does two steps for each event; between them it waits until the gate is open."""

    name = "gated"
    session = "key"

    def __init__(self, place: Place, steps: Sequence[str] = ("first", "second"), name: str = "gated") -> None:
        self.log, self.gate, self.steps, self.name = str(place.log), str(place.gate), steps, name

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        for number, step in enumerate(self.steps):
            if number == 1:
                await ctx.step("gate", self.wait, event["id"], ctx)
            await ctx.step(step, self.note, step, event["id"], ctx)
        ctx.state["seen"] = [*ctx.state.get("seen", []), event["id"]]
        return f"{event['id']} turn {ctx.turn} seen {' '.join(ctx.state['seen'])}"

    def note(self, step: str, id_: str, ctx: AgentContext) -> None:
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, f"{step} {id_} {ctx.call_id}\n".encode())
        finally:
            os.close(file)

    def wait(self, id_: str, ctx: AgentContext) -> None:
        self.note("gate", id_, ctx)
        wait_until(Path(self.gate).exists, DEADLINE, "the gate to open")


class _FirstSecond(TimestampAssigner):  # type: ignore[misc]
    """The number of an event is its time in seconds."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1][1:]) * 1000


class Stoppable:
    """The job: events from files, ``build`` (an agent, or what makes a stream of texts of an agent's input), results.

    ``options`` are those of Flink and of agents; ``savepoint`` is where it goes on. A ``bounded`` job reads the
    files that are there when it starts, and ends.
    """

    def __init__(
        self,
        place: Place,
        build: Agent | Callable[[AgentsExecutionEnvironment, Any], DataStream],
        *,
        parallelism: int = 1,
        savepoint: str | None = None,
        options: dict[str, str] | None = None,
        bounded: bool = False,
    ) -> None:
        more = {"execution.checkpointing.interval": "200ms", "taskmanager.numberOfTaskSlots": "8", **(options or {})}
        if savepoint is not None:
            more["execution.state-recovery.path"] = savepoint
        env = flink_environment(more, parallelism)
        self._folder = place.savepoints
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(place.events))
        if not bounded:
            source = source.monitor_continuously(Duration.of_millis(50))
        lines = (
            env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines").uid("lines").set_parallelism(1)
        )
        events = lines.map(lambda line: Row(*line.split(",")), output_type=EVENT).uid("events").set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_FirstSecond())
        timed = events.assign_timestamps_and_watermarks(strategy).uid("times").set_parallelism(1)
        agents = AgentsExecutionEnvironment.get_execution_environment(env)
        keyed = agents.from_datastream(timed, "customer")
        results = keyed.apply(build).to_datastream(Types.STRING()) if isinstance(build, Agent) else build(agents, keyed)
        sink = FileSink.for_row_format(str(place.results), Encoder.simple_string_encoder())
        policy = RollingPolicy.on_checkpoint_rolling_policy()
        results.sink_to(sink.with_rolling_policy(policy).build()).uid("results").set_parallelism(1)
        self._ended = False
        self.client = env.execute_async("stoppable")

    def stop(self, *, drain: bool = False) -> str:
        """Stop with a savepoint; gives its place."""
        return str(self.stopping(drain=drain).result())

    def stopping(self, *, drain: bool = False) -> Any:
        """The future of that savepoint."""
        self._ended = True
        return stop_with_savepoint(self.client, self._folder, drain=drain)

    def resumed(self) -> None:
        """The job continues, because the stop was refused."""
        self._ended = False

    def wait(self) -> None:
        """Wait until a bounded job has ended."""
        self.client.get_job_execution_result().result()
        self._ended = True

    def close(self) -> None:
        """Cancel the job where it still runs, and wait for its end: until then its worker continues with turns."""
        if not self._ended:
            self._ended = True
            self.client.cancel().result()
            wait_until(self._is_over, DEADLINE, "the end of the job that was cancelled")

    def _is_over(self) -> bool:
        try:
            status = self.client.get_job_status().result()
        except Py4JJavaError:
            return True  # its cluster has ended with it
        return bool(status in (JobStatus.CANCELED, JobStatus.FAILED, JobStatus.FINISHED))
