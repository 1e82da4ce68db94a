"""``flink-skills top``: a live view of the agents of a job, from the metrics of Flink's REST interface."""

from __future__ import annotations

import io
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flink_skills.cli.look.job_manager import TERMINAL, Job, JobManager, Reading
from flink_skills.cli.shared_options import Format, OutputFormat, text_option
from flink_skills.cli.terminal_output import Column, live_text, print_json_line, print_line, print_table, time_text
from flink_skills.errors import ConfigError, counted
from flink_skills.options.option import parse_duration

if TYPE_CHECKING:
    from typing import TextIO

# Rates are those of at most this time.
_RATE_SECONDS = 60.0
# Flink renews its metrics every 10 s by default (metrics.fetcher.update-interval).
_ONCE_SECONDS = 30.0
_POLL_SECONDS = 0.5


def top(
    address: Annotated[
        str,
        typer.Argument(
            metavar="JOB_MANAGER_URL",
            show_default=False,
            help="Address of Flink's REST interface, such as http://localhost:8081.",
        ),
    ],
    *,
    job: Annotated[
        str | None,
        text_option("--job", "JOB", "ID or name of the job. It can be omitted if one job with agents runs."),
    ] = None,
    interval: Annotated[str, text_option("--interval", "DURATION", "Time between two views.")] = "5s",
    once: Annotated[
        bool, typer.Option("--once", help="Print one view with rates, which takes up to 10 s, and exit.")
    ] = False,
    header: Annotated[
        list[str] | None,
        text_option(
            "--header",
            "'NAME: VALUE'",
            "Header of the requests, with secrets as references: 'Authorization: Bearer ${env:TOKEN}'. "
            "Can be repeated.",
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
) -> None:
    """Show the agents of a running job, live.

    For each agent operator, the view has the turns in flight, the events that are pending, the turns that wait and the
    age of the oldest wait, ended and failed turns in total and per second, and the restarts of workers. For each agent
    and model, it has the requests, tokens and cost. Totals begin with the last start of the tasks.

    Flink renews these values every 10 s (metrics.fetcher.update-interval). Rates are those of the last minute. The view
    ends with Ctrl-C, or when the job ends. Without a terminal, each view is printed below the previous one. JSON output
    has one object per line.

    Examples:

        flink-skills top http://localhost:8081

        flink-skills top https://flink.example.com/prod --job triage --header 'Authorization: Bearer ${env:TOKEN}'

        flink-skills top http://localhost:8081 --once --format json
    """
    try:
        pause = parse_duration(interval)
    except ValueError as error:
        raise typer.BadParameter(f"--interval {interval}: {error}") from error
    job_manager = JobManager(address, header or [])
    views = _Views(job_manager, job_manager.find_job(job))
    if once:
        view = views.next()
        end = time.monotonic() + _ONCE_SECONDS
        while not (view.agents and view.seconds) and view.job.state == "RUNNING" and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
            view = views.next()
        _print(view, format_)
        return
    with _shown(format_) as show:
        while True:
            view = views.next()
            show(view)
            if view.job.state in TERMINAL:
                return
            time.sleep(pause)


@dataclass(frozen=True)
class View:
    """Values of a job at one time.

    Attributes:
        seconds: Time of the rates. 0 if there are none yet.
        problem: Why the values are not renewed. Empty if they are.
    """

    address: str
    job: Job
    at: float
    agents: list[dict[str, Any]]
    seconds: float = 0.0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the view as JSON data."""
        job = {"id": self.job.id, "name": self.job.name, "state": self.job.state}
        return {"at": round(self.at * 1000), "job": job, "agents": self.agents, "problem": self.problem or None}


class _Views:
    """Views of a job, each from the newest values and those of the minute before."""

    def __init__(self, job_manager: JobManager, job: Job) -> None:
        self._job_manager, self._job = job_manager, job
        self._history: deque[Reading] = deque()
        self._last: View | None = None

    def next(self) -> View:
        """Return the next view. A failed reading after the first one is the problem of the view."""
        at = time.time()
        try:
            self._job, reading = self._job_manager.read(self._job)
        except ConfigError as error:
            if self._last is None:
                raise
            return replace(self._last, at=at, problem=str(error))
        if self._last is not None and self._job.state in TERMINAL:
            return replace(self._last, job=self._job, at=at)  # Flink has removed the values.
        add_reading(self._history, reading)
        agents, seconds = agent_values(self._history)
        self._last = View(self._job_manager.address, self._job, at, agents, seconds)
        return self._last


def add_reading(history: deque[Reading], reading: Reading) -> None:
    """Append a reading with new values. Values that begin again drop the earlier ones, and old ones are dropped."""
    if history and reading.clock == history[-1].clock:
        history[-1] = reading  # Flink has not renewed the values.
        return
    if history and (reading.clock < history[-1].clock or history[-1].counts_more_than(reading)):
        history.clear()
    history.append(reading)
    while len(history) > 2 and reading.clock - history[1].clock >= _RATE_SECONDS:
        history.popleft()


def agent_values(history: deque[Reading]) -> tuple[list[dict[str, Any]], float]:
    """Return the values of each agent operator and of its models, and the seconds of the rates. 0 means no rates."""
    if not history:
        return [], 0.0
    first, last = history[0], history[-1]
    seconds = last.clock - first.clock

    def rate(*path: str, scale: float = 1.0) -> float | None:
        if seconds <= 0:
            return None
        return round((last.values.get(path, 0.0) - first.values.get(path, 0.0)) / seconds * scale, 6)

    found = []
    for operator in last.operators:
        models: list[dict[str, Any]] = []
        for agent, model in last.models(operator):
            path = (operator, agent, model)
            tokens = [rate(*path, name) for name in ("inputTokens", "outputTokens")]
            micro_usd = last.values.get((*path, "costMicroUsd"))
            models.append({
                "agent": agent,
                "model": model,
                "requests": last.number(*path, "requests"),
                "request_failures": last.number(*path, "requestFailures"),
                "input_tokens": last.number(*path, "inputTokens"),
                "output_tokens": last.number(*path, "outputTokens"),
                "tokens_per_second": None if seconds <= 0 else sum(value or 0.0 for value in tokens),
                "cost": None if micro_usd is None else micro_usd / 1e6,
                "cost_per_hour": None if micro_usd is None else rate(*path, "costMicroUsd", scale=3600 / 1e6),
            })  # fmt: skip
        costs = [model["cost"] for model in models if model["cost"] is not None]
        found.append({
            "agent": operator,
            "in_flight": last.number(operator, "inFlight"),
            "pending": last.number(operator, "pending"),
            "waiting": last.number(operator, "waiting"),
            "oldest_wait": last.values.get((operator, "oldestWait"), 0.0) / 1000,
            "turns": last.number(operator, "turns"),
            "failures": last.number(operator, "failures"),
            "turns_per_second": rate(operator, "turns"),
            "failures_per_second": rate(operator, "failures"),
            "worker_restarts": last.number(operator, "workerRestarts"),
            "tokens": sum(model["input_tokens"] + model["output_tokens"] for model in models),
            "cost": sum(costs) if costs else None,
            "models": models,
        })  # fmt: skip
    return found, seconds


@contextmanager
def _shown(format_: Format) -> Iterator[Callable[[View], None]]:
    """Return a function that shows a view: in place of the previous one on a terminal, and below it otherwise."""
    if format_ is Format.TEXT and sys.stdout.isatty():
        with live_text() as update:

            def show(view: View) -> None:
                text = io.StringIO()
                _print_text(view, text)
                update(text.getvalue())

            yield show
        return
    yield lambda view: _print(view, format_)


def _print(view: View, format_: Format) -> None:
    if format_ is Format.JSON:
        print_json_line(view.to_json())
    else:
        _print_text(view, sys.stdout)
    sys.stdout.flush()


def _print_text(view: View, out: TextIO) -> None:
    title = f"{view.job.name}  {view.job.state}  {counted(len(view.agents), 'agent operator')}"
    print_line(title, f"  {time_text(view.at * 1000)}  {view.address}", stream=out)
    if view.problem:
        print_line((view.problem, "red"), stream=out)
    elif not view.agents:
        print_line("There are no values yet. They follow the start of the tasks by up to 10 s.", stream=out)
    if view.agents:
        print_line("", stream=out)
        print_table(_AGENT_COLUMNS, [_agent_cells(agent) for agent in view.agents], stream=out)
    models = [(agent["agent"], model) for agent in view.agents for model in agent["models"]]
    if models:
        print_line("", stream=out)
        print_table(_MODEL_COLUMNS, [_model_cells(operator, model) for operator, model in models], stream=out)
    print_line("", stream=out)


def _right(*names: str) -> list[Column]:
    return [Column(name, right=True, optional=True) for name in names]


_AGENT_COLUMNS = [
    Column("AGENT"),
    *_right(
        "IN FLIGHT",
        "PENDING",
        "WAITING",
        "OLDEST",
        "TURNS/S",
        "FAILED/S",
        "RESTARTS",
        "TURNS",
        "FAILED",
        "TOKENS",
        "COST",
    ),
]
_MODEL_COLUMNS = [
    Column("MODEL OF AGENT"),
    *_right("REQUESTS", "FAILED", "TOKENS/S", "INPUT", "OUTPUT", "COST", "COST/H"),
]


def _agent_cells(agent: Mapping[str, Any]) -> list[str]:
    return [
        agent["agent"],
        *(f"{agent[name]:,}" for name in ("in_flight", "pending", "waiting")),
        duration_text(agent["oldest_wait"]) if agent["waiting"] else "",
        *(_rate_text(agent[f"{name}_per_second"]) for name in ("turns", "failures")),
        *(f"{agent[name]:,}" for name in ("worker_restarts", "turns", "failures", "tokens")),
        _cost_text(agent["cost"]),
    ]


def _model_cells(operator: str, model: Mapping[str, Any]) -> list[str]:
    whose = operator if model["agent"] == operator else f"{operator}: {model['agent']}"
    return [
        f"{model['model']} of {whose}",
        *(f"{model[name]:,}" for name in ("requests", "request_failures")),
        _rate_text(model["tokens_per_second"]),
        *(f"{model[name]:,}" for name in ("input_tokens", "output_tokens")),
        *(_cost_text(model[name]) for name in ("cost", "cost_per_hour")),
    ]


def duration_text(seconds: float) -> str:
    """Return a duration with one unit.

    >>> duration_text(42), duration_text(600), duration_text(9000), duration_text(200_000)
    ('42 s', '10.0 min', '2.5 h', '2.3 d')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    length, unit = (60, "min") if seconds < 3600 else (3600, "h") if seconds < 48 * 3600 else (86_400, "d")
    return f"{seconds / length:.1f} {unit}"


def _rate_text(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.2f}" if rate < 100 else f"{rate:,.0f}"


def _cost_text(cost: float | None) -> str:
    return "" if cost is None else f"${cost:,.4f}"
